package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// searchPath is where the programs of the machine are looked for. A caller's PATH often lacks the sbin folders.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

const cniDir = "/usr/lib/cni"

// neededPrograms maps a program of the machine to the Debian package that has it.
var neededPrograms = map[string]string{
	"containerd":              "containerd",
	"containerd-shim-runc-v2": "containerd",
	"ctr":                     "containerd",
	"runc":                    "runc",
	"nft":                     "nftables",
	"mount":                   "mount",
	"umount":                  "mount",
}

// neededPlugins are the network plugins of the package containernetworking-plugins. portmap calls iptables, which that
// package depends on.
var neededPlugins = []string{"bridge", "host-local", "loopback", "portmap"}

// preflight says everything that is missing on this machine, in one error.
func (c *Cluster) preflight(options Options) error {
	problems := c.missingBinaries(options)
	if !options.ControlPlaneOnly {
		problems = append(problems, missingPackages(findProgram, cniDir)...)
		problems = append(problems, missingKernelParts()...)
	}
	return errors.Join(problems...)
}

func (c *Cluster) missingBinaries(options Options) []error {
	needed := []string{"localcluster", "kubernetes"}
	if !options.ControlPlaneOnly {
		needed = append(needed, "coredns", "pause")
	}
	var missing []string
	for _, name := range needed {
		info, err := os.Stat(c.program(name))
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return []error{fmt.Errorf("%s has no program %s: build it (see test/localcluster/README.md) or give its folder with --bin-dir",
		c.BinDir, strings.Join(missing, ", "))}
}

func missingPackages(find func(program string) bool, plugins string) []error {
	packages := map[string][]string{}
	for program, debianPackage := range neededPrograms {
		if !find(program) {
			packages[debianPackage] = append(packages[debianPackage], program)
		}
	}
	for _, plugin := range neededPlugins {
		if _, err := os.Stat(filepath.Join(plugins, plugin)); err != nil {
			packages["containernetworking-plugins"] = append(packages["containernetworking-plugins"], filepath.Join(plugins, plugin))
		}
	}
	if len(packages) == 0 {
		return nil
	}
	var names, programs []string
	for name, missing := range packages {
		names = append(names, name)
		programs = append(programs, missing...)
	}
	slices.Sort(names)
	slices.Sort(programs)
	return []error{fmt.Errorf("missing on this machine: %s; on Debian run: apt-get install %s",
		strings.Join(programs, ", "), strings.Join(names, " "))}
}

func missingKernelParts() []error {
	var problems []error
	if _, err := os.Stat("/proc/sys/net/bridge/bridge-nf-call-iptables"); err != nil {
		// Without it, the answer of a Service's pod to a pod on the same bridge keeps the wrong sender.
		problems = append(problems, errors.New("the kernel does not filter bridges: run modprobe br_netfilter"))
	}
	filesystems, err := os.ReadFile("/proc/filesystems")
	if err != nil || !strings.Contains(string(filesystems), "\toverlay\n") {
		problems = append(problems, errors.New("the kernel has no overlay file system: run modprobe overlay"))
	}
	return problems
}

func findProgram(name string) bool {
	_, err := programPath(name)
	return err == nil
}

// programPath finds a program of the machine.
func programPath(name string) (string, error) {
	for _, folder := range filepath.SplitList(searchPath) {
		if path, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no program %s in %s", name, searchPath)
}

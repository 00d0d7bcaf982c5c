// Command localcluster runs a real Kubernetes on one Linux machine, with no registry and no Docker.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/livestash-dev/livestash/test/localcluster/internal/cluster"
	"github.com/livestash-dev/livestash/test/localcluster/internal/daemon"
	"github.com/livestash-dev/livestash/test/localcluster/internal/policy"
	"github.com/livestash-dev/livestash/test/localcluster/internal/provisioner"
	"github.com/livestash-dev/livestash/test/localcluster/internal/relay"
)

func init() {
	// Namespaces belong to threads, and only the main one becomes the program in the end.
	runtime.LockOSThread()
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == daemon.Argument {
		daemon.RunShim()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := rootCommand().ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	if !errors.Is(err, cluster.ErrUnhealthy) {
		fmt.Fprintf(os.Stderr, "localcluster: %v\n", err)
	}
	os.Exit(1)
}

// settings are the flags that every command has.
type settings struct{ name, stateDir, binDir string }

func (s *settings) cluster() (*cluster.Cluster, error) {
	return cluster.New(s.name, s.stateDir, s.binDir)
}

func rootCommand() *cobra.Command {
	s := &settings{}
	root := &cobra.Command{
		Use:               "localcluster",
		Short:             "A real Kubernetes on one Linux machine, with no registry and no Docker",
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.PersistentFlags().StringVar(&s.name, "name", cluster.DefaultName, "name of the cluster; clusters with different names run side by side")
	root.PersistentFlags().StringVar(&s.stateDir, "state-dir", cluster.DefaultStateDir, "folder for the state of all clusters, a folder in it for each")
	root.PersistentFlags().StringVar(&s.binDir, "bin-dir", "", "folder of localcluster, kubernetes, coredns and pause (default: the folder of this program)")
	root.AddCommand(upCommand(s), downCommand(s), loadCommand(s), statusCommand(s), kubeconfigCommand(s), execCommand(s), nodeCommand(s),
		holdCommand(), provisionCommand(), relayCommand(), policyCommand())
	return root
}

func upCommand(s *settings) *cobra.Command {
	var options cluster.Options
	command := &cobra.Command{
		Use:   "up",
		Short: "Start the cluster, or repair it; on a healthy cluster this changes nothing",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			c, err := s.cluster()
			if err != nil {
				return err
			}
			return c.Up(command.Context(), options)
		},
	}
	command.Flags().BoolVar(&options.ControlPlaneOnly, "control-plane-only", false, "run only etcd, the API server and the controller manager: no node, no pods")
	command.Flags().StringVar(&options.AuditLog, "audit-log", "", "file for one line of JSON per completed API request (level Metadata); none when empty")
	command.Flags().StringVar(&options.AuditUser, "audit-user", "", "the only user whose requests --audit-log has; everybody's when empty")
	command.Flags().IntVar(&options.Nodes, "nodes", 1, "number of nodes, each with a network of its own and in a zone of its own when there are several")
	command.Flags().BoolVar(&options.NetworkPolicies, "network-policies", false, "enforce NetworkPolicies")
	return command
}

func downCommand(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Remove the cluster with all its data; safe to repeat, and after an up that was killed",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			c, err := s.cluster()
			if err != nil {
				return err
			}
			return c.Down(command.Context())
		},
	}
}

func loadCommand(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "load IMAGE.tar ...",
		Short: "Load images from archives, as docker save or buildah push docker-archive: write them",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, files []string) error {
			c, err := s.cluster()
			if err != nil {
				return err
			}
			return c.Load(command.Context(), files, command.OutOrStdout())
		},
	}
}

func statusCommand(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show what runs; ends with 1 when the cluster is not healthy",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			c, err := s.cluster()
			if err != nil {
				return err
			}
			return c.Status(command.Context(), command.OutOrStdout())
		},
	}
}

func kubeconfigCommand(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print a kubeconfig for this machine, with full rights",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			c, err := s.cluster()
			if err != nil {
				return err
			}
			return c.Kubeconfig(command.OutOrStdout())
		},
	}
}

func execCommand(s *settings) *cobra.Command {
	node := ""
	command := &cobra.Command{
		Use:   "exec -- COMMAND [ARGUMENT ...]",
		Short: "Run a command where pods and Services can be reached, with KUBECONFIG set",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := s.cluster()
			if err != nil {
				return err
			}
			return c.Exec(node, args)
		},
	}
	command.Flags().StringVar(&node, "node", "", "the node whose network it is to see, of several")
	return command
}

func nodeCommand(s *settings) *cobra.Command {
	command := &cobra.Command{Use: "node", Short: "Let faults happen to one of several nodes, and undo them"}
	for _, fault := range cluster.Faults {
		command.AddCommand(&cobra.Command{
			Use:   fault.Name + " NODE",
			Short: fault.Does,
			Args:  cobra.ExactArgs(1),
			RunE: func(command *cobra.Command, args []string) error {
				c, err := s.cluster()
				if err != nil {
					return err
				}
				return c.Do(command.Context(), fault, args[0])
			},
		})
	}
	return command
}

// holdCommand is the process that keeps the cluster's namespaces.
func holdCommand() *cobra.Command {
	return &cobra.Command{
		Use:    cluster.HoldCommand,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			<-command.Context().Done()
			return nil
		},
	}
}

// provisionCommand is the process that makes the folders of volumes.
func provisionCommand() *cobra.Command {
	return &cobra.Command{
		Use:    cluster.ProvisionCommand + " KUBECONFIG FOLDER",
		Hidden: true,
		Args:   cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, args []string) error {
			return provisioner.Run(command.Context(), args[0], filepath.Clean(args[1]))
		},
	}
}

// policyCommand is the process that enforces network policies on a node.
func policyCommand() *cobra.Command {
	return &cobra.Command{
		Use:    cluster.PolicyCommand + " KUBECONFIG NFT PODS",
		Hidden: true,
		Args:   cobra.ExactArgs(3),
		RunE: func(command *cobra.Command, args []string) error {
			pods, err := netip.ParsePrefix(args[2])
			if err != nil {
				return err
			}
			return policy.Run(command.Context(), args[0], args[1], pods)
		},
	}
}

// A bad network is as bad as this.
const (
	slowDelay = 200 * time.Millisecond
	slowLoss  = 0.05
)

// relayCommand is the process that makes a node's network bad.
func relayCommand() *cobra.Command {
	return &cobra.Command{
		Use:    cluster.RelayCommand + " FROM TO",
		Hidden: true,
		Args:   cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, args []string) error {
			return relay.Run(command.Context(), args[0], args[1], relay.Cable{Delay: slowDelay, Loss: slowLoss})
		},
	}
}

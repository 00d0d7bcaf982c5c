// Command rights compares what manifests let the operator do with what it did, by the audit logs of the tests' API servers. A right that
// was never used is a mistake, unless it is in the table of exceptions; so is a refusal.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

// exceptions are rights that the logs do not show, or not always, with why the operator has them all the same.
var exceptions = map[right]string{
	{"patch", "", "events"}:                                       "an event of the leader election that comes again",
	{"get", "", "pods/log"}:                                       "the last words of runners that k6-operator has made: the tests play k6-operator, but not its pods' logs",
	{"delete", "redis.redis.opstreelabs.in", "redis"}:             "as the redisreplications, which the tests delete",
	{"delete", "", "serviceaccounts"}:                             "who becomes the owner of what is there must be able to delete it where OwnerReferencesPermissionEnforcement is on: fleets take back what was left",
	{"update", "livestash.dev", "livestashbenchmarks/finalizers"}: "admission asks for it where OwnerReferencesPermissionEnforcement is on, as on OpenShift and in the controllers' tests: it is no request",
	{"update", "livestash.dev", "livestashclusters/finalizers"}:   "the same",
}

func main() {
	manifests := flag.String("manifests", "", "File with the roles and bindings, for example manifests/install.yaml.")
	account := flag.String("account", "system:serviceaccount:livestash-system:livestash-operator", "Whose rights are looked at.")
	flag.Parse()
	mistakes, err := run(os.Stdout, *account, *manifests, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "rights:", err)
		os.Exit(1)
	}
	if mistakes > 0 {
		os.Exit(1)
	}
}

func run(out io.Writer, account, manifests string, logs []string) (mistakes int, err error) {
	file, err := os.Open(manifests)
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	granted, err := grantedTo(account, file)
	if err != nil {
		return 0, err
	}
	seen := &use{used: rights{}, refused: rights{}}
	for _, path := range logs {
		if err := seen.read(account, path); err != nil {
			return 0, err
		}
	}
	found := judge(granted, seen, exceptions)
	for _, mistake := range found {
		_, _ = fmt.Fprintln(out, mistake)
	}
	_, _ = fmt.Fprintf(out, "%d rights, %d of them used in %d requests, %d exceptions, %d mistakes\n",
		len(granted), len(granted)-len(granted.without(seen.used)), seen.requests, len(exceptions), len(found))
	return len(found), nil
}

// judge is what is wrong, a sentence for each right.
func judge(granted rights, seen *use, excepted map[right]string) []string {
	var mistakes []string
	for _, unused := range granted.without(seen.used) {
		if excepted[unused] == "" {
			mistakes = append(mistakes, fmt.Sprintf("%s: never used. Take it from the kubebuilder:rbac markers, or say in the exceptions why it stays", unused))
		}
	}
	// What it has, it is refused after an uninstall, as long as its pod still ends.
	for _, refused := range seen.refused.without(granted) {
		mistakes = append(mistakes, fmt.Sprintf("%s: asked for and refused. Give the right, or do not ask", refused))
	}
	return mistakes
}

// Package reference writes the page that lists every verb of the plugin, from the verbs themselves.
package reference

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const head = `# kubectl livestash

Every verb and flag, as ` + "`kubectl livestash VERB --help`" + ` has them. Made by ` + "`make generate`" + `; what they are for: [how to](../how-to/kubectl-plugin.md).
All verbs take kubectl's own flags besides, such as ` + "`-n`, `--context` and `--kubeconfig`" + `.
`

// Markdown is the page of a program.
func Markdown(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(head)
	verbs(&b, root)
	return b.String()
}

func verbs(b *strings.Builder, parent *cobra.Command) {
	for _, command := range parent.Commands() {
		if command.Hidden || command.Name() == "help" || command.Name() == "completion" {
			continue
		}
		if command.Runnable() {
			verb(b, command)
		}
		verbs(b, command)
	}
}

func verb(b *strings.Builder, command *cobra.Command) {
	path := strings.Replace(command.CommandPath(), "kubectl livestash ", "", 1)
	_, arguments, _ := strings.Cut(command.Use, " ")
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n```\n%s\n", path, command.Long, strings.TrimSpace("kubectl livestash "+path+" "+arguments))
	if command.Example != "" {
		b.WriteString("\n")
		for line := range strings.Lines(command.Example) {
			b.WriteString(strings.TrimSpace(line) + "\n")
		}
	}
	b.WriteString("```\n")
	var rows []string
	command.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "help" {
			rows = append(rows, row(flag))
		}
	})
	if len(rows) > 0 {
		b.WriteString("\n| flag | |\n|---|---|\n" + strings.Join(rows, ""))
	}
}

func row(flag *pflag.Flag) string {
	name := "`--" + flag.Name + "`"
	if flag.Shorthand != "" {
		name = "`-" + flag.Shorthand + "`, " + name
	}
	text := flag.Usage
	if value := flag.DefValue; value != "" && value != "false" && !strings.Contains(text, ";") {
		text += " (`" + value + "`)"
	}
	return fmt.Sprintf("| %s | %s |\n", name, text)
}

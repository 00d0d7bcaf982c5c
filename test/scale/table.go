package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// printRequests prints what the requests were for, the most frequent first.
func printRequests(out io.Writer, requests []request, clusters int) {
	perCluster := func(count int) float64 { return float64(count) / float64(clusters) }
	type kind struct{ verb, target string }
	codes := map[kind]map[int]int{}
	total := map[kind]int{}
	for _, r := range requests {
		k := kind{r.verb, r.target}
		if codes[k] == nil {
			codes[k] = map[int]int{}
		}
		codes[k][r.code]++
		total[k]++
	}
	kinds := slices.SortedFunc(maps.Keys(total), func(a, b kind) int {
		return cmp.Or(cmp.Compare(total[b], total[a]), cmp.Compare(a.target, b.target), cmp.Compare(a.verb, b.verb))
	})

	rows := []string{"VERB\tRESOURCE\tREQUESTS\tPER CLUSTER\tANSWERS"}
	for _, k := range kinds {
		var answers []string
		for _, code := range slices.Sorted(maps.Keys(codes[k])) {
			answers = append(answers, fmt.Sprintf("%d: %d", code, codes[k][code]))
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%d\t%.2f\t%s", k.verb, k.target, total[k], perCluster(total[k]), strings.Join(answers, ", ")))
	}
	rows = append(rows, fmt.Sprintf("all\t\t%d\t%.2f\t\n", len(requests), perCluster(len(requests))))

	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = table.Write([]byte(strings.Join(rows, "\n")))
	_ = table.Flush()
}

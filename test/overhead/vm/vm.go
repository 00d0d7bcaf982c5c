// Package vm asks a BEAM what it uses, and what of that the agent in it uses.
package vm

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// Figures are what a virtual machine says of itself after all of its processes were garbage-collected and all stashes
// were removed. Bytes, unless said otherwise.
type Figures struct {
	Total     int64 `vm:"total"`
	Processes int64 `vm:"processes"`
	Atoms     int64 `vm:"atom"`
	Binaries  int64 `vm:"binary"`
	Code      int64 `vm:"code"`
	ETS       int64 `vm:"ets"`
	// ProcessCount is how many processes there are.
	ProcessCount int64 `vm:"process_count"`

	// AgentMemory and AgentReductions are of the processes under the agent's supervisor, 0 without the agent. What it does
	// in processes that end at once, such as an answer over HTTP, is not in there.
	AgentMemory     int64 `vm:"agent_memory"`
	AgentReductions int64 `vm:"agent_reductions"`

	// ReductionsBefore and ReductionsAfter are the virtual machine's, before and after these figures were collected: what
	// collecting them costs can be left out.
	ReductionsBefore int64 `vm:"reductions_before"`
	ReductionsAfter  int64 `vm:"reductions_after"`
}

// Expression is Elixir that prints the figures, for `bin/app rpc`. It removes the stashes.
const Expression = `
{before, _} = :erlang.statistics(:exact_reductions)
if :ets.whereis(:live_stash_server_storage) != :undefined, do: :ets.delete_all_objects(:live_stash_server_storage)
agent =
  if supervisor = Process.whereis(:livestash_agent) do
    [supervisor | for({_, pid, _, _} <- Supervisor.which_children(supervisor), is_pid(pid), do: pid)]
  else
    []
  end
sum = fn item -> Enum.sum(for pid <- agent, {^item, value} <- [Process.info(pid, item)], do: value) end
agent_reductions = sum.(:reductions)
Enum.each(Process.list(), &:erlang.garbage_collect/1)
figures = :erlang.memory() ++ [
  process_count: :erlang.system_info(:process_count),
  agent_memory: sum.(:memory), agent_reductions: agent_reductions,
  reductions_before: before, reductions_after: elem(:erlang.statistics(:exact_reductions), 0)
]
IO.puts("VM " <> Enum.map_join(figures, " ", fn {name, value} -> "#{name}=#{value}" end))
`

// Parse finds the figures in what the expression printed.
func Parse(output string) (Figures, error) {
	var figures Figures
	for line := range strings.Lines(output) {
		list, found := strings.CutPrefix(line, "VM ")
		if !found {
			continue
		}
		values := map[string]string{}
		for _, field := range strings.Fields(list) {
			name, value, _ := strings.Cut(field, "=")
			values[name] = value
		}
		return figures, figures.fill(values)
	}
	return figures, fmt.Errorf("the virtual machine printed no figures: %s", output)
}

func (f *Figures) fill(values map[string]string) error {
	fields := reflect.ValueOf(f).Elem()
	for i := range fields.NumField() {
		name := fields.Type().Field(i).Tag.Get("vm")
		value, err := strconv.ParseInt(values[name], 10, 64)
		if err != nil {
			return fmt.Errorf("the virtual machine's figure %s is %q: %w", name, values[name], err)
		}
		fields.Field(i).SetInt(value)
	}
	return nil
}

package main

import (
	"context"
	"time"

	"github.com/livestash-dev/livestash/test/overhead/vm"
)

// figures are what one fleet used in one round.
type figures struct {
	idle, load spent
	// duration and cycles are the load test's.
	duration time.Duration
	cycles   int
	// settled is before the time without users, before and after are of the load test.
	settled, before, after look
}

// clock is the CPU time that the fleet's processes have used so far, summed over its pods.
type clock struct {
	at          time.Time
	beam, probe time.Duration
}

func (f *fleet) clock() (clock, error) {
	now := clock{at: time.Now()}
	for _, p := range f.pods {
		used, err := p.beam.cpu()
		if err != nil {
			return now, err
		}
		now.beam += used
		if p.probe == 0 {
			continue
		}
		if used, err = p.probe.cpu(); err != nil {
			return now, err
		}
		now.probe += used
	}
	return now, nil
}

// spent is the CPU time between two clocks.
type spent struct{ wall, beam, probe time.Duration }

func (c clock) since(before clock) spent {
	return spent{wall: c.at.Sub(before.at), beam: c.beam - before.beam, probe: c.probe - before.probe}
}

// look is memory, and what virtual machines say of themselves, for each pod.
type look struct {
	vms []vm.Figures
	// resident and probe are the memory of the BEAM and of the program that answers the readiness probe, in bytes.
	resident, probe []int64
}

func (f *fleet) look(ctx context.Context) (look, error) {
	var l look
	for _, p := range f.pods {
		figures, err := f.vm(ctx, p)
		if err != nil {
			return l, err
		}
		resident, err := p.beam.resident()
		if err != nil {
			return l, err
		}
		l.vms, l.resident = append(l.vms, figures), append(l.resident, resident)
		if p.probe == 0 {
			continue
		}
		if resident, err = p.probe.resident(); err != nil {
			return l, err
		}
		l.probe = append(l.probe, resident)
	}
	return l, nil
}

// mebibytes is the mean of a figure over the pods, in MiB.
func (l look) mebibytes(figure func(vm.Figures) int64) float64 {
	var all []int64
	for _, figures := range l.vms {
		all = append(all, figure(figures))
	}
	return mebibytes(all)
}

func mebibytes(all []int64) float64 { return float64(sum(all)) / float64(max(1, len(all))) / (1 << 20) }

func sum(all []int64) (total int64) {
	for _, one := range all {
		total += one
	}
	return total
}

// idleCPU is the percentage of a core that one virtual machine uses without users.
func (f figures) idleCPU() float64 { return percent(f.idle.beam, f.idle.wall) / replicas }

// probeCPU is the percentage of a core that one program beside the application uses without users.
func (f figures) probeCPU() float64 { return percent(f.idle.probe, f.idle.wall) / replicas }

// loadCPU is the percentage of a core that one virtual machine uses while the load test runs.
func (f figures) loadCPU() float64 { return percent(f.load.beam, f.duration) / replicas }

// cycleCPU is the CPU time of a cycle of the load test, in milliseconds.
func (f figures) cycleCPU() float64 { return f.load.beam.Seconds() * 1000 / float64(f.cycles) }

func percent(part, of time.Duration) float64 { return 100 * part.Seconds() / of.Seconds() }

// reductions are those of all virtual machines, and of the agents in them, between two looks.
func (l look) reductions(before look) (all, agents float64) {
	for i, then := range before.vms {
		all += float64(l.vms[i].ReductionsBefore - then.ReductionsAfter)
		agents += float64(l.vms[i].AgentReductions - then.AgentReductions)
	}
	return all, agents
}

// idleReductions are the thousands of reductions in a second of one virtual machine without users. What the second of the
// looks takes to begin is in there, and the same with and without the agent.
func (f figures) idleReductions() float64 {
	all, _ := f.before.reductions(f.settled)
	return all / 1000 / (f.idle.wall + calm).Seconds() / replicas
}

// cycleReductions are the thousands of reductions of a cycle of the load test.
func (f figures) cycleReductions() float64 {
	all, _ := f.after.reductions(f.before)
	return all / 1000 / float64(f.cycles)
}

// agentShare is the percentage of the reductions under load that the agent's processes took.
func (f figures) agentShare() float64 {
	all, agents := f.after.reductions(f.before)
	return 100 * agents / all
}

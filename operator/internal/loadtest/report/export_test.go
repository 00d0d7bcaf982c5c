package report

import (
	"fmt"
	"strings"
)

// Ceilings are those that reports are written with, by the names that `make bench-k6-ceiling` gives them.
func Ceilings() map[string]float64 {
	all := map[string]float64{"requests, POST /api/sum, 12 connections": requestCeiling}
	for protocol, measured := range deliveryCeilings {
		name := strings.ToLower(strings.ReplaceAll(protocol, "ActionCable", "action_cable"))
		for _, one := range measured {
			all[fmt.Sprintf("deliveries, %s, %d bytes, rooms of 50", name, one.bytes)] = one.perSecond
		}
	}
	return all
}

// Package plausible says which figures that others write are believed: those of agents, of load tests, and of ConfigMaps that anybody
// may have edited. What is drawn, added up or counted through must be of a size that ends.
package plausible

import "fmt"

// Most is the largest figure that is believed, whatever its unit: ten petabytes, or what a pod sends in three months at 10 Gbit/s. Those of
// 900 pods still add up to less than an int64 holds.
const Most = 1e16

// MostSeconds is the longest time that is believed: ten years.
const MostSeconds = 10 * 365 * 86400

// Figure is whether a figure is believed: it is a number, finite, not below zero, and not absurd.
func Figure(value float64) bool {
	// No comparison with what is not a number is true.
	return value >= 0 && value <= Most
}

// Seconds is whether a time is believed.
func Seconds(value float64) bool {
	return value >= 0 && value <= MostSeconds
}

// Named are figures by what they are called.
type Named map[string]float64

// Check refuses the first, by name, that is not believed. The error names it and its value.
func (n Named) Check() error {
	worst, found := "", false
	for name, value := range n {
		if !Figure(value) && (!found || name < worst) {
			worst, found = name, true
		}
	}
	if found {
		return fmt.Errorf("it says that %s is %g, which no figure is", worst, n[worst])
	}
	return nil
}

// Counts are Figure for whole numbers: no one is below zero or absurd.
func Counts(counts ...int64) bool {
	for _, count := range counts {
		if count < 0 || count > Most {
			return false
		}
	}
	return true
}

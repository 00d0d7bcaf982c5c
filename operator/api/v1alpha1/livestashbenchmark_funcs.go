package v1alpha1

import "encoding/json"

// The condition types of a LiveStashBenchmark.
const (
	// ConditionComplete: all runs are over.
	ConditionComplete = "Complete"
	// ConditionTargetReady: the target of the run that is under way serves.
	ConditionTargetReady = "TargetReady"
	// ConditionReportReady: the report holds every run that is over.
	ConditionReportReady = "ReportReady"
	// ConditionPassed: all runs are over, and the verdict is Passed. Not there before.
	ConditionPassed = "Passed"
	// ConditionFailed: all runs are over, and the verdict is another one, Failed or Errored, which is the reason. Not there before.
	ConditionFailed = "Failed"
)

// Raw is the spec as the user wrote it, as JSON. Nil when it was not read from an API server.
func (s *BenchmarkClusterSpec) Raw() []byte {
	return s.raw
}

// Raw is the patch as the user wrote it, as JSON. Nil when it was not read from an API server.
func (p *BenchmarkPatch) Raw() []byte {
	return p.raw
}

// UnmarshalJSON keeps the whole patch besides the fields that have a type.
func (p *BenchmarkPatch) UnmarshalJSON(data []byte) error {
	type plain BenchmarkPatch
	if err := json.Unmarshal(data, (*plain)(p)); err != nil {
		return err
	}
	p.raw = append([]byte(nil), data...)
	return nil
}

// MarshalJSON gives the patch back as it was read.
func (p BenchmarkPatch) MarshalJSON() ([]byte, error) {
	if p.raw != nil {
		return p.raw, nil
	}
	type plain BenchmarkPatch
	return json.Marshal(plain(p))
}

// UnmarshalJSON keeps the whole spec besides the fields that have a type.
func (s *BenchmarkClusterSpec) UnmarshalJSON(data []byte) error {
	type plain BenchmarkClusterSpec
	if err := json.Unmarshal(data, (*plain)(s)); err != nil {
		return err
	}
	s.raw = append([]byte(nil), data...)
	return nil
}

// MarshalJSON gives the spec back as it was read.
func (s BenchmarkClusterSpec) MarshalJSON() ([]byte, error) {
	if s.raw != nil {
		return s.raw, nil
	}
	type plain BenchmarkClusterSpec
	return json.Marshal(plain(s))
}

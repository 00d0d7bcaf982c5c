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
	return unmarshalKeeping(data, (*plain)(p), &p.raw)
}

// MarshalJSON gives the patch back as it was read.
func (p BenchmarkPatch) MarshalJSON() ([]byte, error) {
	type plain BenchmarkPatch
	return marshalKept(plain(p), p.raw)
}

// UnmarshalJSON keeps the whole spec besides the fields that have a type.
func (s *BenchmarkClusterSpec) UnmarshalJSON(data []byte) error {
	type plain BenchmarkClusterSpec
	return unmarshalKeeping(data, (*plain)(s), &s.raw)
}

// MarshalJSON gives the spec back as it was read.
func (s BenchmarkClusterSpec) MarshalJSON() ([]byte, error) {
	type plain BenchmarkClusterSpec
	return marshalKept(plain(s), s.raw)
}

// unmarshalKeeping reads the fields that have a type, and keeps all of them as they are.
func unmarshalKeeping(data []byte, typed any, raw *[]byte) error {
	if err := json.Unmarshal(data, typed); err != nil {
		return err
	}
	*raw = append([]byte(nil), data...)
	return nil
}

// marshalKept gives back what was kept; else the fields that have a type.
func marshalKept(typed any, raw []byte) ([]byte, error) {
	if raw != nil {
		return raw, nil
	}
	return json.Marshal(typed)
}

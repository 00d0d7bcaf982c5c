package loadtest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/livestash-dev/livestash/operator/api/v1alpha1"
	"github.com/livestash-dev/livestash/operator/internal/loadtest/report"
)

// What a run of Rooms has where the benchmark does not say.
const (
	defaultRoomsDuration = 5 * time.Minute
	defaultRoomSize      = 50
	defaultEvery         = "10s-60s"
	defaultBytes         = 64
)

// rooms: users are in rooms, and say something now and then.
type rooms struct{ quiet }

// roomFigures are the fields of its runners' reports.
type roomFigures struct {
	Protocol       string `json:"protocol"`
	RoomSize       int64  `json:"room_size"`
	Speakers       int64  `json:"speakers"`
	Bytes          int64  `json:"bytes"`
	Messages       int64  `json:"messages"`
	Deliveries     int64  `json:"deliveries"`
	Duplicates     int64  `json:"duplicates"`
	Misdelivered   int64  `json:"misdelivered"`
	LateDeliveries int64  `json:"late_deliveries"`
}

func (f roomFigures) counts() map[string]int64 {
	return map[string]int64{
		report.CountMessages: f.Messages, report.CountDeliveries: f.Deliveries, report.CountDuplicates: f.Duplicates,
		report.CountMisdelivered: f.Misdelivered, report.CountLateDeliveries: f.LateDeliveries,
	}
}

func (rooms) Script() string { return scripts + "rooms.js" }

// Size deals rooms out whole, so runners have as many as their file descriptors allow.
func (rooms) Size(spec *v1alpha1.LiveStashBenchmarkSpec, size v1alpha1.BenchmarkRun, run *Run) {
	talk := ptr.Deref(spec.Rooms, v1alpha1.BenchmarkRooms{})
	talk.Size, talk.Every, talk.Bytes = cmp.Or(talk.Size, defaultRoomSize), cmp.Or(talk.Every, defaultEvery), cmp.Or(talk.Bytes, defaultBytes)
	talk.Speakers = ptr.To(ptr.Deref(talk.Speakers, talk.Size))
	run.Rooms, run.Users = &talk, size.Users
	run.Runners = ptr.Deref(spec.Parallelism, run.LeastRunners())
	run.Duration = ptr.Deref(size.Duration, defaultDuration(defaultRoomsDuration)).Duration
	run.Ramp = ptr.Deref(size.Ramp, defaultDuration(run.Duration/4)).Duration
}

// protocols are the values of PROTOCOL.
var protocols = map[v1alpha1.BenchmarkProtocol]string{
	v1alpha1.ProtocolPhoenix: "phoenix", v1alpha1.ProtocolWebSocket: "websocket", v1alpha1.ProtocolActionCable: "action_cable",
}

// protocolOf is what the rooms of a run speak: those of a fleet speak Phoenix's.
func protocolOf(run Run) string {
	if run.Server == nil {
		return protocols[v1alpha1.ProtocolPhoenix]
	}
	return protocols[run.Server.Protocol]
}

// doubtProtocol says what may be wrong where nobody gets into the room of a server. Empty for fleets, whose protocol nobody chose.
func doubtProtocol(run Run) string {
	if run.Server == nil || run.Rooms == nil {
		return ""
	}
	return fmt.Sprintf(" See whether the rooms of %s speak %s, which server.protocol says.", run.Server.Image, run.Server.Protocol)
}

func (rooms) Options(run Run, _ v1alpha1.BenchmarkThresholds) []corev1.EnvVar {
	return []corev1.EnvVar{
		{Name: "USERS", Value: strconv.Itoa(int(run.Users))},
		{Name: "ROOM_SIZE", Value: strconv.Itoa(int(run.Rooms.Size))},
		{Name: "SPEAKERS", Value: strconv.Itoa(int(*run.Rooms.Speakers))},
		{Name: "EVERY", Value: run.Rooms.Every},
		{Name: "BYTES", Value: strconv.Itoa(int(run.Rooms.Bytes))},
		{Name: "DURATION", Value: seconds(run.Duration)},
		{Name: "RAMP", Value: seconds(run.Ramp)},
		{Name: "PROTOCOL", Value: protocolOf(run)},
	}
}

func (rooms) Foreign(run Run, read RunnerReport) string {
	if why := named(read, "rooms"); why != "" {
		return why
	}
	if read.Users != int64(run.Users) || read.RoomSize != int64(run.Rooms.Size) || read.Speakers != int64(*run.Rooms.Speakers) || read.Bytes != int64(run.Rooms.Bytes) {
		return fmt.Sprintf("ran another test than it should have: %d users in rooms of %d, %d of whom say %d bytes", read.Users, read.RoomSize, read.Speakers, read.Bytes)
	}
	if wanted := protocolOf(run); read.Protocol != wanted {
		return fmt.Sprintf("ran another test than it should have: it spoke %.20s instead of %s", read.Protocol, wanted)
	}
	return ""
}

func (rooms) Load(run Run) string { return fmt.Sprintf("%d users", run.Users) }

func (rooms) Asked(run Run) string {
	return fmt.Sprintf("rooms of %d, %d of whom say %d bytes every %s", run.Rooms.Size, *run.Rooms.Speakers, run.Rooms.Bytes, run.Rooms.Every)
}

func (rooms) Sound(run Run, result Result) []string {
	if result.Failed.total() > 0 {
		return nil
	}
	of := result.Counts.Of
	why := fmt.Sprintf("Nothing was said: %d of %d users were in their rooms, and %s.", of[report.CountConnected], of[report.CountPlanned], errorsOf(result.Counts))
	return []string{why + doubtProtocol(run)}
}

func (rooms) Broken(run Run, limits v1alpha1.BenchmarkThresholds, result Result) []string {
	var broken []string
	fails := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	of := result.Counts.Of
	for _, never := range []struct{ count, words string }{
		{report.CountDuplicates, "messages were heard twice"}, {report.CountMisdelivered, "messages were heard in another room, or not whole"},
	} {
		if found := of[never.count]; found > 0 {
			fails("%s: %d %s, none may be (two tests at once hear each other's rooms)", never.count, found, never.words)
		}
	}
	// Who is not in a room is not expected to hear anything, so that alone is no message that failed.
	few := usersThatMayFail(run, limits)
	for _, member := range []struct {
		found int64
		words string
	}{
		{of[report.CountPlanned] - of[report.CountConnected], "users were never in their room"},
		{of[report.CountDropped], "connections were ended by the server"},
		{of[report.CountConnectFailed], "attempts to come into a room failed"},
	} {
		if member.found > few {
			fails("maxFailed: %d %s, with %d users at most %d may be", member.found, member.words, run.Users, few)
		}
	}
	if text := tooManyFailed(limits, result, "messages"); text != "" {
		broken = append(broken, text)
	}
	return broken
}

func (rooms) Judges(metric string) bool {
	return slices.Contains([]string{"connected", "connect_failed", "dropped", "messages", "duplicates", "misdelivered"}, metric)
}

func (rooms) Figures(read RunnerReport) map[string]int64 {
	return withOutcome(read.roomFigures.counts(), read.Failed)
}

func (rooms) Headline(run Run, result Result, timed bool, row *v1alpha1.BenchmarkRunStatus) {
	row.PerSecond = perSecond(result.Counts.Of[report.CountDeliveries], run.Duration-run.Ramp)
	row.AnswerP95 = answerP95(result, report.DurationDelivery, timed)
}

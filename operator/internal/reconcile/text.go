package reconcile

import "strings"

const (
	// MostNote is how many bytes the API server takes as an event's message.
	MostNote = 1024
	// MostMessage is how many bytes a message of a status may have. The API server takes eight times as many of a condition's, but an
	// object must stay small, and what the API server says of a refused object may have any length.
	MostMessage = 4096
)

// Shortened is a text of at most that many bytes.
func Shortened(text string, most int) string {
	const end = "…"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(end)], "") + end
}

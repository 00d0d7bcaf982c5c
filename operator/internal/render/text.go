package render

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// Unprintable is what a value has that no environment variable can have, or nobody wants it to have. Empty: nothing.
func Unprintable(value []byte) string {
	switch {
	case bytes.IndexByte(value, 0) >= 0:
		return "a NUL byte"
	case bytes.HasSuffix(value, []byte("\n")):
		return "a line break at its end"
	case !utf8.Valid(value):
		return "bytes that are no UTF-8"
	case bytes.ContainsFunc(value, unicode.IsControl):
		return "a control character"
	}
	return ""
}

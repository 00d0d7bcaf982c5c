package report

import (
	"bytes"
	"fmt"
	"html"
	"regexp"
)

// markup is HTML as it stands. Every other text is escaped where it is put into a page.
type markup string

// pageWriter writes a page. It is used and not html/template, whose reflection makes the linker keep each method of each type of
// the whole program: 24 MB of the operator's 61.
type pageWriter struct{ bytes.Buffer }

// measured is a number and its unit.
var measured = regexp.MustCompile(`([0-9]) (%|(?:ms|s|min|h|[kMGT]?B(?:/s)?|cores?|CPUs?|users|pods?|runs?)(?:[^A-Za-z]|$))`)

// unbroken keeps each number and its unit on one line.
func unbroken(text string) string {
	return measured.ReplaceAllString(text, "$1\u00a0$2")
}

// put writes markup with a %s for each of the texts, which are escaped unless they are markup themselves.
func (w *pageWriter) put(format markup, texts ...any) {
	escaped := make([]any, len(texts))
	for i, text := range texts {
		escaped[i] = text
		if _, isMarkup := text.(markup); !isMarkup {
			escaped[i] = html.EscapeString(unbroken(fmt.Sprint(text)))
		}
	}
	_, _ = fmt.Fprintf(w, string(format), escaped...) // a buffer takes everything
}

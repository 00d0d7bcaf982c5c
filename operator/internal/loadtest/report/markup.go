package report

import (
	"bytes"
	"fmt"
	"html"
)

// markup is HTML as it stands. Every other text is escaped where it is put into a page.
type markup string

// pageWriter writes a page. It is used and not html/template, whose reflection makes the linker keep each method of each type of
// the whole program: 24 MB of the operator's 61.
type pageWriter struct{ bytes.Buffer }

// put writes markup with a %s for each of the texts, which are escaped unless they are markup themselves.
func (w *pageWriter) put(format markup, texts ...any) {
	escaped := make([]any, len(texts))
	for i, text := range texts {
		escaped[i] = text
		if _, isMarkup := text.(markup); !isMarkup {
			escaped[i] = html.EscapeString(fmt.Sprint(text))
		}
	}
	_, _ = fmt.Fprintf(w, string(format), escaped...) // a buffer takes everything
}

package report

import "testing"

// TestWordsAreNoMarkup: what users and their programs say stands in a page as it is.
func TestWordsAreNoMarkup(t *testing.T) {
	var w pageWriter
	w.put(`<p class="%s">%s%s%s</p>`, `"><script>`, "<b>&100 %s'", markup("<br>"), 3)
	if want := `<p class="&#34;&gt;&lt;script&gt;">&lt;b&gt;&amp;100 %s&#39;<br>3</p>`; w.String() != want {
		t.Errorf("got  %s\nwant %s", w.String(), want)
	}
}

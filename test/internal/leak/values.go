// Package leak tells whether values of Secrets are in anything but Secrets. It notes what a namespace's Secrets have held, and
// every version of everything else that there was to be seen: objects, their status, events, logs.
package leak

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"net/url"
	"strings"
	"unicode"
)

const (
	// least is the length from which on a word of a value is looked for: shorter ones are in other texts by chance.
	least = 16
	// indexed is how many bytes of a part are looked up at once.
	indexed = 8
)

// values are what must be nowhere: the parts by their first bytes, and where each is from.
type values struct {
	parts map[string]map[string]string
}

// add notes a value that is from there.
func (v *values) add(from string, value []byte) {
	for _, word := range words(value) {
		v.part(from, word[:least])
		v.part(from, word[len(word)-least:])
		for _, encoded := range encodings(word) {
			v.part(from+" in base64", encoded)
		}
	}
}

func (v *values) part(from, part string) {
	if v.parts == nil {
		v.parts = map[string]map[string]string{}
	}
	first := part[:indexed]
	if v.parts[first] == nil {
		v.parts[first] = map[string]string{}
	}
	v.parts[first][part] = from
}

// in is where the first value that is in a text is from, and what is around it. Empty: there is none.
func (v *values) in(text string) (from, around string) {
	for at := range max(0, len(text)-indexed+1) {
		for part, from := range v.parts[text[at:at+indexed]] {
			if strings.HasPrefix(text[at:], part) {
				return from, text[max(0, at-100):min(len(text), at+len(part)+60)]
			}
		}
	}
	return "", ""
}

// words are the parts of a value that nobody else may know: of a URL what one logs in with, of PEM the keys, else the long words.
func words(value []byte) []string {
	if bytes.Contains(value, []byte("-----BEGIN ")) {
		return keys(value)
	}
	text := string(value)
	if address, err := url.Parse(text); err == nil && address.Host != "" && address.User != nil {
		password, _ := address.User.Password()
		text = address.User.Username() + " " + password
	}
	long := strings.FieldsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_.+/=-", r)
	})
	var found []string
	for _, word := range long {
		if len(word) >= least {
			found = append(found, word)
		}
	}
	return found
}

// keys are the first lines of the private keys of a text in PEM: the others may have parts of the public one.
func keys(text []byte) []string {
	var found []string
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return found
		}
		if strings.Contains(block.Type, "PRIVATE KEY") {
			found = append(found, base64.StdEncoding.EncodeToString(block.Bytes)[:64])
		}
		text = rest
	}
}

// encodings are what a word looks like within base64, wherever it begins.
func encodings(word string) []string {
	var all []string
	for skipped := range 3 {
		encoded := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("-", skipped) + word[:least]))
		all = append(all, encoded[4:len(encoded)-4])
	}
	return all
}

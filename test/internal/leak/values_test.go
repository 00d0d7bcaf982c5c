package leak

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"strings"
	"testing"
)

func TestValuesAreFound(t *testing.T) {
	t.Parallel()
	const secret = "Kx9qWm7TzR4vBn2LpQ8sYd6H"
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	key := string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}))
	certificate := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(strings.Repeat("public", 40))}))
	for name, c := range map[string]struct {
		value, text string
		found       bool
	}{
		"as it is":             {secret, `{"message": "it is ` + secret + `"}`, true},
		"at the beginning":     {secret, secret, true},
		"its first half":       {secret, "it is " + secret[:16] + "...", true},
		"its last half":        {secret, "it ends with " + secret[8:], true},
		"its first letters":    {secret, "it is " + secret[:8] + "...", false},
		"in base64":            {secret, base64.StdEncoding.EncodeToString([]byte(secret)), true},
		"in base64, within":    {secret, base64.StdEncoding.EncodeToString([]byte(`{"a": "` + secret + `"}`)), true},
		"in base64, elsewhere": {secret, base64.StdEncoding.EncodeToString([]byte(`{"aa": "` + secret + `"}`)), true},
		"a password of a URL":  {"redis://livestash:" + secret + "@shop-redis.web.svc:6379/1", "AUTH " + secret, true},
		"the host of a URL":    {"redis://livestash:" + secret + "@shop-redis.web.svc.cluster.local:6379/1", "shop-redis.web.svc.cluster.local:6379", false},
		"no URL after all":     {"redis://livestash:" + secret + "#x@shop-redis", "redis://livestash:" + secret, true},
		"one of several words": {"user livestash on #" + secret + " ~live_stash:*", secret, true},
		"no secret at all":     {"user livestash on #" + secret + " ~live_stash:*", "user livestash on ~live_stash:*", false},
		"a private key":        {certificate + key, "the key is " + strings.ReplaceAll(key, "\n", `\n`), true},
		"a public certificate": {certificate + key, strings.ReplaceAll(certificate, "\n", `\n`), false},
		"nothing":              {"", "nothing", false},
		"of nothing":           {secret, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			known := values{}
			known.add("there", []byte(c.value))
			from, around := known.in(c.text)
			if found := from != ""; found != c.found || found && !strings.Contains(c.text, around) {
				t.Errorf("found %v, from %q, around %q; want %v", found, from, around, c.found)
			}
		})
	}
}

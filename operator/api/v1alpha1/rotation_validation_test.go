package v1alpha1_test

import "testing"

// Generations of generated values grow, and are not for values of the user's own.
func TestGenerationsOnlyGrow(t *testing.T) {
	cases := map[string]struct{ before, after, says string }{
		"the next cookie":          {`clustering: {}`, `clustering: {cookieGeneration: 2}`, ""},
		"a later cookie":           {`clustering: {cookieGeneration: 2}`, `clustering: {cookieGeneration: 5}`, ""},
		"the cookie before":        {`clustering: {cookieGeneration: 2}`, `clustering: {cookieGeneration: 1}`, "cookieGeneration can only grow"},
		"the first cookie":         {`clustering: {cookieGeneration: 2}`, `clustering: {}`, "cookieGeneration can only grow"},
		"a cookie of one's own":    {`clustering: {cookieGeneration: 2}`, `clustering: {cookie: {secretRef: {name: s, key: k}}}`, ""},
		"that one's generation":    {`clustering: {}`, `clustering: {cookieGeneration: 2, cookie: {secretRef: {name: s, key: k}}}`, "name another Secret or key in cookie.secretRef"},
		"no cookie":                {`clustering: {}`, `clustering: {cookieGeneration: 0}`, "greater than or equal to 1"},
		"the next key base":        {`replicas: 2`, `secretKeyBaseGeneration: 2`, ""},
		"the key base before":      {`secretKeyBaseGeneration: 2`, `secretKeyBaseGeneration: 1`, "secretKeyBaseGeneration can only grow"},
		"the first key base":       {`secretKeyBaseGeneration: 2`, `replicas: 2`, "secretKeyBaseGeneration can only grow"},
		"a key base of one's own":  {`secretKeyBaseGeneration: 2`, `secretKeyBase: {secretRef: {name: s, key: k}}`, ""},
		"that key base generation": {`replicas: 2`, `secretKeyBaseGeneration: 2, secretKeyBase: {secretRef: {name: s, key: k}}`, "is for a SECRET_KEY_BASE that the operator generates"},
	}
	spec := func(fields string) string { return "{image: a, adapter: ETS, " + fields + "}" }
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { changes(t, spec(c.before), spec(c.after), c.says) })
	}
}

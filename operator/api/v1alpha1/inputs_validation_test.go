package v1alpha1_test

import (
	"strings"
	"testing"
)

// What looks well, and could not work in a pod.
func TestInputsThatCannotWorkAreRefused(t *testing.T) {
	cases := map[string]struct {
		spec string
		says []string
	}{
		"ttl over a month":                                 {`{image: a, adapter: ETS, ttl: 2000h}`, []string{"spec.ttl", "from 1s to 720h with a unit"}},
		"ttl that no computer can count":                   {`{image: a, adapter: BrowserMemory, ttl: 99999999h}`, []string{"spec.ttl", "from 1s to 720h with a unit"}},
		"durations that no computer can count":             {`{image: a, adapter: ETS, drain: {closeTimeout: 99999999h, keepFor: 99999999h, gracePeriod: 99999999h}}`, []string{"spec.drain", "at most 1h with a unit", "at most 168h with a unit", "at most 24h with a unit"}},
		"other durations that no computer can count":       {`{image: a, adapter: ETS, agent: {readyGrace: 99999999h}, clustering: {netTickTime: 99999999h}}`, []string{"spec.agent.readyGrace", "spec.clustering.netTickTime", "whole seconds from 5s to 1h"}},
		"a rollout's durations that no computer can count": {`{image: a, adapter: ETS, rollout: {canary: {duration: 99999999h}, before: {command: [x], deadline: 99999999h}}}`, []string{"spec.rollout.canary.duration", "rollout.before.deadline must be a duration from 1s to 24h"}},
		"scraped after an age":                             {`{image: a, adapter: ETS, monitoring: {podMonitor: {enabled: true, interval: 99999999h}}}`, []string{"spec.monitoring.podMonitor.interval", "15s or 1m"}},
		"a host with a scheme":                             {`{image: a, adapter: ETS, http: {host: "https://shop.example.com"}}`, []string{"spec.http.host", "a DNS name alone"}},
		"a host with a port":                               {`{image: a, adapter: ETS, http: {host: "shop.example.com:8080"}}`, []string{"spec.http.host", "a DNS name alone"}},
		"a host with a line break":                         {`{image: a, adapter: ETS, http: {host: "shop.example.com\n"}}`, []string{"spec.http.host", "a DNS name alone"}},
		"a host with an umlaut":                            {`{image: a, adapter: ETS, http: {host: "bücher.example"}}`, []string{"spec.http.host", "its xn-- form"}},
		"readiness path with another header":               {`{image: a, adapter: ETS, http: {readinessPath: "/healthz\r\nX-Other: 1"}}`, []string{"spec.http.readinessPath", "without spaces"}},
		"readiness path with a fragment":                   {`{image: a, adapter: ETS, http: {readinessPath: "/healthz#here"}}`, []string{"spec.http.readinessPath", "without spaces"}},
		"extra flags of two lines":                         {`{image: a, adapter: ETS, beam: {extraFlags: "+A 4\n-kernel shell_history enabled"}}`, []string{"spec.beam.extraFlags", "one line"}},
		"extra flags with a quote that does not end":       {`{image: a, adapter: ETS, beam: {extraFlags: "-kernel logger_level \"debug"}}`, []string{"spec.beam.extraFlags", "quotes that end"}},
		"extra flags with a backslash":                     {`{image: a, adapter: ETS, beam: {extraFlags: '-kernel logger_level \debug'}}`, []string{"spec.beam.extraFlags", "no backslash"}},
		"extra flags with a cookie behind a tab":           {`{image: a, adapter: ETS, beam: {extraFlags: "+A 4\t-setcookie\tx"}}`, []string{"spec.beam.extraFlags", "must not set the node name, the cookie"}},
		"extra flags with a cookie in quotes":              {`{image: a, adapter: ETS, beam: {extraFlags: '"-setcookie" x'}}`, []string{"spec.beam.extraFlags", "must not set the node name, the cookie"}},
		"extra flags that evaluate code":                   {`{image: a, adapter: ETS, beam: {extraFlags: "-eval halt()."}}`, []string{"spec.beam.extraFlags", "evaluate code"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { refused(t, "", c.spec, c.says...) })
	}
}

func TestInputsThatWorkAreAccepted(t *testing.T) {
	cases := map[string]string{
		"seconds of many days":  `{image: a, adapter: ETS, ttl: 604800s, drain: {keepFor: 604800s, gracePeriod: 300000ms}}`,
		"a host":                `{image: a, adapter: ETS, http: {host: shop.xn--bcher-kva.example, readinessPath: "/health/z?all=1&a=%20"}}`,
		"an address for a host": `{image: a, adapter: ETS, http: {host: 203.0.113.7, readinessPath: ""}}`,
		"extra flags":           `{image: a, adapter: ETS, beam: {extraFlags: "+A 4 -kernel shell_history enabled -kernel logger '[]' -x \"[''a@b'']\" -shared -names 3"}}`,
	}
	for name, spec := range cases {
		t.Run(name, func(t *testing.T) {
			if refusal := apply(t, "", spec); refusal != nil {
				t.Errorf("it was refused:\n%v", refusal)
			}
		})
	}
}

// refused checks that the API server refuses a LiveStashCluster, and says all of that.
func refused(t *testing.T, object, spec string, says ...string) {
	t.Helper()
	refusal := apply(t, object, spec)
	if refusal == nil {
		t.Fatal("it was accepted")
	}
	for _, part := range says {
		if !strings.Contains(refusal.Error(), part) {
			t.Errorf("the refusal does not say %q:\n%v", part, refusal)
		}
	}
	if strings.Contains(refusal.Error(), "type conversion error") {
		t.Errorf("the refusal speaks of types:\n%v", refusal)
	}
}

package fleet

import (
	"cmp"
	"fmt"
	"os"
	"time"
)

// Options are what a fleet is made of.
type Options struct {
	// Image and NextImage are the application under two tags, so that a rollout changes nothing but the image's name.
	Image, NextImage string
	// ClientImage holds the users.
	ClientImage string
	// Tag and NextTag are those of the operator's image.
	Tag, NextTag string
	// TTL is how long a stash lives.
	TTL time.Duration
	// Agent is spec.agent.enabled, TLS is spec.clustering.tls.enabled.
	Agent, TLS bool
	// Shadow is spec.shadow.enabled, with ETS.
	Shadow bool
	// Redis is who runs Redis: Managed or Operated.
	Redis string
	// Persistence is whether Redis keeps stashes on a volume.
	Persistence bool
	// Surge and MaxLoadFactor are spec.rollout's. Empty: the API's defaults.
	Surge, MaxLoadFactor string
	// HandOff is spec.drain.handOffTimeout. 0: the API's default.
	HandOff time.Duration
	// PayloadKeys is how much a user stashes. 0: the application's default.
	PayloadKeys int
	// OnNode is whether the pods' processes are on this machine.
	OnNode bool
}

// Defaults are what the Makefile builds, as it says in the environment.
func Defaults() Options {
	o := Options{
		Agent: true, Persistence: true, Redis: Managed, TTL: 10 * time.Minute,
		Tag:    cmp.Or(os.Getenv("VERSION"), "0.1.0"),
		OnNode: cmp.Or(os.Getenv("CLUSTER"), "local") == "local",
	}
	o.NextTag = o.Tag + "-next"
	o.ClientImage = image("survival", o.Tag)
	o.Workload("otp")
	return o
}

// Workload sets the application: otp or phoenix.
func (o *Options) Workload(name string) {
	o.Image, o.NextImage = image("workload-"+name, o.Tag), image("workload-"+name, o.NextTag)
}

func image(name, tag string) string {
	return fmt.Sprintf("%s/livestash-%s:%s", cmp.Or(os.Getenv("REGISTRY"), "ghcr.io/livestash-dev"), name, tag)
}

// Shadows is whether other pods hold copies of a fleet's stashes.
func (o *Options) Shadows(adapter string) bool { return o.Shadow && o.Agent && adapter == "ETS" }

// Young is how old a stash may be that is lost with its pod, though other pods hold copies: an interval of spec.shadow and a second.
// 0: there are no copies.
func (o *Options) Young(adapter string) time.Duration {
	if !o.Shadows(adapter) {
		return 0
	}
	return 2 * time.Second
}

package podagent

import (
	"log"
	"os"
	"strconv"
	"strings"
)

// Settings are what the pod's environment says.
type Settings struct {
	// Node is the name of this pod's node, App what stands before the @ in every node's name (RELEASE_NODE, LIBCLUSTER_APP).
	Node, App string
	// Query is the DNS name whose SRV records list the pods (LIVESTASH_PEERS_QUERY).
	Query string

	// NetTickTime is the kernel's net_ticktime in seconds (LIVESTASH_NET_TICKTIME, default 20).
	NetTickTime int
	// PreventOverlappingPartitions is the kernel's prevent_overlapping_partitions, true or false; empty: Erlang's own default
	// (LIVESTASH_PREVENT_OVERLAPPING_PARTITIONS).
	PreventOverlappingPartitions string
	// SyncTimeout is for how many milliseconds a booting node waits for its peers (LIVESTASH_SYNC_TIMEOUT_MS, default 3000).
	SyncTimeout int

	// AppPort is the application's HTTP port (PORT, default 4000).
	AppPort int
	// ReadinessPath is asked on AppPort besides the agent; empty: nothing is (LIVESTASH_READINESS_PATH).
	ReadinessPath string
	// AgentPort is where the agent listens (LIVESTASH_AGENT_PORT, default 9568).
	AgentPort int
	// RedisURL is the fleet's Redis (LIVE_STASH_REDIS_URL, or the content of the file that LIVE_STASH_REDIS_URL_FILE names),
	// RedisCACertFile the file with the authorities of its certificate (LIVE_STASH_REDIS_CACERTFILE); empty with other adapters.
	RedisURL, RedisCACertFile string
	// Version is this program's own, which is the agent's.
	Version string
	// ProbePort is where the readiness probe is answered (LIVESTASH_PROBE_PORT, default AgentPort + 1).
	ProbePort int
}

// FromEnvironment reads the settings with getenv. A bad value is the default and one line in the log: a pod that boots
// is worth more than one that does not.
func FromEnvironment(getenv func(string) string, logger *log.Logger) Settings {
	number := func(name string, fallback, highest int) int {
		text := getenv(name)
		if text == "" {
			return fallback
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > highest {
			logger.Printf("%s is %q, but must be a number from 1 to %d; using %d", name, text, highest, fallback)
			return fallback
		}
		return n
	}
	const (
		day         = 24 * 60 * 60
		highestPort = 65535
	)
	settings := Settings{
		Node:        getenv("RELEASE_NODE"),
		App:         getenv("LIBCLUSTER_APP"),
		Query:       getenv("LIVESTASH_PEERS_QUERY"),
		NetTickTime: number("LIVESTASH_NET_TICKTIME", 20, day),
		SyncTimeout: number("LIVESTASH_SYNC_TIMEOUT_MS", 3000, day*1000),
		AppPort:     number("PORT", 4000, highestPort),
		AgentPort:   number("LIVESTASH_AGENT_PORT", 9568, highestPort-1),
	}
	settings.ProbePort = number("LIVESTASH_PROBE_PORT", settings.AgentPort+1, highestPort)
	settings.RedisURL, settings.RedisCACertFile = redisURL(getenv, logger), getenv("LIVE_STASH_REDIS_CACERTFILE")
	switch prevent := getenv("LIVESTASH_PREVENT_OVERLAPPING_PARTITIONS"); prevent {
	case "", "true", "false":
		settings.PreventOverlappingPartitions = prevent
	default:
		logger.Printf("LIVESTASH_PREVENT_OVERLAPPING_PARTITIONS is %q, but must be true or false; using Erlang's default", prevent)
	}
	settings.ReadinessPath = getenv("LIVESTASH_READINESS_PATH")
	if !isPath(settings.ReadinessPath) {
		logger.Printf("LIVESTASH_READINESS_PATH is %q, but must start with / and hold no spaces; not asking it", settings.ReadinessPath)
		settings.ReadinessPath = ""
	}
	return settings
}

// redisURL is from a file, where one is named.
func redisURL(getenv func(string) string, logger *log.Logger) string {
	file := getenv("LIVE_STASH_REDIS_URL_FILE")
	if file == "" {
		return getenv("LIVE_STASH_REDIS_URL")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		logger.Printf("The file in LIVE_STASH_REDIS_URL_FILE cannot be read, so Redis is not looked at: %v", err)
	}
	return string(text)
}

// isPath is whether text can stand in a request line as it is.
func isPath(text string) bool {
	unfit := func(r rune) bool { return r <= ' ' || r > '~' }
	return text == "" || text[0] == '/' && !strings.ContainsFunc(text, unfit)
}

package redisadmin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/livestash-dev/livestash/operator/internal/plausible"
	"github.com/livestash-dev/livestash/operator/internal/succession"
)

const (
	// primaryKey is among the stashes, says which server they are of last, and goes with them wherever they are copied to. It never
	// ends, so that a full memory does not drop it. The fleet's user cannot reach it.
	primaryKey = "livestash-operator:primary"

	// replicationUser is whom a server that joins another one logs in as. Only the operator makes it, in servers that run: one that
	// comes back empty at the same address admits nobody, or its emptiness would be copied.
	replicationUser = "replication"

	// failOverTimeout is how long writes may wait until the other server has them all. It is given up then, and nothing has happened.
	failOverTimeout = 2 * time.Second
)

// rights are what the operator allows itself for a hand-over. It may change every user's rights, so that servers that an older operator
// has started take part too.
var rights = []any{"+info", "+replicaof", "+failover", "+config|set", "+client|kill", "~" + primaryKey, "+get", "+set"}

// Look asks a server about itself.
func (c Client) Look(ctx context.Context, login Login) (succession.Says, error) {
	var seen succession.Says
	err := c.ask(ctx, login, "looking at", func(client *redis.Client) error {
		text, err := client.Do(ctx, "INFO").Text()
		if err != nil {
			return err
		}
		seen = readInfo(text)
		seen.Primary, err = client.Get(ctx, primaryKey).Result()
		switch {
		case errors.Is(err, redis.Nil):
			return nil // it has none
		case redis.IsLoadingError(err) && seen.Follows != "":
			return nil // it does not have them all yet
		}
		// One that still reads its file has not come up empty.
		seen.Stashes = max(0, seen.Stashes-1)
		return err
	})
	return seen, err
}

// readInfo reads what INFO says.
func readInfo(text string) succession.Says {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			fields[name] = value
		}
	}
	number := func(text string) int64 {
		value, err := strconv.ParseInt(text, 10, 64)
		if err != nil || !plausible.Counts(value) {
			return 0
		}
		return value
	}
	keys, _, _ := strings.Cut(strings.TrimPrefix(fields["db0"], "keys="), ",")
	seen := succession.Says{Stashes: number(keys), Used: number(fields["used_memory"]), Max: number(fields["maxmemory"])}
	seen.Line = fields["master_replid"]
	if fields["role"] == "slave" {
		seen.Follows = fields["master_host"]
		seen.InSync = fields["master_link_status"] == "up"
		// Until its file has been written anew, which is tried again when it fails, it is what the server had when it started.
		writing := fields["aof_rewrite_in_progress"] == "1" || fields["aof_rewrite_scheduled"] == "1"
		seen.Filed = seen.InSync && !writing
		seen.FileFails = fields["aof_last_bgrewrite_status"] == "err" && writing || fields["aof_last_write_status"] == "err"
	} else if took := fields["master_replid2"]; strings.Trim(took, "0") != "" {
		seen.Took = took
	}
	state := fields["master_failover_state"]
	seen.FailingOver = state != "" && state != "no-failover"
	return seen
}

// Loading is whether a server reads its file, and says nothing else until it has: it has started anew.
func Loading(err error) bool { return redis.IsLoadingError(err) }

// Refused is whether a server has refused the operator's login.
func Refused(err error) bool { return redis.IsAuthError(err) }

// SetPrimary writes into the stashes whose they are.
func (c Client) SetPrimary(ctx context.Context, login Login, name string) error {
	return c.ask(ctx, login, "naming the primary in", func(client *redis.Client) error {
		return client.Set(ctx, primaryKey, name, 0).Err()
	})
}

// Follow makes a server drop what it has and copy another one's stashes, with a password that both are told. Doing it again changes
// nothing.
func (c Client) Follow(ctx context.Context, login, primary Login, password string) error {
	err := c.ask(ctx, primary, "letting another server copy", func(client *redis.Client) error {
		// Copying must not begin with the wait for further replicas.
		return errors.Join(client.Do(ctx, "CONFIG", "SET", "repl-diskless-sync-delay", 0).Err(), admitReplica(ctx, client, password))
	})
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(primary.Address)
	if err != nil {
		return err
	}
	return c.ask(ctx, login, "joining", func(client *redis.Client) error {
		// When they change places, the other one logs in here.
		if err := admitReplica(ctx, client, password); err != nil {
			return err
		}
		return client.Do(ctx, "REPLICAOF", host, port).Err()
	})
}

// admitReplica lets another server copy this one, and makes this one log in so elsewhere.
func admitReplica(ctx context.Context, client *redis.Client, password string) error {
	return errors.Join(
		client.Do(ctx, "ACL", "SETUSER", replicationUser, "on", ">"+password, "+psync", "+replconf", "+ping").Err(),
		client.Do(ctx, "CONFIG", "SET", "masteruser", replicationUser).Err(),
		client.Do(ctx, "CONFIG", "SET", "masterauth", password).Err(),
	)
}

// FailOver lets the server that follows this one take its place, and returns when it has. The server does it itself: it holds up writes
// until the other one has every write that was acknowledged, and refuses them from then on. Then its clients are sent away.
func (c Client) FailOver(ctx context.Context, login Login) error {
	return c.ask(ctx, login, "failing over", func(client *redis.Client) error {
		if err := client.Do(ctx, "FAILOVER", "TIMEOUT", failOverTimeout.Milliseconds()).Err(); err != nil {
			return err
		}
		if err := untilFollowing(ctx, client); err != nil {
			return err
		}
		return sendAway(ctx, client)
	})
}

// untilFollowing waits until the server follows the one that has taken its place.
func untilFollowing(ctx context.Context, client *redis.Client) error {
	for end := time.Now().Add(2 * failOverTimeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		text, err := client.Do(ctx, "INFO", "replication").Text()
		if err != nil {
			return err
		}
		switch seen := readInfo(text); {
		case seen.FailingOver:
		case seen.Follows != "":
			return nil
		default:
			return sentence("the other server had not all of its stashes in time, and the server has taken writes again")
		}
	}
	return sentence("it is not done after twice its time")
}

// sendAway closes the connections of all clients, who find the server that serves now when they come back.
func sendAway(ctx context.Context, client *redis.Client) error {
	return client.Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err()
}

// Abort ends a fail-over that nobody is there any more to finish.
func (c Client) Abort(ctx context.Context, login Login) error {
	return c.ask(ctx, login, "ending the fail-over of", func(client *redis.Client) error { return client.Do(ctx, "FAILOVER", "ABORT").Err() })
}

// Promote makes a server take writes, whose primary is gone.
func (c Client) Promote(ctx context.Context, login Login) error {
	return c.ask(ctx, login, "promoting", func(client *redis.Client) error {
		return client.Do(ctx, "REPLICAOF", "NO", "ONE").Err()
	})
}

// ask talks to a server, in which the operator has given itself the rights that a hand-over needs.
func (c Client) ask(ctx context.Context, login Login, doing string, talk func(*redis.Client) error) error {
	client := c.connect(login)
	defer func() { _ = client.Close() }()
	err := client.Do(ctx, append([]any{"ACL", "SETUSER", login.User}, rights...)...).Err()
	if err == nil {
		err = talk(client)
	}
	if err != nil {
		return fmt.Errorf("%s Redis at %s: %w", doing, login.Address, unquoted(err))
	}
	return nil
}

package podagent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	refreshInterval = 5 * time.Second
	retryInterval   = 200 * time.Millisecond
	// tryTime is less than a lost DNS packet costs by the resolver's own clock.
	tryTime = 1500 * time.Millisecond

	// maxAtom is the length of Erlang's longest atom, which a node's name is. A longer one would stop the boot.
	maxAtom = 255
	// maxPeerList is in bytes. Linux refuses to start a program with an argument of 128 KiB.
	maxPeerList = 100 << 10
)

// nodeName is what may stand between quotes in the file of arguments.
var nodeName = regexp.MustCompile(`^[a-zA-Z0-9_@.-]+$`)

// bootArgs is the file vm.args, with which the BEAM starts: it names the peers to connect before applications start.
type bootArgs struct {
	file     string
	settings Settings
	resolver *net.Resolver
	logger   *log.Logger

	written []byte
	failing bool
}

func newBootArgs(dir string, settings Settings, resolver *net.Resolver, logger *log.Logger) *bootArgs {
	return &bootArgs{file: filepath.Join(dir, "vm.args"), settings: settings, resolver: resolver, logger: logger}
}

// install writes the file whatever DNS says: the BEAM does not boot without it. That a pod starts anew with its volume is
// possible, so there may be a file from better days, which is kept when DNS fails.
func (b *bootArgs) install(ctx context.Context) error {
	peers, err := b.peersWithin(ctx)
	if err != nil {
		if _, statErr := os.Stat(b.file); statErr == nil {
			b.logger.Printf("Leaving %s as it is: %v", b.file, err)
			return nil
		}
		b.logger.Printf("Starting without peers, which the agent connects later: %v", err)
	}
	return b.write(peers)
}

// peersWithin tries until ctx ends. That the name does not exist is an answer: this is the first pod, and asking again
// would be in vain, because resolvers remember it for up to half a minute.
func (b *bootArgs) peersWithin(ctx context.Context) ([]string, error) {
	for {
		peers, err := b.peers(ctx)
		var dnsError *net.DNSError
		if err == nil || errors.Is(err, errNoQuery) || errors.As(err, &dnsError) && dnsError.IsNotFound {
			return peers, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(retryInterval):
		}
	}
}

// refresh keeps the file up to date until ctx ends, for a BEAM that restarts inside a living pod.
func (b *bootArgs) refresh(ctx context.Context, every time.Duration) {
	for {
		b.refreshOnce(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}

// refreshOnce leaves the file alone when DNS fails: peers of a while ago are better than none.
func (b *bootArgs) refreshOnce(ctx context.Context) {
	peers, err := b.peers(ctx)
	if err == nil {
		err = b.write(peers)
	}
	if err != nil && !b.failing && ctx.Err() == nil {
		b.logger.Printf("Leaving %s as it is: %v", b.file, err)
	}
	if err == nil && b.failing {
		b.logger.Printf("Keeping %s up to date again", b.file)
	}
	b.failing = err != nil
}

var errNoQuery = errors.New("LIVESTASH_PEERS_QUERY or LIBCLUSTER_APP is not set")

// peers are the nodes of the pods that SRV records name, sorted, without this one.
func (b *bootArgs) peers(ctx context.Context) ([]string, error) {
	if b.settings.Query == "" || b.settings.App == "" {
		return nil, errNoQuery
	}
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	// The final dot keeps the resolver from trying its search list first.
	_, records, err := b.resolver.LookupSRV(ctx, "", "", strings.TrimSuffix(b.settings.Query, ".")+".")
	// With some good records and some bad ones, there are both records and an error.
	if err != nil && len(records) == 0 {
		return nil, fmt.Errorf("cannot find the peers: %w", err)
	}
	var peers []string
	for _, record := range records {
		peer := b.settings.App + "@" + strings.TrimSuffix(record.Target, ".")
		if peer != b.settings.Node && len(peer) <= maxAtom && nodeName.MatchString(peer) {
			peers = append(peers, peer)
		}
	}
	slices.Sort(peers)
	return slices.Compact(peers), nil
}

func (b *bootArgs) write(peers []string) error {
	content := b.render(peers)
	if bytes.Equal(content, b.written) {
		return nil
	}
	if err := replaceFile(b.file, content); err != nil {
		return cannotWrite(filepath.Dir(b.file), err)
	}
	b.written = content
	b.logger.Printf("Wrote %s with %d peers", b.file, len(peers))
	return nil
}

// render is the file's content. The double quotes are for the emulator, which splits the file into arguments, the single
// ones for Erlang, which reads the argument as a term.
func (b *bootArgs) render(peers []string) []byte {
	var content bytes.Buffer
	if list := peerList(peers); list != "" {
		fmt.Fprintf(&content, "-kernel sync_nodes_optional \"[%s]\"\n", list)
	}
	fmt.Fprintf(&content, "-kernel sync_nodes_timeout %d\n", b.settings.SyncTimeout)
	fmt.Fprintf(&content, "-kernel net_ticktime %d\n", b.settings.NetTickTime)
	if prevent := b.settings.PreventOverlappingPartitions; prevent != "" {
		fmt.Fprintf(&content, "-kernel prevent_overlapping_partitions %s\n", prevent)
	}
	return content.Bytes()
}

// peerList leaves out peers that an argument has no room for: the agent connects them later.
func peerList(peers []string) string {
	var list strings.Builder
	for _, peer := range peers {
		if list.Len()+len(peer)+len(",''") > maxPeerList {
			break
		}
		if list.Len() > 0 {
			list.WriteByte(',')
		}
		list.WriteString("'" + peer + "'")
	}
	return list.String()
}

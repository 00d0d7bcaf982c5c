package reference

import (
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/livestash-dev/livestash/operator/internal/cli"
	"github.com/livestash-dev/livestash/operator/internal/render/rendertest"
)

// The page in the repository is the one that `make generate` writes.
func TestPage(t *testing.T) {
	page := Markdown(cli.NewCommand(genericiooptions.NewTestIOStreamsDiscard(), "test"))
	rendertest.Golden(t, "../../../../../docs/reference/kubectl-livestash.md", []byte(page))
}

package reconcile

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RefusedPod is what was said last, not before a time, when one of the owners, all of a kind, was to get a pod and got none, for example a quota's
// words. Only events tell that. Empty: nothing, or nobody may look.
func RefusedPod(ctx context.Context, live client.Reader, namespace, kind string, since time.Time, owners ...types.UID) (string, error) {
	events := &corev1.EventList{}
	err := live.List(ctx, events, client.InNamespace(namespace), client.MatchingFields{"involvedObject.kind": kind, "reason": "FailedCreate"})
	if apierrors.IsForbidden(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("looking for what was refused: %w", err)
	}
	said := ""
	for _, event := range events.Items {
		if slices.Contains(owners, event.InvolvedObject.UID) && !event.LastTimestamp.Time.Before(since) {
			said, since = event.Message, event.LastTimestamp.Time
		}
	}
	return said, nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	// awaitFor is how long an operator that starts waits for the API server. It ends before the liveness probe has given it up.
	awaitFor = 45 * time.Second
	// askEvery is how often it asks meanwhile, and askTime how long one answer may take.
	askEvery = time.Second
	askTime  = 10 * time.Second
)

// awaitAPIServer waits until the API server answers, whatever it says. An operator that ended instead would be started again later and later,
// and would be away for longer than the API server was.
func awaitAPIServer(ctx context.Context, config *rest.Config) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	target, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return err
	}
	var why error
	err = wait.PollUntilContextTimeout(ctx, askEvery, awaitFor, true, func(ctx context.Context) (bool, error) {
		told := why != nil
		if why = answers(ctx, client, target.JoinPath("version").String()); why != nil && !told {
			ctrl.Log.Info("Waiting for the API server", "why", why.Error())
		}
		return why == nil, nil
	})
	if err != nil {
		return fmt.Errorf("the API server does not answer: %w", errors.Join(err, why))
	}
	return nil
}

// answers is nil when there is an answer that does not ask to come later.
func answers(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	_ = answer.Body.Close() // nobody reads it
	if answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("it answers %s", answer.Status)
	}
	return nil
}

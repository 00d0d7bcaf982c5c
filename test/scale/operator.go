package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

// operator is one that runs.
type operator struct {
	*process
	metrics, health string
}

// startOperator starts the operator as the account that the kubeconfig is of, with its output in that file of the run.
func (b *bench) startOperator(kubeconfig, log string) (*operator, error) {
	metrics, err := freeAddress()
	if err != nil {
		return nil, err
	}
	health, err := freeAddress()
	if err != nil {
		return nil, err
	}
	process, err := start(b.manager, append([]string{
		"--leader-election-namespace=" + operatorNamespace,
		"--metrics-bind-address=" + metrics,
		"--metrics-secure=false",
		"--health-probe-bind-address=" + health,
	}, b.operatorArgs...), environment("KUBECONFIG="+kubeconfig, skewVariable+"="+b.skewFile()), filepath.Join(b.dir, log))
	if err != nil {
		return nil, fmt.Errorf("start the operator: %w", err)
	}
	return &operator{process: process, metrics: metrics, health: health}, nil
}

// writeOperatorKubeconfig copies the kubeconfig with a token of the operator's account in place of its user, and if there is one with what
// stands between the operator and the API server.
func writeOperatorKubeconfig(ctx context.Context, client kubernetes.Interface, from, to string, between *clientcmdapi.Cluster) error {
	token, err := client.CoreV1().ServiceAccounts(operatorNamespace).CreateToken(ctx, operatorAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](24 * 60 * 60)},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("get a token for the operator: %w", err)
	}
	config, err := clientcmd.LoadFromFile(from)
	if err != nil {
		return err
	}
	for user := range config.AuthInfos {
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	for name := range config.Clusters {
		if between != nil {
			config.Clusters[name] = between
		}
	}
	return clientcmd.WriteToFile(*config, to)
}

// waitHealthy waits until the operator's health check answers.
func (o *operator) waitHealthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		if _, err := get(ctx, "http://"+o.health+"/readyz"); err == nil {
			return nil
		}
		select {
		case <-o.ended:
			return fmt.Errorf("the operator ended:\n%s", o.tail())
		case <-ctx.Done():
			return fmt.Errorf("the operator is not ready: %w\n%s", ctx.Err(), o.tail())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// leads is whether the operator says that it leads. One that does not answer does not.
func (o *operator) leads(ctx context.Context) bool { return o.says(ctx, leaderMetric+" 1") }

// follows is whether the operator says that it does not lead.
func (o *operator) follows(ctx context.Context) bool { return o.says(ctx, leaderMetric+" 0") }

const leaderMetric = `leader_election_master_status{name="livestash-operator"}`

// says is whether that is in the operator's metrics.
func (o *operator) says(ctx context.Context, words string) bool {
	text, err := get(ctx, "http://"+o.metrics+"/metrics")
	return err == nil && strings.Contains(text, words)
}

// get is what a URL answers with, within a second.
func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport, Timeout: time.Second}).Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answers %s", url, response.Status)
	}
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// freeAddress is an address of this machine alone that nothing listens on.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String(), nil
}

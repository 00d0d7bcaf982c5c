package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

// startOperator starts the operator as the account it is installed with, and waits until its health check answers.
func startOperator(ctx context.Context, opts options, dir, adminKubeconfig string, client kubernetes.Interface) (*process, error) {
	kubeconfig := filepath.Join(dir, "operator.kubeconfig")
	if err := writeOperatorKubeconfig(ctx, client, adminKubeconfig, kubeconfig); err != nil {
		return nil, err
	}
	metrics, err := freeAddress()
	if err != nil {
		return nil, err
	}
	health, err := freeAddress()
	if err != nil {
		return nil, err
	}
	operator, err := start(filepath.Join(opts.bin, "manager"), append([]string{
		"--leader-election-namespace=" + operatorNamespace,
		"--metrics-bind-address=" + metrics,
		"--metrics-secure=false",
		"--health-probe-bind-address=" + health,
	}, opts.operatorArgs...), environment("KUBECONFIG="+kubeconfig), filepath.Join(dir, "operator.log"))
	if err != nil {
		return nil, fmt.Errorf("start the operator: %w", err)
	}
	if err := waitHealthy(ctx, "http://"+health+"/readyz", operator); err != nil {
		operator.stop()
		return nil, err
	}
	return operator, nil
}

// writeOperatorKubeconfig copies the kubeconfig with a token of the operator's account in place of its user.
func writeOperatorKubeconfig(ctx context.Context, client kubernetes.Interface, from, to string) error {
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
	return clientcmd.WriteToFile(*config, to)
}

func waitHealthy(ctx context.Context, url string, operator *process) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		if isHealthy(ctx, url) {
			return nil
		}
		select {
		case <-operator.ended:
			return fmt.Errorf("the operator ended:\n%s", operator.tail())
		case <-ctx.Done():
			return fmt.Errorf("the operator is not ready: %w\n%s", ctx.Err(), operator.tail())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func isHealthy(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	transport := &http.Transport{DisableKeepAlives: true}
	response, err := (&http.Client{Transport: transport, Timeout: time.Second}).Do(request)
	if err != nil {
		return false
	}
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode == http.StatusOK
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

// Command probe looks at a cluster from inside a pod, for the integration test.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

const timeout = 5 * time.Second

func main() {
	if len(os.Args) < 2 {
		fail("usage: probe serve | a NAME | srv NAME | get URL | dial ADDRESS | read FILE | write FILE TEXT")
	}
	commands := map[string]func(args []string) (string, error){
		"serve": serve, "a": lookupA, "srv": lookupSRV, "get": get, "dial": dial, "read": read, "write": write,
	}
	run, known := commands[os.Args[1]]
	if !known {
		fail("unknown command " + os.Args[1])
	}
	answer, err := run(os.Args[2:])
	if err != nil {
		fail(err.Error())
	}
	fmt.Println(answer)
}

func fail(message string) {
	fmt.Fprintln(os.Stderr, message)
	os.Exit(1)
}

// largeAnswer is more than fits into one packet, or into a hundred.
const largeAnswer = 200_000

// serve answers with the pod's name, at /large with much of it. It is never ready when the variable NEVER_READY is set.
func serve([]string) (string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", err
	}
	http.HandleFunc("/", func(answer http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(answer, name) })
	http.HandleFunc("/ready", func(answer http.ResponseWriter, _ *http.Request) {
		if os.Getenv("NEVER_READY") != "" {
			answer.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	http.HandleFunc("/large", func(answer http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(answer, strings.Repeat(name, largeAnswer/len(name)))
	})
	fmt.Println("serving as", name)
	server := &http.Server{Addr: ":8080", ReadHeaderTimeout: timeout}
	return "", server.ListenAndServe()
}

func lookupA(args []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, args[0])
	slices.Sort(addresses)
	return strings.Join(addresses, " "), err
}

func lookupSRV(args []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, records, err := net.DefaultResolver.LookupSRV(ctx, "", "", args[0])
	var targets []string
	for _, record := range records {
		targets = append(targets, fmt.Sprintf("%s:%d", record.Target, record.Port))
	}
	slices.Sort(targets)
	return strings.Join(targets, " "), err
}

func get(args []string) (string, error) {
	client := http.Client{Timeout: timeout}
	answer, err := client.Get(args[0])
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	return string(body), err
}

func dial(args []string) (string, error) {
	connection, err := net.DialTimeout("tcp", args[0], timeout)
	if err != nil {
		return "", err
	}
	return "connected", connection.Close()
}

func read(args []string) (string, error) {
	content, err := os.ReadFile(args[0])
	return string(content), err
}

func write(args []string) (string, error) {
	return "written", os.WriteFile(args[0], []byte(args[1]), 0o644)
}

package main

import (
	"fmt"
	"net/http"
	"os"
	"time"
)

// check is the exit code for whether url answers 200 within ten seconds. The image has no shell and no curl.
func check(url string) int {
	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Get(url)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		fmt.Fprintln(os.Stderr, url, "answered", response.Status)
		return 1
	}
	fmt.Println(url, "answered", response.Status)
	return 0
}

module github.com/livestash-dev/livestash/loadtests/k6/test

go 1.26

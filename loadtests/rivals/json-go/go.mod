module github.com/livestash-dev/livestash/loadtests/rivals/json-go

go 1.26

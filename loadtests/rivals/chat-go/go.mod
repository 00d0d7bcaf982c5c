module github.com/livestash-dev/livestash/loadtests/rivals/chat-go

go 1.26

require github.com/coder/websocket v1.8.15

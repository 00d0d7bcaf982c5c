import initLiveStash from "/vendor/live-stash.js";

const csrfToken = document.querySelector("meta[name='csrf-token']").getAttribute("content");

const longPoll = new URLSearchParams(location.search).get("transport") === "longpoll";

const liveSocket = new LiveView.LiveSocket("/live", Phoenix.Socket, {
  transport: longPoll ? Phoenix.LongPoll : WebSocket,
  params: initLiveStash({ _csrf_token: csrfToken }),
});

liveSocket.connect();
window.liveSocket = liveSocket;

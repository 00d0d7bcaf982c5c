import initLiveStash from "/vendor/live-stash.js";

const csrfToken = document.querySelector("meta[name='csrf-token']").getAttribute("content");

const liveSocket = new LiveView.LiveSocket("/live", Phoenix.Socket, {
  params: initLiveStash({ _csrf_token: csrfToken }),
});

liveSocket.connect();
window.liveSocket = liveSocket;

// A small LiveView client for people who look at the page, and for tests in a browser: joins, sends clicks, shows what comes
// back, reconnects. Load tests and phoenix.js speak to the same socket; this file is not part of what they measure.
"use strict";

const main = document.querySelector("[data-phx-main]");
const connection = document.getElementById("connection");
const csrf = document.querySelector("meta[name='csrf-token']").content;
const topic = "lv:" + main.id;

let socket, ref = 0, mounts = 0, attempts = 0, heartbeat;
let liveStash = {}, slots = {}, statics = [];

function send(joinRef, to, event, payload) {
  socket.send(JSON.stringify([joinRef, String(++ref), to, event, payload]));
}

function draw(diff) {
  if (diff.p) statics = diff.p[diff.s];
  for (const [slot, text] of Object.entries(diff)) if (/^\d+$/.test(slot)) slots[slot] = text;
  for (const [name, detail] of diff.e || []) remember(name, detail);
  main.innerHTML = statics.reduce((html, part, i) => html + part + (slots[i] ?? ""), "");
}

function remember(name, detail) {
  if (name === "live-stash:init-browser-memory") liveStash = { stashedState: null };
  else if (name === "live-stash:stash-state") liveStash.stashedState = detail.assigns;
  else if (name.startsWith("live-stash:init-")) liveStash = detail;
}

function receive(message) {
  const [, , , event, payload] = JSON.parse(message.data);
  if (event === "phx_error" || event === "phx_close") return socket.close();
  if (event !== "phx_reply") return;
  // A page whose tokens are too old has to be loaded again.
  if (payload.status === "error") return location.reload();
  const { rendered, diff } = payload.response;
  if (rendered || diff) draw(rendered || diff);
  if (rendered) { mounts++; attempts = 0; connected(true); }
}

function connected(is) {
  connection.textContent = is ? "connected" : "not connected";
  main.classList.toggle("phx-connected", is);
}

// Like phoenix.js, a page that nobody looks at waits until somebody does.
function reconnect() {
  if (document.hidden) document.addEventListener("visibilitychange", connect, { once: true });
  else connect();
}

function connect() {
  const url = new URL("/live/websocket", location.href);
  url.protocol = url.protocol.replace("http", "ws");
  url.search = new URLSearchParams({ _csrf_token: csrf, vsn: "2.0.0" });
  // As phoenix.js does with nested parameters: a stash that is in the browser makes the address long.
  for (const [key, value] of Object.entries(liveStash)) url.searchParams.append(`liveStash[${key}]`, value ?? "");
  socket = new WebSocket(url);
  socket.onmessage = receive;
  socket.onopen = () => {
    heartbeat = setInterval(() => send(null, "phoenix", "heartbeat", {}), 30000);
    send("1", topic, "phx_join", {
      url: location.href,
      params: { _csrf_token: csrf, _mounts: mounts, _mount_attempts: attempts, liveStash },
      session: main.dataset.phxSession, static: main.dataset.phxStatic, sticky: false,
    });
  };
  socket.onclose = () => {
    clearInterval(heartbeat);
    connected(false);
    setTimeout(reconnect, [10, 50, 100, 150, 200, 250, 500, 1000, 2000][attempts++] || 5000);
  };
}

main.addEventListener("click", (click) => {
  const event = click.target.getAttribute("phx-click");
  if (event && socket.readyState === WebSocket.OPEN) send("1", topic, "event", { type: "click", event, value: {} });
});

connect();

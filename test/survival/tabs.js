// Notes what the user of a LiveView's page would see, in the tab's sessionStorage, which outlives the page.
"use strict";
(() => {
  const s = sessionStorage;
  s.loads = +(s.loads ?? 0) + 1;
  s.outages ??= "[]";
  const number = (name) => +(s[name] ?? 0);
  const count = () => +document.getElementById("count").innerText;
  const connected = () => !!document.querySelector("[data-phx-main].phx-connected");
  const button = () => document.querySelector("button[phx-click]");
  const slow = () => document.querySelector("button[phx-click=stash_slowly]");

  // When to look at what was found after a reconnect: the page has it a moment later.
  let checkAt = 0;

  function look() {
    if (!document.getElementById("count")) return;
    const now = Date.now();
    if (connected()) {
      if (s.down) {
        s.outages = JSON.stringify([...JSON.parse(s.outages), now - s.down]);
        s.removeItem("down");
        checkAt = now + 150;
      }
      s.up = 1;
      if (now < checkAt) return;
      const status = document.getElementById("status").innerText;
      if (checkAt && (count() < number("most") || status !== "recovered"))
        s.wrong = `${count() > 0 && status === "recovered" ? "stale" : "lost"}: ${status} ${count()} instead of ${number("most")}`;
      checkAt = 0;
      s.most = Math.max(number("most"), count());
    } else if (s.up && !s.down) {
      s.down = now;
      s.cuts = number("cuts") + 1;
    }
  }

  new MutationObserver(look).observe(document, { subtree: true, childList: true, characterData: true, attributeFilter: ["class"] });
  setInterval(look, 100);
  setInterval(() => { if (s.goOn && connected() && !checkAt) button().click(); }, 3000);
  // As soon as there is an answer, it asks again.
  setInterval(() => { if (s.slowly && connected() && !slow().matches(".phx-click-loading")) slow().click(); }, 50);
  // Of a tab that nobody looks at, the outage begins when somebody does.
  document.addEventListener("visibilitychange", () => { look(); if (!document.hidden && s.down) s.down = Date.now(); });

  window.livestashTest = {
    stash: () => button().click(),
    goOn: () => { s.goOn = 1; },
    goOnSlowly: () => { s.slowly = 1; },
    seen: () => ({
      loads: number("loads"), cuts: number("cuts"), outages: JSON.parse(s.outages), wrong: s.wrong ?? "",
      count: count(), most: number("most"), connected: connected() && !checkAt, hidden: document.hidden,
    }),
  };
})();

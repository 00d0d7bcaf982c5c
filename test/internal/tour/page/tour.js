// Shows what /state says, once a second, and asks for a deploy.
"use strict";

const button = document.getElementById("deploy");
const said = document.getElementById("said");

for (const section of document.querySelectorAll("section"))
  section.querySelector("iframe").src = `http://${section.id}.${location.host}/stash/ets`;

function text(tag, content, name = "") {
  const element = document.createElement(tag);
  element.textContent = content;
  element.className = name;
  return element;
}

function pod({ name, release, ready, leaving }) {
  const what = leaving ? "stopping" : ready ? "ready" : "starting";
  return text("li", `${name}: release ${release}, ${what}`, what === "stopping" ? "leaving" : what);
}

function show(id, side) {
  const section = document.getElementById(id);
  section.dataset.settled = side.settled;
  section.querySelector(".others").replaceChildren(
    `${side.users} other users, ${side.connected} connected. Since the deploy: `,
    text("span", `${side.kept} kept their state`, side.kept ? "kept" : ""), ", ",
    text("span", `${side.lost} lost it`, side.lost ? "lost" : ""), ".");
  section.querySelector(".pods").replaceChildren(...side.pods.map(pod));
  section.querySelector(".status").textContent = side.status;
}

async function ask(path, options) {
  const response = await fetch(path, options);
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

async function look() {
  try {
    const state = await ask("state");
    for (const [id, side] of Object.entries(state.sides)) show(id, side);
    button.disabled = !state.settled;
    said.textContent = `Release ${state.release} ${state.settled ? "runs everywhere" : "is on its way"}.`;
  } catch (error) {
    button.disabled = true;
    said.textContent = `The cluster does not answer: ${error.message}`;
  }
}

button.addEventListener("click", async () => {
  button.disabled = true;
  try {
    await ask("deploy", { method: "POST" });
  } catch (error) {
    said.textContent = error.message;
  }
});

async function watch() {
  await look();
  setTimeout(watch, 1000);
}
watch();

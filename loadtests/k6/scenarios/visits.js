// Visitors who come and go, as in LiveStash's published benchmark: connect, stash, leave, come back once, most of them when
// the stash has expired, stash again, leave for good; another visitor takes the place.
// Options, metrics and report: loadtests/k6/README.md.

import { readOptions } from '../lib/options.js';
import { summary } from '../lib/report.js';
import { k6Options, prepare, runUsers } from '../lib/scenario.js';

const config = readOptions(__ENV, 'visits');

export const options = k6Options(config);

export function setup() {
  return prepare(config);
}

export default function visits(prepared) {
  return runUsers(config, prepared, async (user) => {
    while (!user.over) {
      await visit(user);
      await user.leave();
      user.startAnew();
      // The published test starts a visit up to a second after the last one.
      await user.sleep(1000 * Math.random());
    }
  });
}

export function handleSummary(data) {
  return summary(data, config);
}

async function visit(user) {
  if (!(await stashOnPage(user))) {
    return;
  }
  await user.leave();
  const late = Math.random() >= config.inTime;
  await user.sleep(late ? config.ttlMs + 1000 + 2000 * Math.random() : (config.ttlMs / 2) * Math.random());
  await stashOnPage(user, late);
}

async function stashOnPage(user, late = false) {
  return (await user.arrive(late)) && (await user.stay(pause())) && (await user.stash()) && user.stay(pause());
}

// The published test waits 5 s, give or take a fifth.
function pause() {
  return config.pauseMs * (0.8 + 0.4 * Math.random());
}

// Visitors who come and go, as in LiveStash's published benchmark: connect, stash, leave, come back once, half of them when the
// stash has expired, stash again, leave for good; another visitor takes the place.
// Options, metrics and report: loadtests/k6/README.md.

import { LONGEST_PAUSE, timeAway } from '../lib/away.js';
import { readOptions } from '../lib/options.js';
import { summary } from '../lib/report.js';
import { k6Options, prepare, runUsers } from '../lib/scenario.js';

const config = readOptions(__ENV, 'visits');

// The first visitor of every so many places stays away until the cleaner must have been there, where the test is long enough:
// the others who come late may still find what it has not seen.
const PATIENT = 10;

export const options = k6Options(config);

export function setup() {
  return prepare(config);
}

export default function visits(prepared) {
  return runUsers(config, prepared, async (user) => {
    let visitors = 0;
    while (!user.over) {
      await visit(user, visitors === 0 && user.index % PATIENT === 0);
      visitors += 1;
      await user.leave();
      user.startAnew();
      // The published test starts a visit up to a second after the last one.
      await user.until(1000 * Math.random());
    }
  });
}

export function handleSummary(data) {
  return summary(data, config);
}

async function visit(user, patient) {
  if (!(await stashOnPage(user))) {
    return;
  }
  await user.leave();
  await user.until(timeAway(config, patient, user.left));
  await stashOnPage(user);
}

// Who loses the socket comes back at once, as a browser does.
async function stashOnPage(user) {
  while (!user.over) {
    if ((await user.arrive()) && (await user.stay(pause())) && (await user.stash()) && (await user.stay(pause()))) {
      return true;
    }
  }
  return false;
}

// The published test waits 5 s, give or take a fifth.
function pause() {
  return config.pauseMs * (2 - LONGEST_PAUSE + 2 * (LONGEST_PAUSE - 1) * Math.random());
}

// Users who stay: every one connects, stashes, disconnects, reconnects, stashes, disconnects, ... until the end.
// Options, metrics and report: loadtests/k6/README.md.

import { readOptions } from '../lib/options.js';
import { summary } from '../lib/report.js';
import { k6Options, prepare, runUsers } from '../lib/scenario.js';

const config = readOptions(__ENV, 'reconnect');

export const options = k6Options(config);

export function setup() {
  return prepare(config);
}

export default function reconnect(prepared) {
  return runUsers(config, prepared, async (user) => {
    while (!user.over) {
      if ((await user.arrive()) && (await user.stay(pause())) && (await user.stash()) && (await user.stay(pause()))) {
        await user.leave();
      }
    }
  });
}

export function handleSummary(data) {
  return summary(data, config);
}

// from half to one and a half of the mean pause
function pause() {
  return config.pauseMs * (0.5 + Math.random());
}

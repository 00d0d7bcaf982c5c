// Time for measuring. Date.now() counts whole milliseconds, and a recovery on a fast network takes two.

import exec from 'k6/execution';

let instance = null;

/** @returns {number} ms since the start of the run, with microseconds; only inside a VU */
export function now() {
  // exec.instance makes a new object each time it is asked for
  instance = instance || exec.instance;
  return instance.currentTestRunDuration;
}

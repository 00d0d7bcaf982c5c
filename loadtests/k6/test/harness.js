// Unit tests in stock k6: named cases, a line "N passed, N failed", exit code 99 when one fails.

import { Counter } from 'k6/metrics';

const passed = new Counter('passed');
const failed = new Counter('failed');

/** k6 options of a file with unit tests. */
export const unitOptions = {
  vus: 1,
  iterations: 1,
  // A run in which nothing ran has not passed.
  thresholds: { failed: ['count==0'], passed: ['count>0'] },
};

/**
 * Runs cases one after another.
 *
 * @param {Object<string, function(): (void|Promise<void>)>} cases by name; one that throws has failed
 */
export async function runCases(cases) {
  for (const name of Object.keys(cases)) {
    try {
      await cases[name]();
      passed.add(1);
    } catch (error) {
      failed.add(1);
      console.error(`FAILED ${name}: ${error.message}\n${error.stack}`);
    }
  }
}

/** handleSummary of a file with unit tests. */
export function unitSummary(data) {
  const count = (name) => (data.metrics[name] ? data.metrics[name].values.count : 0);
  return { stdout: `${count('passed')} passed, ${count('failed')} failed\n` };
}

/** Fails unless both values have the same JSON (keys in any order; undefined is as absent). */
export function equal(got, want, what = 'value') {
  const a = canonical(got);
  const b = canonical(want);
  if (a !== b) {
    throw new Error(`${what} is ${a}, want ${b}`);
  }
}

/** Fails unless `fn` throws, or its promise rejects with, an error that `check` accepts. Returns the error. */
export async function throws(fn, check = () => true) {
  let error;
  try {
    await fn();
  } catch (thrown) {
    error = thrown;
  }
  if (!error) {
    throw new Error('nothing was thrown');
  }
  if (!check(error)) {
    throw new Error(`the wrong error was thrown: ${error.reason || ''} ${error.message}`);
  }
  return error;
}

function canonical(value) {
  return JSON.stringify(value, (_, part) => {
    if (part === null || typeof part !== 'object' || Array.isArray(part)) {
      return part;
    }
    return Object.keys(part)
      .sort()
      .reduce((sorted, key) => Object.assign(sorted, { [key]: part[key] }), {});
  });
}

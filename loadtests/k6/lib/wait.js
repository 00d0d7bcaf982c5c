// Waiting, always with a limit: a promise that nobody settles would keep a k6 iteration alive for ever.

import { LiveViewError } from './errors.js';

// Nearly every wait ends long before its limit, and a timer of k6's own costs more to set and to clear than all else of a wait. So one
// timer looks after all of a VU, and a limit may be exceeded by that much. Limits that are shorter have a timer of their own.
const ROUND_MS = 500;
const alarms = new Set();
let looking = false;

/**
 * Calls a function after a time that will most often not be waited for.
 *
 * @param {number} ms
 * @param {function(): void} ring
 * @returns {function(): void} undoes it
 */
export function startAlarm(ms, ring) {
  if (ms < 2 * ROUND_MS) {
    const timer = setTimeout(ring, ms);
    return () => clearTimeout(timer);
  }
  const alarm = { at: Date.now() + ms, ring };
  alarms.add(alarm);
  if (!looking) {
    looking = true;
    setTimeout(look, ROUND_MS);
  }
  return () => alarms.delete(alarm);
}

function look() {
  const now = Date.now();
  for (const alarm of alarms) {
    if (alarm.at <= now) {
      alarms.delete(alarm);
      alarm.ring();
    }
  }
  looking = alarms.size > 0;
  if (looking) {
    setTimeout(look, ROUND_MS);
  }
}

/**
 * A promise with a limit.
 *
 * @param {string} what what is waited for, for the error message
 * @param {number} timeout limit in ms; from 1 s on it may be exceeded by half a second
 * @param {number} [deadline] time (ms since 1970) at which the wait is cut in any case; default: never
 * @returns {{promise: Promise<any>, resolve: function(any): void, reject: function(Error): void}}
 *   The promise rejects with LiveViewError `timeout` at the limit and `ended` at the deadline.
 */
export function startWait(what, timeout, deadline = Infinity) {
  const wait = {};
  wait.promise = new Promise((resolve, reject) => {
    const { ms, reason } = limit(timeout, deadline);
    const undo = startAlarm(ms, () => reject(new LiveViewError(reason, `${what}: no answer after ${ms} ms`)));
    wait.resolve = (value) => {
      undo();
      resolve(value);
    };
    wait.reject = (error) => {
      undo();
      reject(error);
    };
  });
  return wait;
}

/**
 * How long a wait that begins now may last, and which reason its end has.
 *
 * @param {number} timeout limit in ms
 * @param {number} [deadline] time (ms since 1970) at which the wait is cut in any case; default: never
 * @returns {{ms: number, reason: 'timeout'|'ended'}} at least 1 ms, because 0 means "no limit" to some of k6's functions
 */
export function limit(timeout, deadline = Infinity) {
  const left = deadline - Date.now();
  if (left < timeout) {
    return { ms: Math.max(1, left), reason: 'ended' };
  }
  return { ms: timeout, reason: 'timeout' };
}

/**
 * @param {number} ms how long; 0 or less yields to the event loop once
 * @returns {Promise<void>}
 */
export function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, Math.max(0, ms)));
}

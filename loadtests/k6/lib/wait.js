// Waiting, always with a limit: a promise that nobody settles would keep a k6 iteration alive for ever.

import { LiveViewError } from './errors.js';

/**
 * A promise with a limit.
 *
 * @param {string} what what is waited for, for the error message
 * @param {number} timeout limit in ms
 * @param {number} [deadline] time (ms since 1970) at which the wait is cut in any case; default: never
 * @returns {{promise: Promise<any>, resolve: function(any): void, reject: function(Error): void}}
 *   The promise rejects with LiveViewError `timeout` at the limit and `ended` at the deadline.
 */
export function startWait(what, timeout, deadline = Infinity) {
  const wait = {};
  wait.promise = new Promise((resolve, reject) => {
    const { ms, reason } = limit(timeout, deadline);
    const timer = setTimeout(() => reject(new LiveViewError(reason, `${what}: no answer after ${ms} ms`)), ms);
    wait.resolve = (value) => {
      clearTimeout(timer);
      resolve(value);
    };
    wait.reject = (error) => {
      clearTimeout(timer);
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

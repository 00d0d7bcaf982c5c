// The environment of the scenario Requests: read once, checked whole, refused with sentences.

import { duration, integer, misnumbered, oneOf, path, reader, readShared, refuse, SPARE_DESCRIPTORS } from './options.js';

/** What is sent unless BODY says otherwise; its answer is checked. @type {string} */
export const SUM_BODY = '{"a":{1..100},"b":{1..100}}';

const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'];
// how a number that is another one in each request is written
const RANDOM = /\{(\d+)\.\.(\d+)\}/;

/**
 * Reads the options of Requests. What each means stands in loadtests/k6/README.md.
 *
 * @param {Object<string, string|undefined>} env as k6's __ENV; an empty value counts as absent
 * @returns {Object} those of readShared(), and scenario, method, path, body, sum (whether the answer must be a sum), connections, rate (requests
 *   a second, 0: closed), durationMs, vus; times in ms
 * @throws {Error} one sentence per wrong option
 */
export function readRequestsOptions(env) {
  const problems = [];
  const read = reader(env, problems);
  const options = {
    scenario: 'requests',
    ...readShared(env, read, problems),
    method: read('METHOD', 'POST', oneOf(METHODS)),
    path: read('REQUEST_PATH', '/api/sum', path),
    connections: read('CONNECTIONS', '12', integer(1)),
    rate: read('RATE', '0', rate),
    durationMs: read('DURATION', '60s', duration(1)),
  };
  options.sum = options.method === 'POST' && options.path === '/api/sum' && (env.BODY || '').trim() === '';
  options.body = read('BODY', options.sum ? SUM_BODY : '', template);
  problems.push(...conflicts(options));
  refuse(problems);
  options.vus = options.connections;
  return options;
}

/**
 * Writes a body.
 *
 * @param {string[][]} parts of BODY
 * @returns {{text: string, numbers: number[]}} with the numbers that were drawn
 */
export function fill(parts) {
  const numbers = [];
  let text = '';
  for (const [before, least, most] of parts) {
    text += before;
    if (least !== undefined) {
      const number = least + Math.floor(Math.random() * (most - least + 1));
      numbers.push(number);
      text += number;
    }
  }
  return { text, numbers };
}

function conflicts({ connections, runners, runner, descriptors, method, body, path: to }) {
  const problems = misnumbered(runner, runners);
  if (connections % runners > 0) {
    const least = Math.max(1, Math.floor(connections / runners)) * runners;
    problems.push(`CONNECTIONS=${connections} cannot be dealt out evenly to RUNNERS=${runners}: set CONNECTIONS to ${least} or ${least + runners}.`);
  }
  if (connections / runners + SPARE_DESCRIPTORS > descriptors) {
    const needed = Math.ceil(connections / (descriptors - SPARE_DESCRIPTORS));
    problems.push(`CONNECTIONS=${connections} need more file descriptors than FILE_DESCRIPTORS=${descriptors}: use ${needed} runners or more (RUNNERS and the parallelism).`);
  }
  if (method === 'GET' && body && body.length > 0) {
    problems.push(`BODY is set, and METHOD=GET has none: set METHOD=POST, or put what it says into REQUEST_PATH=${to}.`);
  }
  return problems;
}

function rate(text) {
  if (!/^\d+(\.\d+)?$/.test(text)) {
    throw new Error('must be a number of requests a second, or 0 for as many as the connections make.');
  }
  return Number(text);
}

// "{1..100}" in a body is a number from 1 to 100, another one in each request.
function template(text) {
  const parts = [];
  let rest = text;
  for (let found = RANDOM.exec(rest); found; found = RANDOM.exec(rest)) {
    const [all, least, most] = [found[0], Number(found[1]), Number(found[2])];
    if (most < least) {
      throw new Error(`${all} must have the smaller number first.`);
    }
    parts.push([rest.slice(0, found.index), least, most]);
    rest = rest.slice(found.index + all.length);
  }
  return rest === '' ? parts : [...parts, [rest]];
}

// Requests: each connection asks, waits for the answer, and asks again: at once (closed), or when its schedule says (open).

import { sleep } from 'k6';
import exec from 'k6/execution';
import http from 'k6/http';
import { Counter, Rate, Trend } from 'k6/metrics';
import { now } from './clock.js';
import { complain } from './complain.js';
import { connectReason, LiveViewError, reasonTag } from './errors.js';
import { FORWARDED } from './forwarded.js';
import { fill } from './requests_options.js';
import { LOOK_MS, WAITS_END_MS } from './scenario.js';
import { limit } from './wait.js';

const ACCEPT = { ...FORWARDED, Accept: 'application/json' };
const JSON_TYPE = { ...ACCEPT, 'Content-Type': 'application/json' };
// k6's code of a request that took too long
const TIMED_OUT = 1050;
// after a connection that could not be made, in s: else a server that is down is all the client does
const BACKOFF_S = 0.1;

const metrics = {
  planned: new Counter('planned'),
  connected: new Counter('connected'),
  connections: new Counter('connections'),
  requests: new Counter('requests'),
  unsent: new Counter('unsent'),
  wrong: new Counter('wrong'),
  error: new Counter('error'),
  unfinished: new Counter('unfinished'),
  failed: new Rate('failed'),
  request: new Trend('request', true),
  request_service: new Trend('request_service', true),
  client_delay: new Trend('client_delay', true),
};

/**
 * Looks whether any server answers. One that does not while another does is measured: it may come back.
 *
 * @param {Object} config of readRequestsOptions()
 * @returns {Promise<string|null>} why there is nothing to test
 */
export async function lookForAnswer(config) {
  const problems = config.bases.map((base) => {
    const { problem } = ask(config, base, Math.min(config.timeoutMs, LOOK_MS));
    return problem && `${base}: ${problem.message}`;
  });
  if (problems.includes(null)) {
    return null;
  }
  const none = problems.length > 1 ? `none of ${problems.length} servers answers as it should, the first because of ` : '';
  return `There is nothing to test: ${none}${problems[0]}. Check BASE_URLS, METHOD=${config.method}, REQUEST_PATH=${config.path} and BODY.`;
}

/**
 * One iteration of one VU: all requests of a connection. What is not answered is seen at once, so nothing here waits in the event loop.
 *
 * @param {Object} config of readRequestsOptions()
 * @param {{problem: string|null}} prepared of prepare()
 */
export function runRequests(config, prepared) {
  if (prepared.problem) {
    exec.test.abort(prepared.problem);
  }
  const begin = now() - (Date.now() - exec.scenario.startTime);
  const end = begin + config.durationMs;
  const cut = exec.scenario.startTime + config.durationMs + WAITS_END_MS;
  const connection = exec.vu.idInTest - 1;
  const base = connection % config.bases.length;
  // Open: each connection has every so manieth request of the whole test, evenly spaced.
  const every = config.rate > 0 ? (1000 * config.connections) / config.rate : 0;
  let due = begin + (every * connection) / config.connections;
  let free = begin;
  let connected = false;
  metrics.planned.add(1);
  while (free < end && due < end) {
    if (every > 0 && due > now()) {
      sleep((due - now()) / 1000);
    }
    const began = now();
    // Held up by the answer before it, a request is not late because of the client.
    metrics.client_delay.add(Math.max(0, began - Math.max(due, free)));
    const { problem, isNew, wrong } = ask(config, config.bases[base], limit(config.timeoutMs, cut).ms);
    const answered = now();
    free = answered;
    metrics.connections.add(isNew ? 1 : 0, { target: String(base) });
    if (problem && Date.now() >= cut) {
      metrics.unfinished.add(1);
      break;
    }
    metrics.requests.add(1);
    metrics.failed.add(problem !== null);
    if (problem) {
      metrics.wrong.add(wrong ? 1 : 0);
      complain(metrics.error, reasonTag(problem), problem.message);
      if (isNew) {
        sleep(BACKOFF_S);
        free = now();
      }
    } else {
      // A timer may be early by a part of a millisecond.
      metrics.request.add(answered - (every > 0 ? Math.min(due, began) : began));
      metrics.request_service.add(answered - began);
      if (!connected) {
        connected = true;
        metrics.connected.add(1);
      }
    }
    due = every > 0 ? due + every : free;
  }
  // The test lasts until its end, also when nothing more is due.
  if (now() < end) {
    sleep((end - now()) / 1000);
  }
  // What was due and never sent: with a server that is overloaded, the part of the rate that it has not taken.
  metrics.unsent.add(every > 0 && due < end ? Math.ceil((end - due) / every) : 0);
}

// One request: the problem with its answer, or null, whether it needed a connection of its own, and whether the sum was wrong.
function ask(config, base, timeout) {
  const { text, numbers } = fill(config.body);
  const response = http.request(config.method, base + config.path, text === '' ? null : text, {
    headers: text === '' ? ACCEPT : JSON_TYPE,
    redirects: 0,
    timeout,
    responseType: 'text',
    tags: { name: 'request' },
  });
  const { status, error, error_code: code } = response;
  if (status === 0) {
    return { problem: unanswered(code, error, timeout), isNew: true, wrong: false };
  }
  const isNew = response.timings.connecting > 0;
  if (status < 200 || status > 299) {
    return { problem: new LiveViewError('http', `the answer has the status ${status}`, { code: status }), isNew, wrong: false };
  }
  if (config.sum && !isSum(response.body, numbers)) {
    return { problem: new LiveViewError('bad_message', `${text} was answered with ${String(response.body).slice(0, 100)}`), isNew, wrong: true };
  }
  return { problem: null, isNew, wrong: false };
}

function unanswered(code, error, timeout) {
  return code === TIMED_OUT
    ? new LiveViewError('timeout', `no answer after ${timeout} ms`)
    : new LiveViewError(connectReason(error), `no answer: ${error}`);
}

function isSum(body, [a, b]) {
  try {
    return JSON.parse(body).result === a + b;
  } catch (_) {
    return false;
  }
}

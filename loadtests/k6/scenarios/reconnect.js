// The reconnect benchmark: every user connects, stashes, disconnects, reconnects, stashes, disconnects, ... until the end.
// Options, metrics and result: loadtests/k6/README.md.

import exec from 'k6/execution';
import { Counter, Rate, Trend } from 'k6/metrics';
import { LiveViewError } from '../lib/errors.js';
import { LiveView } from '../lib/liveview.js';
import { readOptions } from '../lib/options.js';
import { summary, thresholds, TREND_STATS } from '../lib/summary.js';
import { sleep } from '../lib/wait.js';

const config = readOptions(__ENV);

// After DURATION nothing new is begun. Waits that are under way may end by themselves for WAITS_END; then they are cut, and
// DROP later k6 itself ends the scenario, which also ends connections that a server has neither refused nor answered.
const WAITS_END_MS = 10000;
const DROP_MS = 2000;

export const options = {
  scenarios: {
    reconnect: {
      executor: 'per-vu-iterations',
      vus: config.vus,
      iterations: 1,
      maxDuration: `${config.durationMs + WAITS_END_MS + DROP_MS}ms`,
      gracefulStop: '0s',
    },
  },
  thresholds: thresholds(config),
  summaryTrendStats: TREND_STATS,
  // Users of one VU do not share their connections: the first render has to open one, and a Service spreads connections.
  noConnectionReuse: true,
  // The few that tell series apart: every further tag multiplies what a Prometheus has to keep.
  systemTags: ['status', 'method', 'name', 'scenario', 'error_code'],
};

const firstRender = new Trend('first_render', true);
const stashing = new Trend('stash', true);
const reconnecting = new Trend('reconnect', true);
const recovered = new Rate('recovered');
const notFound = new Counter('not_found');
const errors = new Counter('error');
const wrongCount = new Counter('wrong_count');
const cycles = new Counter('cycles');
const connections = new Counter('connections');
const unfinished = new Counter('unfinished');
const failed = new Rate('failed');

// Dynamic parts of the workload's page.
const STATUS = 0;
const COUNT = 1;
// ms before the 2nd, 3rd, ... attempt to connect, as phoenix.js waits
const BACKOFF = [10, 50, 100, 150, 200, 250, 500, 1000, 2000];
const LAST_BACKOFF = 5000;
// After these a browser loads the page anew, and what was stashed is out of reach.
const GIVES_UP = ['stale', 'refused', 'redirected'];
// lines about each reason on a VU's log: the first ones tell what is wrong, the thousandth nothing more
const SHOWN_ERRORS = 3;

const shown = {};
let end = 0;

/** One iteration of one VU: all its users, side by side, from the start to the end of the test. */
export default async function reconnect() {
  end = exec.scenario.startTime + config.durationMs;
  try {
    await Promise.all(usersOfThisVu().map((index) => new User(index).live()));
  } catch (error) {
    // A fault of this script. k6 would log it, go on, and exit with 0.
    exec.test.abort(`the scenario itself failed: ${error.stack || error}`);
  }
}

/** k6 calls it once, at the end. */
export function handleSummary(data) {
  return summary(data, config);
}

// Spreads the users evenly, also when a run is cut into segments: a VU's number is unique in the whole test.
function usersOfThisVu() {
  const vu = exec.vu.idInTest - 1;
  const users = [];
  for (let index = vu; index < config.users; index += config.vus) {
    users.push(index);
  }
  return users;
}

function over() {
  return Date.now() >= end;
}

class User {
  constructor(index) {
    this.index = index;
    this.connections = 0;
    this.busy = false;
    this.wake = () => {};
    this.startAnew();
  }

  startAnew() {
    this.view = new LiveView({
      path: config.path,
      timeout: config.timeoutMs,
      deadline: end + WAITS_END_MS,
      onClose: (error) => this.lost(error),
    });
    this.acknowledged = 0;
    this.unsure = 0;
    this.lostAt = 0;
  }

  async live() {
    await sleep((config.rampMs * this.index) / config.users);
    while (!over()) {
      await this.cycle();
    }
    await this.view.disconnect();
  }

  async cycle() {
    if (!(await this.arrive()) || !(await this.pause()) || !(await this.stash()) || !(await this.pause())) {
      return;
    }
    await this.view.disconnect();
  }

  // Connects or reconnects, trying again as a browser does. The time counts from the first attempt, or from the moment the
  // socket was lost: a user does not care how many attempts it took.
  async arrive() {
    let began = this.lostAt || Date.now();
    let returning = this.view.mounts > 0;
    let tried = 0;
    this.lostAt = 0;
    while (!over()) {
      const problem = await this.attempt(() => this.connect(returning));
      if (!problem) {
        this.judge(returning, Date.now() - began);
        return true;
      }
      if (problem.reason === 'ended') {
        break;
      }
      if (returning && GIVES_UP.includes(problem.reason)) {
        recovered.add(false);
        this.startAnew();
        returning = false;
        began = Date.now();
      }
      await this.sleepUntilEnd(BACKOFF[tried] || LAST_BACKOFF);
      tried += 1;
    }
    // Tried, and not back when the test ended: as far as the user is concerned, the state is gone.
    if (returning && tried > 0) {
      recovered.add(false);
    }
    return false;
  }

  async connect(returning) {
    const target = (this.index + this.connections) % config.bases.length;
    this.connections += 1;
    connections.add(1, { target: String(target) });
    await (returning ? this.view.reconnect(config.bases[target]) : this.view.connect(config.bases[target]));
    this.count();
  }

  judge(returning, ms) {
    const count = this.count();
    const status = this.view.rendered.text(STATUS);
    if (!returning) {
      firstRender.add(ms);
    } else {
      reconnecting.add(ms);
      recovered.add(status === 'recovered');
      if (status === 'not_found') {
        notFound.add(1);
      }
      if (status === 'error') {
        this.report('stash_error', 'the LiveView says that its stash could not be read');
      }
      // A stash that was sent and not acknowledged may have happened or not.
      if (status === 'recovered' && count !== this.acknowledged && count !== this.acknowledged + this.unsure) {
        wrongCount.add(1);
      }
    }
    this.acknowledged = count;
    this.unsure = 0;
  }

  async stash() {
    const began = Date.now();
    this.unsure += 1;
    const problem = await this.attempt(async () => {
      await this.view.event('click', 'stash', {});
      if (this.count() !== this.acknowledged + 1) {
        throw new LiveViewError('bad_message', `a stash was acknowledged with count ${this.count()} after ${this.acknowledged}`);
      }
    });
    if (problem) {
      await this.view.disconnect();
      return false;
    }
    stashing.add(Date.now() - began);
    cycles.add(1);
    this.acknowledged += 1;
    this.unsure = 0;
    return true;
  }

  count() {
    const text = this.view.rendered.text(COUNT);
    if (!/^\d+$/.test(text)) {
      throw new LiveViewError('bad_message', `dynamic part ${COUNT} of the page is "${text}" instead of the counter`);
    }
    return Number(text);
  }

  // Runs one step and books how it ended: null when it went well, else the LiveViewError.
  async attempt(step) {
    this.busy = true;
    try {
      await step();
    } catch (error) {
      if (!(error instanceof LiveViewError)) {
        throw error;
      }
      this.book(error);
      return error;
    } finally {
      this.busy = false;
    }
    failed.add(false);
    return null;
  }

  book(error) {
    if (error.reason === 'ended') {
      unfinished.add(1);
      return;
    }
    failed.add(true);
    this.report(error.reason, error.message);
  }

  // The server ended the socket. When a step was waiting for it, the step books the error.
  lost(error) {
    this.lostAt = Date.now();
    if (!this.busy) {
      this.report(error.reason, error.message);
      this.wake();
    }
  }

  report(reason, message) {
    errors.add(1, { reason });
    shown[reason] = (shown[reason] || 0) + 1;
    if (shown[reason] <= SHOWN_ERRORS) {
      const last = shown[reason] === SHOWN_ERRORS ? ' (further ones of this kind are only counted)' : '';
      console.error(`${reason}: ${message}${last}`);
    }
  }

  // Thinks for a while, from half to one and a half of the mean pause. False when there is nothing more to do: the
  // socket was lost, or the test has ended.
  async pause() {
    await this.sleepUntilEnd(config.pauseMs * (0.5 + Math.random()));
    return this.view.connected && !over();
  }

  // Ends early at the end of the test, and when the socket is lost.
  sleepUntilEnd(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, Math.max(0, Math.min(ms, end - Date.now())));
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

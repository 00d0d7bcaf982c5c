// One user: the steps that scenarios are made of, and what is booked for each.

import { now } from './clock.js';
import { LiveViewError, reasonTag } from './errors.js';
import { LiveView } from './liveview.js';
import { metrics } from './metrics.js';

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

/** A user of the workload's page. Steps never throw for what a server does: they book it and tell whether they went well. */
export class User {
  /**
   * @param {Object} config of readOptions()
   * @param {number} index number of the user in the whole test, from 0
   * @param {{end: number, cut: number}} times ms since 1970: nothing new begins after `end`, every wait ends at `cut`
   */
  constructor(config, index, times) {
    this.config = config;
    this.index = index;
    this.times = times;
    this.connections = 0;
    this.busy = false;
    this.wake = () => {};
    this.startAnew();
  }

  /** Forgets page, cookie and stash: the next arrival is a first visit. */
  startAnew() {
    this.view = new LiveView({
      path: this.config.path,
      timeout: this.config.timeoutMs,
      deadline: this.times.cut,
      onClose: (error) => this.lost(error),
    });
    this.acknowledged = 0;
    this.unsure = 0;
    this.lostAt = 0;
  }

  /** Whether the test's time is up. @type {boolean} */
  get over() {
    return Date.now() >= this.times.end;
  }

  /**
   * Connects or reconnects, trying again as a browser does. The time counts from the first attempt, or from the moment the
   * socket was lost: a user does not care how many attempts it took.
   *
   * @param {boolean} [late] the stash may have expired: whether it is found is booked apart and right in both cases
   * @returns {Promise<boolean>} false when the test ended first
   */
  async arrive(late = false) {
    let began = this.lostAt || now();
    let returning = this.view.mounts > 0;
    let tried = 0;
    this.lostAt = 0;
    while (!this.over) {
      const problem = await this.attempt(() => this.connect(returning));
      if (!problem) {
        this.judge(returning, late, now() - began);
        return true;
      }
      if (problem.reason === 'ended') {
        break;
      }
      metrics.connect_failed.add(1);
      if (returning && GIVES_UP.includes(problem.reason)) {
        this.isBack(late, false);
        this.startAnew();
        returning = false;
        began = now();
      }
      await this.sleep(BACKOFF[tried] || LAST_BACKOFF);
      tried += 1;
    }
    // Tried, and not back when the test ended: as far as the user is concerned, the state is gone.
    if (returning && tried > 0) {
      this.isBack(late, false);
    }
    return false;
  }

  /**
   * Raises the counter, which the server stashes.
   *
   * @returns {Promise<boolean>} false when that failed; the user is disconnected then
   */
  async stash() {
    const began = now();
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
    metrics.stash.add(now() - began);
    metrics.cycles.add(1);
    this.acknowledged += 1;
    this.unsure = 0;
    return true;
  }

  /**
   * Stays on the page for a while.
   *
   * @param {number} ms
   * @returns {Promise<boolean>} false when there is nothing more to do: the socket was lost, or the test has ended
   */
  async stay(ms) {
    await this.sleep(ms);
    return this.view.connected && !this.over;
  }

  /** Leaves the page, if the user is on it. @returns {Promise<void>} */
  leave() {
    return this.view.disconnect();
  }

  /**
   * Waits; not beyond the end of the test, and not beyond the loss of the socket.
   *
   * @param {number} ms
   * @returns {Promise<void>}
   */
  sleep(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, Math.max(0, Math.min(ms, this.times.end - Date.now())));
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  async connect(returning) {
    const { bases } = this.config;
    const target = (this.index + this.connections) % bases.length;
    this.connections += 1;
    metrics.connections.add(1, { target: String(target) });
    await (returning ? this.view.reconnect(bases[target]) : this.view.connect(bases[target]));
    this.count();
  }

  judge(returning, late, ms) {
    if (returning) {
      this.judgeReturn(late, ms);
    } else {
      metrics.first_render.add(ms);
      metrics.join.add(this.view.joinMs);
    }
    if (!this.known) {
      this.known = true;
      metrics.connected.add(1);
    }
    this.acknowledged = this.count();
    this.unsure = 0;
  }

  judgeReturn(late, ms) {
    const status = this.view.rendered.text(STATUS);
    this.isBack(late, status === 'recovered');
    if (late) {
      metrics.late_rejoin.add(this.view.joinMs);
    } else {
      metrics.reconnect.add(ms);
      metrics.rejoin.add(this.view.joinMs);
    }
    if (status === 'not_found' && !late) {
      metrics.not_found.add(1);
    }
    if (status === 'error') {
      this.report('stash_error', 'the LiveView says that its stash could not be read');
    }
    // A stash that was sent and not acknowledged may have happened or not.
    const count = this.count();
    if (status === 'recovered' && count !== this.acknowledged && count !== this.acknowledged + this.unsure) {
      metrics.wrong_count.add(1);
    }
  }

  isBack(late, recovered) {
    (late ? metrics.late_recovered : metrics.recovered).add(recovered);
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
    metrics.failed.add(false);
    return null;
  }

  book(error) {
    if (error.reason === 'ended') {
      metrics.unfinished.add(1);
      return;
    }
    metrics.failed.add(true);
    this.report(reasonTag(error), error.message);
  }

  // The server ended the socket. When a step was waiting for it, the step books the error.
  lost(error) {
    this.lostAt = now();
    if (!this.busy) {
      this.report(reasonTag(error), error.message);
      this.wake();
    }
  }

  report(reason, message) {
    metrics.error.add(1, { reason });
    shown[reason] = (shown[reason] || 0) + 1;
    if (shown[reason] <= SHOWN_ERRORS) {
      const last = shown[reason] === SHOWN_ERRORS ? ' (further ones of this kind are only counted)' : '';
      console.error(`${reason}: ${message}${last}`);
    }
  }
}

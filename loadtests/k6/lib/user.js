// One user: the steps that scenarios are made of, and what is booked for each.

import { now } from './clock.js';
import { complain } from './complain.js';
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
// The server counts whole seconds of a TTL: a stash may be gone that much earlier.
const ROUNDING_MS = 1000;
// What expires by itself, without a cleaner that comes round, is gone soon: in Redis, and a token in the browser.
const BY_ITSELF = ['redis', 'browser_memory'];
const BY_ITSELF_MS = 2000;

// Where a return is booked, by when it came.
const BOOKS = { 'in time': metrics.recovered, late: metrics.late_recovered, expired: metrics.expired_recovered };

/** A user of the workload's page. Steps never throw for what a server does: they book it and tell whether they went well. */
export class User {
  /**
   * @param {Object} config of readOptions()
   * @param {number} index number of the user in the whole test, from 0
   * @param {{begin: number, end: number, cut: number}} times `begin` as of now(): when the schedule begins; the others in ms
   *   since 1970: the user begins nothing new after `end`, every wait ends at `cut`
   */
  constructor(config, index, times) {
    this.config = config;
    this.index = index;
    this.times = times;
    // When the next step is to begin, whatever became of those before it, and how late the client itself was last.
    this.due = times.begin;
    this.behind = 0;
    // Whether a wait was cut by the end of the user's time. Timers and Date.now() go by two clocks, which may differ by some ms.
    this.ended = false;
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
    // When the last acknowledged stash was sent, 0 when there is none, and when the user was on the page last.
    this.stashedAt = 0;
    this.leftAt = 0;
  }

  /** Whether the user's time is up. @type {boolean} */
  get over() {
    return this.ended || Date.now() >= this.times.end;
  }

  /** For how long the test still lasts after the next step is due, in ms. @type {number} */
  get left() {
    return this.times.end - Date.now() - (this.due - now());
  }

  /**
   * Connects or reconnects, trying again as a browser does. The time counts from when the user was to come, or from the moment
   * the socket was lost: a user does not care how many attempts it took, nor why the first one was late.
   *
   * @returns {Promise<boolean>} false when the test ended first
   */
  async arrive() {
    const lost = this.lostAt;
    let began = now();
    // The last wait of a test ends with it, so that its user may come before the time.
    let due = lost || Math.min(this.due, began);
    let returning = this.view.mounts > 0;
    let tried = 0;
    while (!this.over) {
      // Of a socket that is lost while it is made, the attempt tells.
      this.lostAt = 0;
      const problem = await this.attempt(() => this.connect(returning));
      if (!problem) {
        const answered = now();
        this.judge(returning, answered, { ms: answered - due, service: answered - began });
        if (lost || tried > 0) {
          // What went wrong is counted as what it is. The schedule begins anew.
          this.due = answered;
        }
        return true;
      }
      if (problem.reason === 'ended') {
        break;
      }
      metrics.connect_failed.add(1);
      if (returning && GIVES_UP.includes(problem.reason)) {
        this.isBack(now(), now(), false);
        this.startAnew();
        returning = false;
        due = now();
        began = due;
      }
      await this.sleep(BACKOFF[tried] || LAST_BACKOFF);
      tried += 1;
    }
    // Tried, and not back when the test ended: as far as the user is concerned, the state is gone.
    if (returning && tried > 0) {
      this.isBack(now(), now(), false);
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
      await this.leave();
      return false;
    }
    const answered = now();
    // A timer may be early by a part of a millisecond.
    metrics.stash.add(answered - Math.min(this.due, began));
    metrics.stash_service.add(answered - began);
    metrics.cycles.add(1);
    this.stashedAt = began;
    this.acknowledged += 1;
    this.unsure = 0;
    return true;
  }

  /**
   * Waits until the next step is due: `ms` after the last one was due, not after it was done. A user whose server was slow is
   * behind, and catches up: the steps that were held up begin at once, and their times count from when they should have begun.
   *
   * @param {number} ms
   * @returns {Promise<boolean>} false when that was cut short, by the end of the user's time or the loss of the socket
   */
  async until(ms) {
    this.due += ms;
    const ahead = this.due - now();
    if (ahead > 0) {
      if (!(await this.sleep(ahead))) {
        return false;
      }
      this.behind = Math.max(0, now() - this.due);
    } else {
      // Of the delay, that much is the client's own at most.
      this.behind = Math.min(this.behind, -ahead);
    }
    metrics.client_delay.add(this.behind);
    return true;
  }

  /**
   * Stays on the page until the next step is due.
   *
   * @param {number} ms as of until()
   * @returns {Promise<boolean>} false when there is nothing more to do: the socket was lost, or the test has ended
   */
  async stay(ms) {
    return (await this.until(ms)) && this.view.connected && !this.over;
  }

  /** Leaves the page, if the user is on it. What that takes is the client's, and moves the schedule. @returns {Promise<void>} */
  async leave() {
    if (!this.view.connected) {
      return;
    }
    this.leftAt = now();
    await this.view.disconnect();
    this.due += now() - this.leftAt;
  }

  /**
   * Waits; not beyond the end of the test, and not beyond the loss of the socket.
   *
   * @param {number} ms
   * @returns {Promise<boolean>} whether it was that long
   */
  sleep(ms) {
    return new Promise((resolve) => {
      const left = this.times.end - Date.now();
      const until = now() + Math.max(0, Math.min(ms, left));
      // k6 may call too early when another timer was cleared shortly before.
      const ring = () => {
        const rest = until - now();
        if (rest >= 1) {
          timer = setTimeout(ring, rest);
          return;
        }
        this.ended = ms > left;
        resolve(!this.ended);
      };
      let timer = setTimeout(ring, until - now());
      this.wake = () => {
        clearTimeout(timer);
        resolve(false);
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

  judge(returning, answered, times) {
    if (returning) {
      this.judgeReturn(answered, times);
    } else {
      metrics.first_render.add(times.ms);
      metrics.first_render_service.add(times.service);
      metrics.join.add(this.view.joinMs);
    }
    if (!this.known) {
      this.known = true;
      metrics.connected.add(1);
    }
    this.acknowledged = this.count();
    this.unsure = 0;
  }

  judgeReturn(answered, { ms, service }) {
    const status = this.view.rendered.text(STATUS);
    const found = status === 'recovered';
    const when = this.isBack(answered - this.view.joinMs, answered, found);
    if (this.wasDueInTime(answered - ms)) {
      metrics.reconnect.add(ms);
      metrics.reconnect_service.add(service);
      if (this.config.events.length > 0) {
        metrics[this.amidEvent(answered - ms) ? 'reconnect_during' : 'reconnect_outside'].add(ms);
      }
    }
    if (when !== 'nothing') {
      metrics[when === 'in time' ? 'rejoin' : 'late_rejoin'].add(this.view.joinMs);
    }
    if (status === 'not_found' && when === 'in time') {
      metrics.not_found.add(1);
    }
    if (status === 'error') {
      this.report('stash_error', 'the LiveView says that its stash could not be read');
    }
    // A stash that was sent and not acknowledged may have happened or not.
    const count = this.count();
    if (found && count !== this.acknowledged && count !== this.acknowledged + this.unsure) {
      metrics.wrong_count.add(1);
    }
    if (!found) {
      this.stashedAt = 0;
    }
  }

  // Books a return. Whether it was in time is what it was, not what was planned: who is held up past the TTL has lost nothing that
  // should have been there. `asked` and `answered` are as of now().
  isBack(asked, answered, found) {
    const when = this.timeliness(asked, answered);
    if (when !== 'nothing') {
      BOOKS[when].add(found);
    }
    return when;
  }

  // Whether the user was to be back within the TTL. How long that took is measured even where it took so long that it was too late: else the
  // slowest returns would be missing.
  wasDueInTime(due) {
    return this.stashedAt > 0 && due <= this.stashedAt + this.config.ttlMs - ROUNDING_MS;
  }

  timeliness(asked, answered) {
    const { ttlMs, cleanerMs, adapter } = this.config;
    if (!this.stashedAt) {
      return 'nothing'; // was stashed, so nothing can be lost
    }
    if (this.wasDueInTime(answered)) {
      return 'in time';
    }
    // A page that is open keeps its stash, so the TTL counts from its end.
    const cleaned = BY_ITSELF.includes(adapter) ? Math.min(cleanerMs, BY_ITSELF_MS) : cleanerMs;
    return asked >= this.leftAt + ttlMs + cleaned ? 'expired' : 'late';
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
    if (!this.amidEvent(now())) {
      metrics.failed.add(true);
    }
    this.report(reasonTag(error), error.message);
  }

  // Whether something was done to the servers on purpose at that time, as of now(). What fails then is no failed step: what it cost
  // is in the time until the user is back, and in what they find.
  amidEvent(at) {
    const since = at - this.times.begin;
    return this.config.events.some(({ from, to }) => since >= from && since < to);
  }

  // The server ended the socket. When a step was waiting for it, the step books the error; else staying on the page has failed.
  lost(error) {
    this.lostAt = now();
    this.leftAt = this.lostAt;
    if (this.busy) {
      return;
    }
    if (!this.over && this.amidEvent(this.lostAt)) {
      metrics.cut.add(1);
    } else if (!this.over) {
      metrics.dropped.add(1);
      metrics.failed.add(true);
    }
    this.report(reasonTag(error), error.message);
    this.wake();
  }

  report(reason, message) {
    complain(metrics.error, reason, message);
  }
}

// Rooms: members who come, stay, and say something now and then. Measured is when the last member of a room has heard it.

import exec from 'k6/execution';
import { Counter, Rate, Trend } from 'k6/metrics';
import { now } from './clock.js';
import { complain } from './complain.js';
import { LiveViewError, reasonTag } from './errors.js';
import { FORWARDED } from './forwarded.js';
import { PROTOCOLS } from './protocols.js';
import { Room } from './room.js';
import { usersOf } from './runners.js';
import { LOOK_MS, WAITS_END_MS } from './scenario.js';
import { limit, sleep } from './wait.js';

// what phoenix.js waits before it tries again
const BACKOFF = [10, 50, 100, 150, 200, 250, 500, 1000, 2000];
const LAST_BACKOFF = 5000;
// how often deliveries are passed on to k6, and messages that did not arrive are given up
const SWEEP_MS = 1000;

const metrics = {
  planned: new Counter('planned'),
  connected: new Counter('connected'),
  connections: new Counter('connections'),
  connect_failed: new Counter('connect_failed'),
  dropped: new Counter('dropped'),
  messages: new Counter('messages'),
  deliveries: new Counter('deliveries'),
  duplicates: new Counter('duplicates'),
  misdelivered: new Counter('misdelivered'),
  late_deliveries: new Counter('late_deliveries'),
  error: new Counter('error'),
  unfinished: new Counter('unfinished'),
  failed: new Rate('failed'),
  join: new Trend('join', true),
  delivery: new Trend('delivery', true),
  client_delay: new Trend('client_delay', true),
};

/**
 * Looks whether any server lets a member into a room. One that does not while another does is measured: it may come back.
 *
 * @param {Object} config of readRoomsOptions()
 * @returns {Promise<string|null>} why there is nothing to test
 */
export async function lookForRoom(config) {
  const problems = await Promise.all(
    config.bases.map(async (base) => {
      // A room of its own: nobody who is counted hears of it.
      const timeout = Math.min(config.timeoutMs, LOOK_MS / 2); // twice: to connect, and to join
      const socket = openSocket(config, base, 'look', { timeout, heard: () => {}, refused: () => {} });
      try {
        await socket.open();
        await socket.join();
        return null;
      } catch (error) {
        return told(error).message;
      } finally {
        await socket.close();
      }
    }),
  );
  if (problems.includes(null)) {
    return null;
  }
  const none = problems.length > 1 ? `none of ${problems.length} servers lets a member in, the first because of ` : '';
  return `There is nothing to test: ${none}${problems[0]}. Check BASE_URLS, PROTOCOL=${config.protocol} and ROOM_PATH=${config.path}.`;
}

/**
 * One iteration of one VU: all its rooms, from the start to the end of the test.
 *
 * @param {Object} config of readRoomsOptions()
 * @param {{problem: string|null}} prepared of prepare()
 * @returns {Promise<void>}
 */
export async function runRooms(config, prepared) {
  if (prepared.problem) {
    exec.test.abort(prepared.problem);
  }
  const begin = now() - (Date.now() - exec.scenario.startTime);
  const times = { begin, end: begin + config.durationMs, cut: exec.scenario.startTime + config.durationMs + WAITS_END_MS };
  const numbers = usersOf(exec.vu.idInTest - 1, config.vus, config.rooms);
  metrics.planned.add(numbers.length * config.roomSize);
  try {
    await Promise.all(numbers.map((number) => liveRoom(config, number, times)));
  } catch (error) {
    // A fault of this script. k6 would log it, go on, and exit with 0.
    exec.test.abort(`the scenario itself failed: ${error.stack || error}`);
  }
}

// One room: its members come, talk, and leave together when everything that was said has arrived, or is given up.
async function liveRoom(config, number, times) {
  const room = new Room(number, config.roomSize, config.bytes, {
    delivered: (ms) => {
      metrics.delivery.add(ms);
      // Messages are given up when the sweep comes round, and this one came before it.
      metrics.failed.add(ms > config.timeoutMs);
    },
    failed: () => metrics.failed.add(true),
    duplicate: () => metrics.duplicates.add(1),
    misdelivered: () => metrics.misdelivered.add(1),
    late: () => metrics.late_deliveries.add(1),
  });
  const members = Array.from({ length: config.roomSize }, (_, index) => new Member(config, room, index, times));
  const over = { is: false };
  const sweeping = sweep(room, config, over);
  await Promise.all(members.map((member) => member.live()));
  const last = now() + limit(config.timeoutMs, times.cut).ms;
  while (room.open > 0 && now() < last) {
    await sleep(10);
  }
  metrics.unfinished.add(room.open);
  over.is = true;
  await Promise.all([sweeping, ...members.map((member) => member.leave())]);
}

// One sample for all deliveries of a second: k6 handles each sample by itself.
async function sweep(room, config, over) {
  let counted = 0;
  while (!over.is) {
    await sleep(Math.min(SWEEP_MS, config.timeoutMs));
    metrics.deliveries.add(room.deliveries - counted);
    counted = room.deliveries;
    if (!over.is) {
      room.expire(now() - config.timeoutMs);
    }
  }
}

/** One member of a room. */
class Member {
  constructor(config, room, index, times) {
    this.config = config;
    this.room = room;
    this.index = index;
    this.times = times;
    this.user = room.number * config.roomSize + index;
    this.tries = 0;
    this.known = false;
    this.socket = null;
    this.wake = () => {};
  }

  get over() {
    return now() >= this.times.end;
  }

  // Comes, and says something whenever it is due, until the end of the test.
  async live() {
    await this.until(this.times.begin + (this.config.rampMs * this.user) / this.config.users);
    const connecting = this.stay();
    if (this.index < this.config.speakers) {
      await this.speak();
    }
    await this.until(this.times.end);
    await connecting;
  }

  // Nobody speaks before all are to be there: until then the server only takes connections.
  async speak() {
    let due = this.times.begin + this.config.rampMs + Math.random() * this.pause();
    while (due < this.times.end) {
      await this.until(due);
      // Who is not in the room has nothing to say there: what is wrong is counted as a lost socket or a failed attempt.
      if (this.socket && !this.over) {
        const at = now();
        metrics.client_delay.add(Math.max(0, at - due));
        metrics.messages.add(1);
        this.socket.say(this.room.say(at), this.room.said - 1);
      }
      due += this.pause();
    }
  }

  // In the room until the end of the test: who loses the socket comes back as a browser does.
  async stay() {
    let tried = 0;
    let due = now();
    while (!this.over) {
      if (await this.enter(due)) {
        tried = 0;
        await this.untilLost();
        due = now();
      } else {
        await this.pauseFor(BACKOFF[tried] || LAST_BACKOFF);
        tried += 1;
      }
    }
  }

  async enter(due) {
    const { config, room, index } = this;
    const target = (this.user + this.tries) % config.bases.length;
    this.tries += 1;
    metrics.connections.add(1, { target: String(target) });
    const socket = openSocket(config, config.bases[target], room.number, {
      timeout: config.timeoutMs,
      deadline: this.times.cut,
      heard: (frame, from) => room.heard(index, frame, from, now),
      refused: (number) => {
        room.refused(number);
        complain(metrics.error, 'refused', 'the server refused a message');
      },
      onClose: (error) => this.lost(socket, error),
    });
    try {
      await socket.open();
      // What others say from now on may come, and before the reply to the join it need not.
      await socket.join();
    } catch (error) {
      await socket.close();
      const problem = told(error);
      if (problem.reason !== 'ended') {
        metrics.connect_failed.add(1);
        complain(metrics.error, reasonTag(problem), problem.message);
      }
      return false;
    }
    metrics.join.add(now() - due);
    if (!this.known) {
      this.known = true;
      metrics.connected.add(1);
    }
    this.socket = socket;
    room.enter(index);
    return true;
  }

  lost(socket, error) {
    if (this.socket !== socket) {
      return; // the attempt to enter tells
    }
    this.socket = null;
    this.room.leave(this.index);
    metrics.dropped.add(this.over ? 0 : 1);
    complain(metrics.error, reasonTag(error), error.message);
    this.wake();
  }

  async leave() {
    const { socket } = this;
    this.socket = null;
    if (socket) {
      await socket.close();
    }
  }

  untilLost() {
    return this.socket ? this.pauseFor(this.times.end - now()) : Promise.resolve();
  }

  // Waits, at most until the end of the test; wake() ends it.
  pauseFor(ms) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, Math.max(0, Math.min(ms, this.times.end - now())));
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  async until(time) {
    const ms = Math.min(time, this.times.end) - now();
    if (ms > 0) {
      await sleep(ms);
    }
  }

  pause() {
    const [least, most] = this.config.everyMs;
    return least + Math.random() * (most - least);
  }
}

function openSocket(config, base, room, options) {
  const { Member: Protocol, origin } = PROTOCOLS[config.protocol];
  const url = base.replace(/^http/, 'ws') + config.path.replace('{room}', String(room));
  // Rails takes an origin for another site's when its scheme is not the forwarded one.
  const params = { tags: { name: 'room' }, headers: origin ? { Origin: base } : FORWARDED };
  return new Protocol(url, { ...options, room, params });
}

// What is no LiveViewError is a fault of this script.
function told(error) {
  if (!(error instanceof LiveViewError)) {
    throw error;
  }
  return error;
}

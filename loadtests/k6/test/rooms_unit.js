// k6 run loadtests/k6/test/rooms_unit.js

import { PROTOCOLS } from '../lib/protocols.js';
import { fill, readRequestsOptions } from '../lib/requests_options.js';
import { LEAST_BYTES, Room } from '../lib/room.js';
import { readRoomsOptions } from '../lib/rooms_options.js';
import { usersOf } from '../lib/runners.js';
import { equal, runCases, throws, unitOptions, unitSummary } from './harness.js';

export const options = unitOptions;
export const handleSummary = unitSummary;

// A room whose members are all in, and what it has booked.
function roomOf(size, bytes = LEAST_BYTES) {
  const booked = { delivered: [], failed: 0, duplicate: 0, misdelivered: 0, late: 0 };
  const room = new Room(7, size, bytes, {
    delivered: (ms) => booked.delivered.push(ms),
    failed: () => (booked.failed += 1),
    duplicate: () => (booked.duplicate += 1),
    misdelivered: () => (booked.misdelivered += 1),
    late: () => (booked.late += 1),
  });
  for (let member = 0; member < size; member++) {
    room.enter(member);
  }
  return { room, booked, hear: (member, text, at = 0) => room.heard(member, text, 0, () => at) };
}

const none = { delivered: [], failed: 0, duplicate: 0, misdelivered: 0, late: 0 };

const roomCases = {
  'room: a message has its size, whatever its number'() {
    for (const bytes of [LEAST_BYTES, 100, 10240]) {
      const { room } = roomOf(1, bytes);
      for (let i = 0; i < 12; i++) {
        const text = room.say(0);
        equal([text.length, text.startsWith(`#7#${i}#`)], [bytes, true]);
      }
    }
  },
  'room: the time is that of the last member'() {
    const { room, booked, hear } = roomOf(3);
    const text = room.say(100);
    hear(1, text, 110);
    hear(0, text, 120);
    equal([booked, room.open, room.deliveries], [none, 1, 2]);
    hear(2, text, 150);
    equal([booked, room.open, room.deliveries], [{ ...none, delivered: [50] }, 0, 3]);
  },
  'room: the clock is asked once for a message'() {
    const { room } = roomOf(3);
    const text = room.say(0);
    let asked = 0;
    for (const member of [0, 1, 2]) {
      room.heard(member, text, 0, () => (asked += 1));
    }
    equal(asked, 1);
  },
  'room: messages overtake each other'() {
    const { room, booked, hear } = roomOf(2);
    const [first, second] = [room.say(0), room.say(10)];
    hear(0, second, 20);
    hear(1, second, 30);
    hear(0, first, 40);
    hear(1, first, 50);
    equal(booked, { ...none, delivered: [20, 50] });
  },
  'room: a second copy is a duplicate, before and after the message has arrived everywhere'() {
    const { room, booked, hear } = roomOf(2);
    const text = room.say(0);
    hear(0, text);
    hear(0, text);
    hear(1, text, 5);
    hear(1, text);
    equal(booked, { ...none, delivered: [5], duplicate: 2 });
  },
  'room: who leaves is not waited for, and the message is not delivered'() {
    const { room, booked, hear } = roomOf(3);
    const text = room.say(0);
    hear(0, text);
    room.leave(1);
    equal(booked, none);
    hear(2, text);
    equal(booked, { ...none, failed: 1 });
    room.expire(1);
    equal(booked, { ...none, failed: 1 });
  },
  'room: who leaves after they have heard it does no harm'() {
    const { room, booked, hear } = roomOf(2);
    const text = room.say(0);
    hear(0, text);
    room.leave(0);
    hear(1, text, 3);
    equal(booked, { ...none, delivered: [3] });
  },
  'room: who is not there is not expected; who comes later may hear it, and need not'() {
    const { room, booked, hear } = roomOf(3);
    room.leave(2);
    room.leave(2);
    const text = room.say(0);
    room.enter(2);
    room.enter(2);
    hear(2, text);
    hear(0, text);
    hear(1, text, 4);
    equal([booked, room.deliveries], [{ ...none, delivered: [4] }, 2]);
    const next = room.say(10);
    hear(0, next);
    hear(1, next);
    equal(room.open, 1);
    hear(2, next, 12);
    equal(booked.delivered, [4, 2]);
  },
  'room: what is not heard by all is given up once, and what comes then is late'() {
    const { room, booked, hear } = roomOf(2);
    const [old, young] = [room.say(0), room.say(10)];
    hear(0, old);
    room.expire(5);
    room.expire(5);
    hear(1, old);
    equal([booked, room.open], [{ ...none, failed: 1, late: 1 }, 1]);
    hear(0, young);
    hear(1, young, 12);
    equal(booked.delivered, [2]);
  },
  'room: a refused message has failed once'() {
    const { room, booked, hear } = roomOf(2);
    const text = room.say(0);
    room.refused(0);
    room.refused(0);
    room.refused(5);
    room.expire(1);
    equal(booked, { ...none, failed: 1 });
    hear(0, text);
    equal(booked.late, 1);
  },
  'room: what is not its own message, or not whole, is misdelivered'() {
    const { room, booked, hear } = roomOf(2, 64);
    const text = room.say(0);
    const bad = ['', '#', 'hello', '#7#', '#7#0', '#7##abc', '#8#0#abc', '#77#0#abc', text.replace('#0#', '#1#'), text.replace('#0#', '#x#'), text.replace('#0#', '#-1#'), text.replace('#0#', '#0.5#'), text.slice(0, -1), text.replace('k', 'K')];
    for (const frame of bad) {
      hear(0, frame);
    }
    equal(booked, { ...none, misdelivered: bad.length });
  },
  'room: in a frame, from where its text begins'() {
    const { room, booked } = roomOf(1, 64);
    room.heard(0, `["#7#5#", "${room.say(0)}"]`, 11, () => 9);
    equal(booked, { ...none, delivered: [9] });
  },
};

// A WebSocket that keeps what is sent.
class Fake {
  constructor(url, protocols) {
    Object.assign(this, { url, protocols, sent: [], readyState: 1 });
    Fake.last = this;
  }

  send(text) {
    this.sent.push(text);
  }

  close() {
    this.readyState = 3;
  }
}

// A socket that is open, with what it has heard.
async function open(protocol) {
  const heard = [];
  const refused = [];
  const options = { timeout: 1000, room: 7, heard: (frame, from) => heard.push(frame.slice(from)), refused: (n) => refused.push(n), Implementation: Fake };
  const socket = new PROTOCOLS[protocol].Member('ws://x', options);
  const opening = socket.open();
  Fake.last.onopen();
  await opening;
  return { socket, fake: Fake.last, heard, refused, get: (frame) => Fake.last.onmessage({ data: frame }) };
}

const protocolCases = {
  async 'phoenix: joins, speaks, hears, in Phoenix’s way of writing and in another'() {
    const { socket, fake, heard, refused, get } = await open('phoenix');
    const joining = socket.join();
    equal(JSON.parse(fake.sent[0]), ['1', '1', 'room:7', 'phx_join', {}]);
    get('["1","1","room:7","phx_reply",{"status":"ok","response":{}}]');
    await joining;
    socket.say('#7#0#abc', 0);
    equal(JSON.parse(fake.sent[1]), ['1', '2', 'room:7', 'publish_msg', { body: '#7#0#abc' }]);
    get('[null,null,"room:7","new_message",{"body":"#7#0#abc"}]');
    get('[null, null, "room:7", "new_message", {"body": "#7#0#abc"}]');
    get('[null,null,"room:8","new_message",{"body":"#7#0#abc"}]');
    get('[null,null,"room:7","presence_diff",{}]');
    equal(heard, ['#7#0#abc"}]', '#7#0#abc']);
    get('["1","2","room:7","phx_reply",{"status":"ok","response":{}}]');
    socket.say('#7#1#abc', 1);
    get('["1","3","room:7","phx_reply",{"status":"error","response":{}}]');
    equal([refused, socket.unanswered.size], [[1], 0]);
    await socket.close();
  },
  async 'phoenix: a refused join says what the server said'() {
    const { socket, get } = await open('phoenix');
    const joining = socket.join();
    get('["1","1","room:7","phx_reply",{"status":"error","response":{"reason":"full"}}]');
    await throws(() => joining, (e) => e.reason === 'refused' && e.message.includes('full'));
    await socket.close();
  },
  async 'websocket: what is said is what is sent'() {
    const { socket, fake, heard, get } = await open('websocket');
    await socket.join();
    socket.say('#7#0#abc', 0);
    get('#7#0#abc');
    equal([fake.sent, heard], [['#7#0#abc'], ['#7#0#abc']]);
    await socket.close();
  },
  async 'action cable: subscribes without a welcome, speaks, hears, ignores pings and answers'() {
    const { socket, fake, heard, get } = await open('action_cable');
    equal(fake.protocols, 'actioncable-v1-json');
    const joining = socket.join();
    const { command, identifier } = JSON.parse(fake.sent[0]);
    equal([command, JSON.parse(identifier)], ['subscribe', { channel: 'RoomChannel', room: '7' }]);
    get('{"type":"welcome"}');
    get(JSON.stringify({ identifier, type: 'confirm_subscription' }));
    await joining;
    socket.say('#7#0#abc', 0);
    const said = JSON.parse(fake.sent[1]);
    equal([said.command, said.identifier, JSON.parse(said.data)], ['message', identifier, { action: 'publish_msg', body: '#7#0#abc' }]);
    get('{"type":"ping","message":1700000000}');
    get(JSON.stringify({ identifier, message: { reply: 'ok' } }));
    get(JSON.stringify({ identifier: 'other', message: { body: 'no' } }));
    get(JSON.stringify({ identifier, message: { body: '#7#0#abc' } }));
    get(JSON.stringify({ message: { body: '#7#0#abc' }, identifier }));
    equal(heard, ['#7#0#abc"}}', '#7#0#abc']);
    await socket.close();
  },
  async 'action cable: a rejection, and an end that the server announces'() {
    const { socket, get } = await open('action_cable');
    const joining = socket.join();
    get(JSON.stringify({ identifier: socket.identifier, type: 'reject_subscription' }));
    await throws(() => joining, (e) => e.reason === 'refused');
    await socket.close();
    const other = await open('action_cable');
    const waiting = other.socket.join();
    other.get('{"type":"disconnect","reason":"unauthorized","reconnect":false}');
    await throws(() => waiting, (e) => e.reason === 'closed' && e.message.includes('unauthorized'));
  },
  async 'phoenix and action cable: what belongs to no protocol ends the socket'() {
    for (const protocol of ['phoenix', 'action_cable']) {
      for (const frame of ['what?', '7', '[]', 'null']) {
        const { socket, get } = await open(protocol);
        get(frame);
        equal([protocol, frame, socket.ended && socket.ended.reason], [protocol, frame, 'bad_message']);
      }
    }
  },
};

const env = (more = {}) => ({ BASE_URL: 'http://a:4000', ...more });

const optionCases = {
  'rooms options: defaults'() {
    const { protocol, users, roomSize, rooms, speakers, everyMs, bytes, durationMs, rampMs, path, vus } = readRoomsOptions(env());
    equal([protocol, users, roomSize, rooms, speakers, everyMs, bytes, durationMs, rampMs, path, vus],
      ['phoenix', 200, 50, 4, 50, [10000, 60000], 64, 300000, 75000, '/socket/websocket?vsn=2.0.0', 2]);
  },
  'rooms options: all of a room is in one VU and one runner, and every room is somewhere'() {
    for (const [users, size, perVu, runners] of [[2500, 50, 100, 2], [55000, 200, 100, 3], [1000, 10, 100, 4], [70, 7, 100, 10], [30, 30, 1, 1]]) {
      const config = readRoomsOptions(env({ USERS: String(users), ROOM_SIZE: String(size), USERS_PER_VU: String(perVu), RUNNERS: String(runners) }));
      const dealt = [];
      const byRunner = {};
      for (let vu = 0; vu < config.vus; vu++) {
        const rooms = usersOf(vu, config.vus, config.rooms);
        dealt.push(...rooms);
        byRunner[vu % runners] = (byRunner[vu % runners] || 0) + rooms.length;
      }
      equal(dealt.sort((a, b) => a - b), Array.from({ length: users / size }, (_, i) => i));
      equal([config.vus % runners, Math.max(...Object.values(byRunner))], [0, Math.ceil(users / size / runners)]);
    }
  },
  async 'rooms options: several problems, a sentence each'() {
    await throws(() => readRoomsOptions({ PROTOCOL: 'x', USERS: '7', ROOM_SIZE: '5', EVERY: '1s-', BYTES: '1' }),
      (e) => ['PROTOCOL=x', 'USERS=7', 'EVERY=1s-', 'BYTES=1', 'BASE_URLS is missing'].every((part) => e.message.includes(part)));
  },
  'requests options: defaults, and a sum only where it is one'() {
    const { method, path, connections, rate, durationMs, sum, vus } = readRequestsOptions(env());
    equal([method, path, connections, rate, durationMs, sum, vus], ['POST', '/api/sum', 12, 0, 60000, true, 12]);
    equal(readRequestsOptions(env({ BODY: '{}' })).sum, false);
    equal(readRequestsOptions(env({ REQUEST_PATH: '/x' })).sum, false);
    equal(readRequestsOptions(env({ METHOD: 'GET' })).body, []);
  },
  async 'requests options: a body for a method that has none'() {
    await throws(() => readRequestsOptions(env({ METHOD: 'GET', BODY: 'x' })), (e) => e.message.includes('METHOD=GET has none'));
  },
  'requests options: numbers in a body are drawn from all that they may be'() {
    const { body } = readRequestsOptions(env());
    const drawn = new Set();
    for (let i = 0; i < 5000; i++) {
      const { text, numbers } = fill(body);
      const { a, b } = JSON.parse(text);
      equal([a, b], numbers);
      drawn.add(a);
    }
    equal([drawn.size, Math.min(...drawn), Math.max(...drawn)], [100, 1, 100]);
    equal(fill(readRequestsOptions(env({ BODY: 'x{5..5}y{7..7}' })).body), { text: 'x5y7', numbers: [5, 7] });
  },
};

export default function unit() {
  return runCases({ ...roomCases, ...protocolCases, ...optionCases });
}

// k6 run loadtests/k6/test/unit.js

import { Blob } from 'k6/websockets';
import { timeAway } from '../lib/away.js';
import { connectReason, LiveViewError, REASON_TAGS, REASONS, reasonTag } from '../lib/errors.js';
import { coarser, histogram, merge, quantile, TREND_STATS } from '../lib/histogram.js';
import { LiveView } from '../lib/liveview.js';
import { parseDuration, readOptions } from '../lib/options.js';
import { parsePage, tags } from '../lib/page.js';
import { Rendered } from '../lib/rendered.js';
import { DURATIONS, report, SERVICE, summary, table, terminationLog, thresholds } from '../lib/report.js';
import { placeOf, segmentOptions, usersOf } from '../lib/runners.js';
import { Socket } from '../lib/socket.js';
import { Stash } from '../lib/stash.js';
import { limit, sleep, startWait } from '../lib/wait.js';
import { equal, runCases, throws, unitOptions, unitSummary } from './harness.js';

export const options = unitOptions;
export const handleSummary = unitSummary;

const badPage = (error) => error.reason === 'bad_page';
const MAIN = '<div id="phx-1" data-phx-main data-phx-session="SES" data-phx-static="STA"></div>';
const META = '<meta name="csrf-token" content="TOKEN">';

const pageCases = {
  'page: as Phoenix writes it'() {
    equal(parsePage(`<!DOCTYPE html><html><head>${META}</head><body>${MAIN}</body></html>`), {
      csrf: 'TOKEN',
      id: 'phx-1',
      session: 'SES',
      static: 'STA',
    });
  },
  'page: other order, quotes, case, no quotes, line breaks, self-closing'() {
    const html = `<META content='TOKEN'\n name = csrf-token /><Div data-phx-static=STA\tdata-phx-session='SES' DATA-PHX-MAIN="true" id=phx-1>`;
    equal(parsePage(html), { csrf: 'TOKEN', id: 'phx-1', session: 'SES', static: 'STA' });
  },
  'page: entities in values'() {
    const html = `<meta name="csrf-token" content="a&amp;b&quot;&#39;&#x3C;&gt;&unknown;">${MAIN}`;
    equal(parsePage(html).csrf, `a&b"'<>&unknown;`);
  },
  'page: tags in comments, scripts, styles, titles and values are no tags'() {
    const html = `<!-- ${MAIN} --><title>${META}</title><script>if (a<b) "${MAIN}"</script><style>${META}</style>
      <textarea></textarea x>${META}<p title="${'>'}<div data-phx-main>">1 < 2</p>${MAIN}`;
    equal(parsePage(html).id, 'phx-1');
  },
  'page: further LiveViews that are not the main one'() {
    equal(parsePage(`${META}${MAIN}<div id="phx-2" data-phx-session="x" data-phx-static="y"></div>`).id, 'phx-1');
  },
  'page: first of two attributes of one name counts'() {
    equal(tags('<a id="1" id="2" =x>')[0].attributes, { id: '1', x: '' });
  },
  'page: an entity of a character that there is not'() {
    equal(parsePage(META.replace('TOKEN', 'a&#x110000;&#99999999999;b') + MAIN).csrf, 'a\ufffd\ufffdb');
  },
  async 'page: a missing or doubled part is named'() {
    await throws(() => parsePage(META), (e) => badPage(e) && e.message.includes('0 elements with data-phx-main'));
    await throws(() => parsePage(META + MAIN + MAIN), (e) => badPage(e) && e.message.includes('2 elements'));
    await throws(() => parsePage(MAIN), (e) => badPage(e) && e.message.includes('csrf-token'));
    await throws(() => parsePage(META + META + MAIN), badPage);
    await throws(() => parsePage(META + MAIN.replace('"STA"', '""')), (e) => badPage(e) && e.message.includes('empty static'));
    await throws(() => parsePage(META + MAIN.replace('data-phx-session="SES"', '')), (e) => badPage(e) && e.message.includes('session'));
    await throws(() => parsePage(''), badPage);
  },
  async 'page: cut anywhere, it is a bad page and never something else'() {
    const html = `${META}<script>x</script><!-- c -->${MAIN.replace('></div>', '>')}`;
    for (let end = 0; end < html.length; end++) {
      await throws(() => parsePage(html.slice(0, end)), badPage);
    }
    equal(parsePage(html).id, 'phx-1');
  },
};

// A page as the workload sends it: shared static strings in "p".
const joined = () => ({ 0: 'new', 1: '0', 2: 'ets', p: { 0: ['<b>', '</b><i>', '</i>', ''] }, s: 0, r: 1, e: [['live-stash:init-ets', { stashId: 'x' }]] });

const renderedCases = {
  'rendered: texts, events, and statics through a template'() {
    const r = new Rendered(joined());
    equal([r.text(0), r.text(1), r.text(7)], ['new', '0', undefined]);
    equal(r.html(), '<b>new</b><i>0</i>ets');
  },
  'rendered: a diff changes what it names'() {
    const r = new Rendered(joined());
    const came = r.merge({ 1: '1', e: [['a', { b: 1 }]], t: 'Title' });
    equal([r.text(0), r.text(1)], ['new', '1']);
    equal(came, { events: [['a', { b: 1 }]], title: 'Title' });
  },
  'rendered: reply of an event, also false and null, and not the mark of a full render'() {
    const r = new Rendered(joined());
    equal(r.merge({ r: { ok: true } }).reply, { ok: true });
    equal(r.merge({ r: false }).reply, false);
    equal([r.merge(joined()).reply], [undefined]);
  },
  'rendered: an empty diff changes nothing'() {
    const r = new Rendered(joined());
    equal(r.merge({}), { events: [] });
    equal(r.html(), '<b>new</b><i>0</i>ets');
  },
  'rendered: subtrees are merged, replaced when they have statics, and can become text'() {
    const r = new Rendered({ 0: { 0: 'a', 1: 'b', s: ['(', '|', ')'] }, s: ['', ''] });
    r.merge({ 0: { 1: 'c' } });
    equal(r.html(), '(a|c)');
    r.merge({ 0: { 0: 'z', s: ['[', ']'] } });
    equal(r.html(), '[z]');
    r.merge({ 0: '' });
    equal(r.html(), '');
    r.merge({ 0: { 0: 'y', s: ['<', '>'] } });
    equal(r.html(), '<y>');
  },
  'rendered: templates of a diff are its own'() {
    const r = new Rendered({ 0: { s: 0 }, 1: { s: 1 }, s: ['', '', ''], p: { 0: ['A'], 1: ['B'] } });
    equal(r.html(), 'AB');
    r.merge({ 1: { s: 0 }, p: { 0: ['C'] } });
    equal(r.html(), 'AC');
  },
  'rendered: keyed comprehension grows, changes, moves and shrinks'() {
    const r = new Rendered({ 0: { s: ['<', '>'], k: { 0: { 0: 'a' }, 1: { 0: 'b' }, kc: 2 } }, s: ['', ''] });
    equal(r.html(), '<a><b>');
    r.merge({ 0: { k: { 2: { 0: 'c' }, kc: 3 } } });
    equal(r.html(), '<a><b><c>');
    r.merge({ 0: { k: { 0: 2, 2: 0, kc: 3 } } });
    equal(r.html(), '<c><b><a>');
    r.merge({ 0: { k: { 0: [1, { 0: 'B' }], 1: 0, kc: 2 } } });
    equal(r.html(), '<B><c>');
    r.merge({ 0: { k: { 1: { 0: 'd' }, kc: 2 } } });
    equal(r.html(), '<B><d>');
    r.merge({ 0: '' });
    equal(r.html(), '');
  },
  'rendered: moved entries do not share their parts'() {
    const r = new Rendered({ 0: { s: ['', ''], k: { 0: { 0: { 0: 'x', s: ['', ''] } }, kc: 1 } }, s: ['', ''] });
    r.merge({ 0: { k: { 1: [0, {}], kc: 2 } } });
    r.merge({ 0: { k: { 1: { 0: { 0: 'y' } }, kc: 2 } } });
    equal(r.html(), 'xy');
  },
  'rendered: templates inside entries that moved'() {
    const r = new Rendered({ 0: { s: ['', ''], k: { 0: { 0: '1' }, kc: 1 } }, s: ['', ''] });
    r.merge({ 0: { k: { 0: [0, { 0: { s: 0 } }], kc: 1 } }, p: { 0: ['T'] } });
    equal(r.html(), 'T');
  },
  'rendered: comprehension of LiveView before 1.1'() {
    const r = new Rendered({ 0: { s: ['<', '>'], d: [['a'], ['b']] }, s: ['', ''] });
    equal(r.html(), '<a><b>');
    r.merge({ 0: { d: [['c']] } });
    equal(r.html(), '<c>');
  },
  'rendered: components, alone and with the statics of another'() {
    const r = new Rendered({ 0: 1, 1: 2, s: ['', '', ''], c: { 1: { 0: 'a', s: ['<', '>'] }, 2: { 0: 'b', s: 1 } } });
    equal(r.html(), '<a><b>');
    r.merge({ c: { 1: { 0: 'A' }, 2: { 0: 'B' } } });
    equal(r.html(), '<A><B>');
    r.merge({ c: { 1: { 0: 'changed' }, 3: { 0: 'C', s: -1 } }, 0: 3 });
    equal(r.html(), '<C><B>');
    equal(r.html(1), '<changed>');
  },
};

// What servers that mean harm send, or broken ones: fuzz.js has found it. Each would have ended a runner, or held it up for ever.
const hostileCases = {
  async 'hostile: a page that never ends'() {
    const endless = {
      'a component in itself': { 0: 1, s: ['', ''], c: { 1: { 0: 1, s: ['', ''] } } },
      'a part that is missing': { s: ['a', 'b'] },
      'a count of entries': { 0: { s: ['x'], k: { 0: { 0: 'a' }, kc: 100000 } }, s: ['', ''] },
      'a long text again and again': { 0: { s: ['x'.repeat(3000), ''], k: Object.assign({ kc: 99999 }, Array.from({ length: 99999 }, () => ({ 0: '' }))) }, s: ['', ''] },
    };
    for (const what of Object.keys(endless)) {
      const r = new Rendered(endless[what]);
      await throws(() => r.html(), is('bad_message'));
    }
  },
  async 'hostile: what is no render'() {
    const deep = (n) => JSON.parse(`${'{"0":'.repeat(n)}{}${'}'.repeat(n)}`);
    const wrong = {
      'more entries than anybody has': { 0: { s: [''], k: { kc: 1e15 } }, s: ['', ''] },
      'fewer entries than none': { 0: { s: [''], k: { kc: -1e15 } }, s: ['', ''] },
      'components that are each other\'s model': { s: [''], c: { 1: { s: 2 }, 2: { s: 1 } } },
      'a component by another name': { s: [''], c: { x: { s: [''] } } },
      'parts in each other': { 0: deep(5000), s: ['', ''] },
      'lists in each other': { 0: { d: JSON.parse('['.repeat(5000) + ']'.repeat(5000)), s: [''] }, s: ['', ''] },
      'entries that are none': { 0: { d: 'ab', s: ['', ''] }, s: ['', ''] },
      'events that are no list': { s: [''], e: 7 },
      'an event without a name': { s: [''], e: [[7, {}]] },
      'an event without details': { s: [''], e: [['live-stash:stash-state', null]] },
    };
    for (const what of Object.keys(wrong)) {
      const view = new LiveView({ path: '/x' });
      const error = await throws(() => view.merge(wrong[what]), is('bad_message'));
      equal(typeof error.message, 'string', what);
    }
  },
  async 'hostile: nothing is written into all objects'() {
    const view = new LiveView({ path: '/x' });
    view.merge({ s: [''] });
    await throws(() => view.merge(JSON.parse('{"__proto__": {"polluted": "yes"}}')), is('bad_message'));
    await throws(() => view.merge(JSON.parse('{"0": {"__proto__": {"polluted": "yes"}}}')), is('bad_message'));
    equal({}.polluted, undefined);
  },
  async 'hostile: replies to messages that were never sent'() {
    const [socket, ws] = await openSocket();
    for (const ref of ['toString', 'constructor', '__proto__', 'hasOwnProperty', null]) {
      ws.says('1', ref, 't', 'phx_reply', { status: 'ok' });
    }
    equal(socket.ended, false);
    ws.says('1', { toString: [] }, 't', 'phx_reply', { status: 'ok' });
    equal(socket.ended.reason, 'bad_message');
  },
};

const stashCases = {
  'stash: every adapter of the wire description'() {
    const stash = new Stash();
    equal(stash.params, {});
    stash.apply([['live-stash:init-ets', { node: 'n', stashId: '1' }]]);
    equal(stash.params, { node: 'n', stashId: '1' });
    stash.apply([['live-stash:init-mnesia', { stashId: '2' }]]);
    equal(stash.params, { stashId: '2' });
    stash.apply([['live-stash:init-browser-memory', {}]]);
    equal(stash.params, {});
    stash.apply([['live-stash:stash-state', { assigns: 'TOKEN' }]]);
    equal(stash.params, { stashedState: 'TOKEN' });
    stash.apply([['live-stash:stash-state', { assigns: 'TOKEN2' }], ['other', { assigns: 'x' }]]);
    equal(stash.params, { stashedState: 'TOKEN2' });
    stash.apply([]);
    equal(stash.params, { stashedState: 'TOKEN2' });
  },
  'stash: the object of an event is not shared'() {
    const detail = {};
    const stash = new Stash();
    stash.apply([['live-stash:init-browser-memory', detail], ['live-stash:stash-state', { assigns: 'T' }]]);
    equal(detail, {});
  },
};

// Stands for k6's WebSocket: keeps what is sent, and does what a case tells it.
class FakeWebSocket {
  constructor(url, protocols, params) {
    Object.assign(this, { url, params, readyState: 0, sent: [], closes: 0, gone: false });
    FakeWebSocket.last = this;
  }
  send(data) {
    if (this.readyState !== 1) {
      throw new Error('InvalidStateError');
    }
    if (typeof data === 'string') {
      const frame = JSON.parse(data);
      this.sent.push(frame);
      if (this.alive && frame[3] === 'heartbeat') {
        this.says(null, frame[1], 'phoenix', 'phx_reply', { status: 'ok', response: {} });
      }
      return;
    }
    ArrayBuffer.isView(data);
    // k6: a write after the close frame fails, and that ends the connection.
    if (this.closes > 0) {
      this.gone = true;
      setTimeout(() => this.ends(1000), 1);
    }
  }
  close() {
    if (this.readyState === 0) {
      throw new Error('k6 would block here');
    }
    this.closes += 1;
    this.readyState = 2;
  }
  opens() {
    this.readyState = 1;
    this.onopen({});
  }
  ends(code, error) {
    this.readyState = 3;
    if (error) {
      this.onerror({ error });
    }
    this.onclose({ code });
  }
  says(...frame) {
    this.onmessage({ data: JSON.stringify(frame) });
  }
}

const socketWith = (more) => new Socket('ws://x', { timeout: 50, Implementation: FakeWebSocket, ...more });

async function openSocket(more) {
  const socket = socketWith(more);
  const opening = socket.open();
  FakeWebSocket.last.opens();
  await opening;
  return [socket, FakeWebSocket.last];
}

const is = (reason) => (error) => error instanceof LiveViewError && error.reason === reason;

const socketCases = {
  async 'socket: a reply goes to its message, whatever the order'() {
    const [socket, ws] = await openSocket();
    const first = socket.push(null, 't', 'phx_join', {});
    const second = socket.push('1', 't', 'event', { a: 1 });
    equal(ws.sent, [['1', '1', 't', 'phx_join', {}], ['1', '2', 't', 'event', { a: 1 }]]);
    ws.says('1', '2', 't', 'phx_reply', { status: 'ok', response: 2 });
    ws.says('1', '1', 't', 'phx_reply', { status: 'ok', response: 1 });
    equal([await first, await second], [{ status: 'ok', response: 1 }, { status: 'ok', response: 2 }]);
    await socket.close();
  },
  async 'socket: a reply that never comes is a timeout, and a late one is ignored'() {
    const [socket, ws] = await openSocket();
    await throws(() => socket.push(null, 't', 'phx_join', {}), is('timeout'));
    ws.says('1', '1', 't', 'phx_reply', { status: 'ok' });
    await socket.close();
  },
  async 'socket: the deadline cuts a wait, and that is no timeout'() {
    const [socket] = await openSocket({ timeout: 60000, deadline: Date.now() + 20 });
    await throws(() => socket.push(null, 't', 'phx_join', {}), is('ended'));
    await socket.close();
  },
  async 'socket: refused'() {
    const socket = socketWith();
    const opening = socket.open();
    FakeWebSocket.last.ends(undefined, 'connection refused');
    await throws(() => opening, (e) => is('connect')(e) && e.message.includes('connection refused'));
  },
  async 'socket: a handshake that was answered with no, and a machine without ports, are no refusals'() {
    for (const [text, reason] of [
      ['websocket: bad handshake', 'handshake'],
      ['dial tcp 10.0.0.1:4000: connect: cannot assign requested address', 'exhausted'],
      ['dial tcp 10.0.0.1:4000: socket: too many open files', 'exhausted'],
      ['unexpected EOF', 'connect'],
    ]) {
      const socket = socketWith();
      const opening = socket.open();
      FakeWebSocket.last.ends(undefined, text);
      await throws(() => opening, is(reason));
      equal(connectReason(text), reason);
    }
  },
  async 'socket: given up while connecting, it is not closed before it opens, then at once'() {
    const socket = socketWith();
    await throws(() => socket.open(), is('timeout'));
    const ws = FakeWebSocket.last;
    await socket.close();
    equal([ws.closes, ws.gone], [0, false]);
    ws.opens();
    equal([ws.closes, ws.gone], [1, true]);
  },
  async 'socket: close drops the connection without an answer of the server'() {
    const { isView } = ArrayBuffer;
    const [socket, ws] = await openSocket({ onClose: () => { throw new Error('called for our own close'); } });
    await socket.close();
    equal([ws.closes, ws.gone, ws.readyState], [1, true, 3]);
    equal(ArrayBuffer.isView === isView, true, 'ArrayBuffer.isView as before');
    await socket.close();
    await throws(() => socket.push(null, 't', 'e', {}), is('closed'));
  },
  async 'socket: closed by the server, with its code, once; waits end with it'() {
    const closed = [];
    const [socket, ws] = await openSocket({ onClose: (e) => closed.push([e.reason, e.code]) });
    const wait = socket.push(null, 't', 'e', {});
    ws.ends(1012, 'websocket: close 1012 (service restart)');
    await throws(() => wait, (e) => is('closed')(e) && e.code === 1012 && e.message.includes('service restart'));
    equal(closed, [['closed', 1012]]);
  },
  async 'socket: no close frame is code 1006'() {
    const closed = [];
    const [, ws] = await openSocket({ onClose: (e) => closed.push(e.code) });
    ws.ends(undefined);
    equal(closed, [1006]);
  },
  async 'socket: the end of a channel ends the socket'() {
    for (const [event, reason] of [['phx_error', 'crashed'], ['phx_close', 'closed']]) {
      const closed = [];
      const [socket, ws] = await openSocket({ onClose: (e) => closed.push(e.reason) });
      const wait = socket.push(null, 't', 'e', {});
      ws.says('1', '1', 't', event, {});
      await throws(() => wait, is(reason));
      await sleep(5);
      equal([closed, ws.gone], [[reason], true], event);
    }
  },
  async 'socket: what is no frame of the protocol ends the socket'() {
    for (const data of ['hello', '[]', '[1,2,3,4,5]', '{}', 'null', '["1","1","t","phx_reply",null]', new Blob([''])]) {
      const closed = [];
      const [, ws] = await openSocket({ onClose: (e) => closed.push(e.reason) });
      ws.onmessage({ data });
      equal([closed, ws.gone], [['bad_message'], true], String(data));
    }
  },
  async 'socket: a handler that throws ends this socket and nothing else'() {
    const closed = [];
    const [, ws] = await openSocket({ onPush: () => { throw new TypeError('oops'); }, onClose: (e) => closed.push(e.reason) });
    ws.says(null, null, 't', 'diff', {});
    equal(closed, ['bad_message']);
  },
  async 'socket: heartbeats go on while they are answered'() {
    const closed = [];
    const [socket, ws] = await openSocket({ heartbeat: 5, onClose: (e) => closed.push(e) });
    ws.alive = true;
    while (ws.sent.length < 3) {
      await sleep(5);
    }
    equal(ws.sent[0], [null, '1', 'phoenix', 'heartbeat', {}]);
    equal(closed, []);
    await socket.close();
    const sent = ws.sent.length;
    await sleep(20);
    equal(ws.sent.length, sent, 'heartbeats after close');
  },
  async 'socket: an unanswered heartbeat ends the socket'() {
    const closed = [];
    const [, ws] = await openSocket({ heartbeat: 10, onClose: (e) => closed.push(e.reason) });
    while (closed.length === 0) {
      await sleep(5);
    }
    equal([closed, ws.sent.length], [['timeout'], 1]);
  },
  async 'socket: messages that are no reply go to onPush'() {
    const pushed = [];
    const [socket, ws] = await openSocket({ onPush: (...message) => pushed.push(message) });
    ws.says(null, null, 'lv:x', 'diff', { 0: 'a' });
    equal(pushed, [['lv:x', 'diff', { 0: 'a' }]]);
    await socket.close();
  },
};

const waitCases = {
  async 'wait: the first of timeout and deadline'() {
    equal(limit(100), { ms: 100, reason: 'timeout' });
    equal(limit(100, Date.now() - 5), { ms: 1, reason: 'ended' });
    await throws(() => startWait('x', 5).promise, (e) => is('timeout')(e) && e.message.startsWith('x: no answer'));
    await throws(() => startWait('x', 5000, Date.now() + 5).promise, is('ended'));
  },
  async 'view: reconnect and event need a view that was connected'() {
    const view = new LiveView({ path: '/x' });
    await throws(() => view.reconnect('http://x'));
    await throws(() => view.event('click', 'x'), is('closed'));
    await view.disconnect();
  },
  async 'view: what was rendered is kept for as long as the view is joined'() {
    const view = new LiveView({ path: '/x', Implementation: FakeWebSocket });
    view.page = { csrf: 'c', id: 'phx-1', session: 's', static: 't' };
    view.topic = 'lv:phx-1';
    for (const end of [() => view.disconnect(), (ws) => ws.ends(1006)]) {
      const joined = view.reconnect('http://x');
      const ws = FakeWebSocket.last;
      ws.opens();
      await sleep(1);
      const [join] = ws.sent;
      ws.says(join[0], join[1], join[2], 'phx_reply', { status: 'ok', response: { rendered: { 0: 'a', s: ['', ''] } } });
      await joined;
      equal(view.rendered.text(0), 'a');
      await end(ws);
      equal([view.rendered, view.connected], [null, false]);
    }
  },
};

const env = (more) => ({ BASE_URL: 'http://a:4000', ...more });

const optionCases = {
  'options: defaults'() {
    const o = readOptions(env());
    equal([o.bases, o.adapter, o.path, o.users, o.usersPerVu, o.vus], [['http://a:4000'], 'ets', '/stash/ets', 200, 100, 2]);
    equal([o.ttlMs, o.durationMs, o.rampMs, o.pauseMs, o.timeoutMs], [60000, 180000, 45000, 2000, 10000]);
    equal([o.minRecovered, o.maxWrong, o.maxFailed, o.summary], [0.99, 0, 0.01, '']);
    equal([o.testid, o.runners, o.runner, o.descriptors], ['', 1, null, 20000]);
    equal([readOptions(env(), 'visits').pauseMs, o.inTime], [5000, 0.5]);
    equal([o.cleanerMs, o.maxClientDelayMs, o.events], [75000, 100, []]);
    equal([o.rampDownMs, readOptions(env(), 'visits').rampDownMs], [0, 45000]);
    equal(readOptions(env({ RAMP: '1s' }), 'visits').rampDownMs, 1000);
    equal(readOptions(env({ RAMP: '170s' }), 'visits').rampDownMs, 10000);
    equal(readOptions(env({ TTL: '8s', DURATION: '60s' }), 'visits').pauseMs, 4000);
  },
  'options: every one set'() {
    const o = readOptions({
      BASE_URLS: ' http://a/ , https://b.c:1 ',
      ADAPTER: 'redis',
      STASH_PATH: '/x?y=1',
      TESTID: 'run-1.x_2',
      USERS: '101',
      USERS_PER_VU: '50',
      RUNNERS: '2',
      JOB_COMPLETION_INDEX: '1',
      FILE_DESCRIPTORS: '1024',
      TTL: '5m',
      DURATION: '1m30s',
      RAMP: '7',
      RAMP_DOWN: '8s',
      PAUSE: '0',
      IN_TIME: '1',
      TIMEOUT: '1.5s',
      MIN_RECOVERED: '1',
      MAX_WRONG: '2',
      MAX_FAILED: '0.5',
      CLEANER: '2s',
      MAX_CLIENT_DELAY: '1m',
      EVENTS: '50s+2m, 5m+1m',
      SUMMARY: 'termination-log',
    });
    equal([o.bases, o.path, o.vus], [['http://a', 'https://b.c:1'], '/x?y=1', 4]);
    equal([o.ttlMs, o.durationMs, o.rampMs, o.pauseMs, o.timeoutMs, o.inTime], [300000, 90000, 7000, 0, 1500, 1]);
    equal([o.minRecovered, o.maxWrong, o.maxFailed, o.summary], [1, 2, 0.5, '/dev/termination-log']);
    equal([o.testid, o.runners, o.runner, o.descriptors], ['run-1.x_2', 2, 1, 1024]);
    equal([o.cleanerMs, o.maxClientDelayMs, o.rampDownMs], [2000, 60000, 8000]);
    equal(o.events, [{ from: 50000, to: 170000 }, { from: 300000, to: 360000 }]);
  },
  'options: the published lengths follow from the TTL'() {
    const lengths = (TTL) => { const o = readOptions(env({ TTL })); return [o.durationMs / 60000, o.rampMs / 60000]; };
    equal([lengths('1m'), lengths('5m'), lengths('15m')], [[3, 0.75], [15, 3.75], [45, 11.25]]);
  },
  async 'options: what does not fit together is told in a sentence'() {
    const refused = (more, sentence, scenario) => throws(() => readOptions(env(more), scenario), (e) => e.message.split('\n').length === 2 && e.message.includes(sentence));
    await refused({ DURATION: '60s', RAMP: '60s' }, 'RAMP must be shorter than DURATION');
    await refused({ DURATION: '60s', RAMP: '30s', RAMP_DOWN: '31s' }, 'RAMP and RAMP_DOWN together must not be longer than DURATION');
    await refused({ USERS: '3', RUNNERS: '4' }, 'RUNNERS=4 is more than USERS=3');
    await refused({ RUNNERS: '4', RUNNER: '4' }, 'This is runner 4, counted from 0, and RUNNERS=4');
    await refused({ JOB_COMPLETION_INDEX: '1' }, 'This is runner 1, counted from 0, and RUNNERS=1');
    await refused({ USERS: '25000' }, 'USERS=25000 on 1 runner need 25500 file descriptors each, and FILE_DESCRIPTORS=20000: use 2 runners');
    await refused({ USERS: '25000', RUNNERS: '2', FILE_DESCRIPTORS: '4000' }, 'on 2 runners need 13000 file descriptors each, and FILE_DESCRIPTORS=4000: use 8 runners');
    await refused({ TTL: '60s', DURATION: '118s' }, 'no visitor comes back after the TTL', 'visits');
    await refused({ TTL: '10s', PAUSE: '6s', DURATION: '60s' }, 'PAUSE must be at most half of TTL', 'visits');
    await refused({ TTL: '60s', FILE_DESCRIPTORS: '500' }, 'FILE_DESCRIPTORS=500: must be a whole number, at least 501');
    await refused({ EVENTS: '60s' }, 'EVENTS=60s: must be times with a length each, such as 50s+2m');
    await refused({ EVENTS: '1+2+3' }, 'must be times with a length each');
    await refused({ EVENTS: 'x+1m' }, 'EVENTS=x+1m: must be a duration');
    await refused({ TESTID: 'a b' }, 'TESTID=a b: must be at most 128 letters');
    readOptions(env({ USERS: '25000', RUNNERS: '2' }));
    readOptions(env({ USERS: '25000', RUNNERS: '8', FILE_DESCRIPTORS: '4000' }));
  },
  async 'options: durations'() {
    equal(['500ms', '60s', '2m', '1h', '1m30s', '7', '1.5', '0'].map(parseDuration), [500, 60000, 120000, 3600000, 90000, 7000, 1500, 0]);
    for (const bad of ['', 's', '-1s', '1 s', '1d', 'soon', '1s2']) {
      await throws(() => parseDuration(bad));
    }
  },
  async 'options: every problem is told, not the first only'() {
    const error = await throws(() => readOptions({ BASE_URL: 'a:4000', USERS: '1.5', ADAPTER: 'x', MIN_RECOVERED: '2', STASH_PATH: 'x' }));
    for (const part of ['BASE_URL', 'USERS=1.5', 'ADAPTER=x', 'MIN_RECOVERED=2', 'STASH_PATH=x']) {
      equal(error.message.includes(part), true, `${part} in ${error.message}`);
    }
  },
  async 'options: the same server twice'() {
    await throws(() => readOptions({ BASE_URLS: 'http://a,http://a/' }), (e) => e.message.includes('twice'));
  },
};

// What k6 tells of a Trend with these values (TrendSink.P: linear between the values of the nearest ranks).
function trendOf(samples) {
  const sorted = [...samples].sort((a, b) => a - b);
  const last = sorted.length - 1;
  const at = (share) => {
    const place = share * last;
    const low = sorted[Math.floor(place)];
    return low + (sorted[Math.ceil(place)] - low) * (place - Math.floor(place));
  };
  const sum = sorted.reduce((a, b) => a + b, 0);
  const values = { count: sorted.length, min: sorted[0], max: sorted[last], avg: sum / sorted.length };
  for (const stat of TREND_STATS.slice(4)) {
    values[stat] = at(Number(stat.slice(2, -1)) / 100);
  }
  return values;
}

// Reproducible, so that a failure can be looked at.
function random(seed) {
  let state = seed;
  return () => {
    state = (state * 1103515245 + 12345) % 2147483648;
    return (state + 0.5) / 2147483648;
  };
}

const nearestRank = (sorted, share) => sorted[Math.min(sorted.length, Math.max(1, Math.ceil(share * sorted.length))) - 1];
const total = ({ counts }) => counts.filter((n) => n > 0).reduce((a, b) => a + b, 0);

// Shapes of durations in ms: log-normal, with a second hump at 10 s, all the same, tiny, whole milliseconds, over 8 decades.
const shapes = [
  (r) => Math.exp(2 + Math.sqrt(-2 * Math.log(r())) * Math.cos(6.283 * r())),
  (r) => (r() < 0.02 ? 10000 + 50 * r() : 5 + 3 * r()),
  () => 7.5,
  (r) => 0.01 * r(),
  (r) => Math.ceil(20 * r()),
  (r) => 10 ** (8 * r() - 3),
];

const histogramCases = {
  'histogram: nothing counted'() {
    equal(histogram(undefined), { count: 0, sum: 0, min: null, max: null, scale: 5, offset: 0, counts: [] });
    equal([quantile(histogram({ count: 0 }), 0.5), coarser(histogram({})).scale, merge([histogram({}), histogram({})]).max], [null, 4, null]);
  },
  'histogram: few values are each in their bucket'() {
    const out = histogram(trendOf([1, 2, 4, 4, 1000]));
    equal([out.count, out.sum, out.min, out.max, out.offset], [5, 1011, 1, 1000, -1]);
    // 1, 2, 4 are the ends of buckets -1, 31, 63; 1000 is in bucket 318
    equal(out.counts, [1, -31, 1, -31, 2, -254, 1]);
    equal([coarser(out).offset, coarser(out).counts], [-1, [1, -15, 1, -15, 2, -127, 1]]);
  },
  'histogram: the pool of several runners is within the bounds that README.md states'() {
    for (let seed = 1; seed <= 8; seed++) {
      const r = random(seed);
      const runners = Array.from({ length: 1 + (seed % 5) }, (_, i) => {
        const shape = shapes[(seed + i) % shapes.length];
        return Array.from({ length: 1 + Math.floor(6000 * r()) }, () => shape(r));
      });
      const pool = runners.flat().sort((a, b) => a - b);
      const scales = runners.map((_, i) => 5 - ((seed + i) % 4));
      const parts = runners.map((samples, i) => {
        let part = histogram(trendOf(samples));
        equal(total(part), samples.length);
        while (part.scale > scales[i]) {
          part = coarser(part);
        }
        equal(total(part), samples.length);
        return part;
      });
      const merged = merge(parts);
      equal([merged.count, merged.scale, total(merged)], [pool.length, Math.min(...scales), pool.length]);
      equal(Math.abs(merged.max - pool[pool.length - 1]) <= 0.0005 && Math.abs(merged.min - pool[0]) <= 0.0005, true, 'min and max');
      const base = 2 ** (2 ** -merged.scale);
      const error = (base - 1) / (base + 1) + 1e-9;
      const ranks = 0.001 + runners.length / pool.length;
      for (const share of [0, 0.001, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999, 1]) {
        const answer = quantile(merged, share);
        // what is shorter than a microsecond counts as one, and min and max are rounded to whole ones
        const low = nearestRank(pool, share) * (1 - error) - 0.0005;
        const high = Math.max(0.001, nearestRank(pool, share + ranks)) * (1 + error) + 0.0005;
        equal(answer >= low && answer <= high, true, `seed ${seed}, quantile ${share}: ${answer} from ${low} to ${high}`);
      }
    }
  },
};

const runnerCases = {
  'runners: the users of all VUs of all runners are all users, each once, evenly'() {
    for (const runners of [1, 2, 3, 7, 8]) {
      for (const USERS of [runners, 10, 99, 101, 2501].filter((n) => n >= runners)) {
        for (const USERS_PER_VU of ['1', '7', '100', '99999']) {
          const { users, vus } = readOptions(env({ USERS: String(USERS), RUNNERS: String(runners), USERS_PER_VU, FILE_DESCRIPTORS: '99999' }));
          equal(vus % runners, 0);
          const seen = new Array(users).fill(0);
          const planned = new Array(runners).fill(0);
          for (let vu = 0; vu < vus; vu++) {
            for (const index of usersOf(vu, vus, users)) {
              seen[index] += 1;
              planned[vu % runners] += 1;
            }
          }
          equal(seen.every((n) => n === 1), true, `${USERS} users, ${runners} runners, ${USERS_PER_VU} per VU`);
          equal(Math.max(...planned) - Math.min(...planned) <= 1, true, `${USERS} users over ${runners} runners: ${planned}`);
        }
      }
    }
  },
  'runners: segments as k6-operator writes them, and back'() {
    equal(segmentOptions(1, 3), { executionSegment: '1/3:2/3', executionSegmentSequence: '0,1/3,2/3,1' });
    equal(segmentOptions(0, 1), { executionSegment: '0:1', executionSegmentSequence: '0,1' });
    for (const runners of [1, 2, 3, 4, 7, 50]) {
      for (let runner = 0; runner < runners; runner++) {
        const { executionSegment, executionSegmentSequence } = segmentOptions(runner, runners);
        equal(placeOf(executionSegment, executionSegmentSequence), { runner, runners });
      }
    }
    equal(placeOf('1/2:3/4', '0,1/4,1/2,3/4,1'), { runner: 2, runners: 4 });
    equal(placeOf(null, null), { runner: 0, runners: 1 });
  },
};

function endOfRun(more = {}) {
  return {
    state: { testRunDurationMs: 180001 },
    setup_data: { runner: 0, runners: 1, problem: null },
    metrics: {
      first_render: { values: trendOf([12.3456, 12.3456, 12.3456]) },
      stash: { values: trendOf([1, 1, 1]) },
      recovered: { values: { rate: 0.99999, passes: 99999, fails: 1 }, thresholds: { 'rate>=0.99': { ok: true } } },
      cycles: { values: { count: 3 }, thresholds: { 'count>0': { ok: true } } },
      error: { values: { count: 4 } },
      'error{reason:timeout}': { values: { count: 3 }, thresholds: { 'count>=0': { ok: true } } },
      'error{reason:http_404}': { values: { count: 1 }, thresholds: { 'count>=0': { ok: true } } },
      'connections{target:0}': { values: { count: 7 }, thresholds: { 'count>=0': { ok: true } } },
      ...more,
    },
  };
}

const awayCases = {
  'away: half of the visitors from 10 to 50 % of the TTL, the others one and a half, a tenth more or less'() {
    const r = random(1);
    const config = readOptions(env({ TTL: '5m' }), 'visits');
    const all = Array.from({ length: 4000 }, () => timeAway(config, false, 900000, r) / config.ttlMs).sort((a, b) => a - b);
    const early = all.filter((share) => share < 1);
    equal(Math.abs(early.length - 2000) < 150, true, `${early.length} of 4000 in time`);
    equal([early[0] >= 0.1, early[0] < 0.11, early[early.length - 1] > 0.49, early[early.length - 1] <= 0.5], [true, true, true, true]);
    const late = all.slice(early.length);
    equal([late[0] >= 1.35, late[0] < 1.36, late[late.length - 1] > 1.64, late[late.length - 1] <= 1.65], [true, true, true, true]);
  },
  'away: with a short TTL who is to be in time is so, pauses included'() {
    const r = random(2);
    const config = readOptions(env({ TTL: '10s', DURATION: '60s', IN_TIME: '1' }), 'visits');
    const longest = Math.max(...Array.from({ length: 1000 }, () => timeAway(config, true, 60000, r)));
    equal([longest <= 10000 - 1500 - 1.2 * 5000, longest > 1500], [true, true], `${longest}`);
  },
  'away: a patient one comes when the cleaner must have been there, if there is time for it'() {
    const config = readOptions(env(), 'visits');
    equal(timeAway(config, true, 180000), 60000 + 75000 + 1000);
    equal([timeAway(config, true, 130000), timeAway(config, false, 180000)].every((ms) => ms <= 99000), true);
    // Long after it anyway.
    equal(timeAway({ ...config, ttlMs: 900000 }, true, 2700000) >= 1.35 * 900000, true);
    equal(timeAway({ ...config, inTime: 1 }, true, 180000) <= 30000, true);
  },
};

const reportCases = {
  'report: what was counted'() {
    const out = report(endOfRun(), readOptions(env()));
    equal([out.passed, out.recovered, out.errors, out.connections], [true, { yes: 99999, no: 1, share: 0.99999 }, { timeout: 3, http_404: 1 }, { 'http://a:4000': 7 }]);
    const { first_render: first, reconnect } = out.durations;
    equal([first.count, first.p95, first.sum, reconnect.count, reconnect.max, reconnect.p50], [3, 12.346, 37.037, 0, null, null]);
    equal(Object.keys(out.durations), DURATIONS);
  },
  'report: a failed threshold is named'() {
    const data = endOfRun({ wrong_count: { values: { count: 1 }, thresholds: { 'count<=0': { ok: false } } } });
    const out = report(data, readOptions(env()));
    equal([out.passed, out.failed_thresholds], [false, ['wrong_count count<=0']]);
    equal(table(out).includes('FAILED: wrong_count count<=0'), true);
  },
  'report: a run that was stopped has not passed'() {
    const out = report({ ...endOfRun(), state: { testRunDurationMs: 8049 } }, readOptions(env()));
    equal([out.completed, out.passed], [false, false]);
    equal(table(out).includes('FAILED: stopped after 8 of 180 s'), true);
  },
  'report: a run that was not begun says why, and has not passed'() {
    const out = report({ ...endOfRun(), setup_data: { runner: 2, runners: 4, problem: 'No server.' } }, readOptions(env({ RUNNERS: '4' })));
    equal([out.completed, out.passed, out.problem, out.runner, out.runners], [false, false, 'No server.', 2, 4]);
    equal(table(out).includes('NOT RUN: No server.') && table(out).includes('runner 3 of 4'), true);
  },
  'report: the share is never rounded up to 100 %'() {
    equal(table(report(endOfRun(), readOptions(env()))).includes('99.99 % (99999 of 100000 reconnects)'), true);
  },
  'report: adapter none says what to expect'() {
    const data = endOfRun({ recovered: { values: { passes: 0, fails: 5 } } });
    const text = table(report(data, readOptions(env({ ADAPTER: 'none' }))));
    equal(text.includes('0.00 % (0 of 5 reconnects); without an adapter 0 % is what to expect'), true, text);
  },
  'report: failed steps, and the share of them'() {
    const out = report(endOfRun({ failed: { values: { passes: 1, fails: 3 } } }), readOptions(env()));
    equal(out.failed, { yes: 1, no: 3, share: 0.25 });
  },
  'report: visits tell late returns'() {
    const data = endOfRun({ late_recovered: { values: { passes: 1, fails: 5 } } });
    const out = report(data, readOptions(env(), 'visits'));
    equal([out.late.yes, out.late.no, table(out).includes('1 of 6 found their stash after the TTL')], [1, 5, true]);
  },
  'report: what was to be gone and is not'() {
    const judged = (values) => table(report(endOfRun({ expired_recovered: { values } }), readOptions(env(), 'visits')));
    equal(report(endOfRun({ expired_recovered: { values: { passes: 2, fails: 5 } } }), readOptions(env(), 'visits')).expired, { yes: 2, no: 5, share: 0.285714 });
    equal(judged({ passes: 2, fails: 5 }).includes('2 of 7 found what should be gone'), true);
    equal(judged({}).includes('expiry was not judged'), true);
  },
  'report: when it ran, and how late the runner was itself'() {
    const began = Date.now() - 180000;
    const data = endOfRun({ client_delay: { values: trendOf([1, 2, 400]) }, dropped: { values: { count: 7 } } });
    const out = report({ ...data, setup_data: { runner: 0, runners: 1, problem: null, began } }, readOptions(env()));
    equal([out.version, out.started_at, out.dropped], [3, new Date(began).toISOString(), 7]);
    equal(Date.parse(out.ended_at) - began >= 180000 && Date.parse(out.ended_at) <= Date.now(), true, out.ended_at);
    equal([out.client_delay.count, out.client_delay.max, out.client_delay.p99 > 390], [3, 400, true]);
    equal([report(endOfRun(), readOptions(env())).client_delay.p99, report({ metrics: {}, state: data.state }, readOptions(env())).started_at], [null, null]);
    equal(table(out).includes('392.0 ms (p99), 400.0 ms at most') && table(out).includes('7 (sockets'), true, table(out));
  },
  'report: returns during events and outside of them'() {
    const data = endOfRun({ reconnect_during: { values: trendOf([400, 800]) }, reconnect_outside: { values: trendOf([4]) }, cut: { values: { count: 7 } } });
    const out = report(data, readOptions(env({ EVENTS: '60s+1m' })));
    equal([out.durations.reconnect_during.count, out.durations.reconnect_outside.count, out.cut], [2, 1, 7]);
    equal(table(out).includes('7 (the same during events)'), true, table(out));
    const without = report(data, readOptions(env()));
    equal([without.durations.reconnect_during, without.cut], [undefined, undefined]);
    equal(table(without).includes('during events'), false);
  },
  'report: times from when a step began are there where they differ from those from when it should have begun'() {
    const names = (due, began) => {
      const data = endOfRun({ stash: { values: trendOf(due) }, stash_service: { values: trendOf(began) } });
      return Object.keys(report(data, readOptions(env())).durations);
    };
    const fast = Array.from({ length: 100 }, () => 2);
    equal(names(fast.map((ms) => ms + 0.9), fast), DURATIONS);
    equal(names([...fast, 9000, 7000, 5000], [...fast, 9000, 2, 2]), [...DURATIONS.slice(0, 3), 'stash_service', ...DURATIONS.slice(3)]);
  },
  'report: a run in which nothing happened'() {
    const out = report({ metrics: {}, state: { testRunDurationMs: 180000 } }, readOptions(env({ RUNNERS: '2', RUNNER: '1' })));
    equal([out.recovered.share, out.durations.first_render.count, out.cycles, out.runner, out.runners], [null, 0, 0, 1, 2]);
    equal(table(out).includes('- (no reconnect came to an end)'), true);
  },
  'report: line and file; the termination log fits into its 4,096 bytes, whatever was measured'() {
    const bases = Array.from({ length: 100 }, (_, i) => `http://livestash-pod-${i}.livestash-nodes.default.svc.cluster.local:4000`);
    const outputs = summary(endOfRun(), readOptions({ BASE_URLS: bases.join(','), SUMMARY: 'termination-log' }));
    const log = outputs['/dev/termination-log'];
    equal(log.length <= 4096, true, `${log.length} bytes`);
    equal([JSON.parse(log).servers, JSON.parse(log).left_out, JSON.parse(log).durations.stash.scale], [100, ['connections'], 5]);
    const line = outputs.stdout.split('\n').filter((text) => text.startsWith('LIVESTASH_RESULT '));
    equal(line.length, 1);
    equal(Object.keys(JSON.parse(line[0].slice('LIVESTASH_RESULT '.length)).connections).length, 100);
    const short = summary(endOfRun(), readOptions(env({ SUMMARY: 'termination-log' })))['/dev/termination-log'];
    equal(JSON.parse(short).connections, { 'http://a:4000': 7 });

    const r = random(5);
    const wide = trendOf(Array.from({ length: 50000 }, () => 10 ** (8 * r() - 3)));
    const narrow = trendOf(Array.from({ length: 50000 }, () => 10 ** (4 * r() - 3)));
    const services = Object.values(SERVICE);
    const worst = endOfRun(DURATIONS.reduce((all, name) => ({ ...all, [name]: { values: wide } }), {}));
    services.forEach((name) => { worst.metrics[name] = { values: narrow }; });
    const full = report(worst, readOptions(env()));
    equal(Object.keys(full.durations).length, DURATIONS.length + services.length);
    const text = terminationLog(full);
    equal(text.length <= 4096 && text.length > 2048, true, `${text.length} bytes`);
    equal([JSON.parse(text).durations.stash.count, total(JSON.parse(text).durations.stash)], [50000, 50000]);
    const before = quantile(full.durations.stash, 0.99);
    equal(Math.abs(quantile(JSON.parse(text).durations.stash, 0.99) - before) < 0.5 * before, true);
  },
  'report: thresholds'() {
    const rules = thresholds(readOptions(env({ MIN_RECOVERED: '0.5', MAX_WRONG: '3', MAX_FAILED: '0.2' })));
    equal([rules.recovered, rules.wrong_count, rules.failed], [['rate>=0.5'], ['count<=3'], ['rate<=0.2']]);
    equal(thresholds(readOptions(env({ ADAPTER: 'none' }))).recovered, ['rate==0']);
    equal([rules.client_delay, rules.expired_recovered], [['p(99)<=100'], ['rate==0']]);
    equal(REASON_TAGS.every((reason) => rules[`error{reason:${reason}}`]), true);
  },
  'report: every error is counted under a reason that the report knows'() {
    equal(REASONS.filter((reason) => reason !== 'ended').every((reason) => REASON_TAGS.includes(reasonTag({ reason }))), true);
    equal([404, 403, 503, 418, 0].map((code) => reasonTag({ reason: 'http', code })), ['http_404', 'http_403', 'http_503', 'http', 'http']);
    equal(reasonTag({ reason: 'closed', code: 1012 }), 'closed');
  },
};

export default async function unit() {
  await runCases({
    ...pageCases,
    ...renderedCases,
    ...hostileCases,
    ...stashCases,
    ...socketCases,
    ...waitCases,
    ...optionCases,
    ...histogramCases,
    ...runnerCases,
    ...awayCases,
    ...reportCases,
  });
}

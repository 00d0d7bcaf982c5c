// k6 run loadtests/k6/test/unit.js

import { Blob } from 'k6/websockets';
import { LiveViewError, REASONS } from '../lib/errors.js';
import { LiveView } from '../lib/liveview.js';
import { parseDuration, readOptions } from '../lib/options.js';
import { parsePage, tags } from '../lib/page.js';
import { Rendered } from '../lib/rendered.js';
import { Socket } from '../lib/socket.js';
import { Stash } from '../lib/stash.js';
import { result, summary, table, thresholds, TREND_STATS } from '../lib/summary.js';
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
    await sleep(40);
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
};

const env = (more) => ({ BASE_URL: 'http://a:4000', ...more });

const optionCases = {
  'options: defaults'() {
    const o = readOptions(env());
    equal([o.bases, o.adapter, o.path, o.users, o.usersPerVu, o.vus], [['http://a:4000'], 'ets', '/stash/ets', 200, 100, 2]);
    equal([o.durationMs, o.rampMs, o.pauseMs, o.timeoutMs], [60000, 6000, 2000, 10000]);
    equal([o.minRecovered, o.maxWrong, o.maxFailed, o.summary], [0.99, 0, 0.01, '']);
  },
  'options: every one set'() {
    const o = readOptions({
      BASE_URLS: ' http://a/ , https://b.c:1 ',
      ADAPTER: 'redis',
      STASH_PATH: '/x?y=1',
      USERS: '101',
      USERS_PER_VU: '50',
      DURATION: '1m30s',
      RAMP: '7',
      PAUSE: '0',
      TIMEOUT: '1.5s',
      MIN_RECOVERED: '1',
      MAX_WRONG: '2',
      MAX_FAILED: '0.5',
      SUMMARY: 'termination-log',
    });
    equal([o.bases, o.path, o.vus], [['http://a', 'https://b.c:1'], '/x?y=1', 3]);
    equal([o.durationMs, o.rampMs, o.pauseMs, o.timeoutMs], [90000, 7000, 0, 1500]);
    equal([o.minRecovered, o.maxWrong, o.maxFailed, o.summary], [1, 2, 0.5, '/dev/termination-log']);
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

const trendOf = (ms) => TREND_STATS.reduce((all, stat) => Object.assign(all, { [stat]: stat === 'count' ? 3 : ms }), {});

function endOfRun(more = {}) {
  return {
    state: { testRunDurationMs: 60001 },
    metrics: {
      first_render: { values: trendOf(12.3456) },
      stash: { values: trendOf(1) },
      recovered: { values: { rate: 0.99999, passes: 99999, fails: 1 }, thresholds: { 'rate>=0.99': { ok: true } } },
      cycles: { values: { count: 3 }, thresholds: { 'count>0': { ok: true } } },
      error: { values: { count: 4 } },
      'error{reason:timeout}': { values: { count: 3 }, thresholds: { 'count>=0': { ok: true } } },
      'error{reason:closed}': { values: { count: 1 }, thresholds: { 'count>=0': { ok: true } } },
      'connections{target:0}': { values: { count: 7 }, thresholds: { 'count>=0': { ok: true } } },
      ...more,
    },
  };
}

const summaryCases = {
  'summary: result'() {
    const out = result(endOfRun(), readOptions(env()));
    equal([out.passed, out.recovered, out.errors, out.connections], [true, { yes: 99999, no: 1, share: 0.99999 }, { timeout: 3, closed: 1 }, { 'http://a:4000': 7 }]);
    equal([out.first_render.count, out.first_render.quantiles[95], out.reconnect.count, out.reconnect.max], [3, 12.35, 0, null]);
  },
  'summary: a failed threshold is named'() {
    const data = endOfRun({ wrong_count: { values: { count: 1 }, thresholds: { 'count<=0': { ok: false } } } });
    const out = result(data, readOptions(env()));
    equal([out.passed, out.failed_thresholds], [false, ['wrong_count count<=0']]);
    equal(table(out).includes('FAILED: wrong_count count<=0'), true);
  },
  'summary: a run that was stopped has not passed'() {
    const out = result({ ...endOfRun(), state: { testRunDurationMs: 8049 } }, readOptions(env()));
    equal([out.completed, out.passed], [false, false]);
    equal(table(out).includes('FAILED: stopped after 8 of 60 s'), true);
  },
  'summary: the share is never rounded up to 100 %'() {
    equal(table(result(endOfRun(), readOptions(env()))).includes('99.99 % (99999 of 100000 reconnects)'), true);
  },
  'summary: adapter none says what to expect'() {
    const data = endOfRun({ recovered: { values: { passes: 0, fails: 5 } } });
    const text = table(result(data, readOptions(env({ ADAPTER: 'none' }))));
    equal(text.includes('0.00 % (0 of 5 reconnects); without an adapter 0 % is what to expect'), true, text);
  },
  'summary: a run in which nothing happened'() {
    const out = result({ metrics: {}, state: { testRunDurationMs: 60000 } }, readOptions(env()));
    equal([out.recovered.share, out.first_render.count, out.cycles], [null, 0, 0]);
    equal(table(out).includes('- (no reconnect came to an end)'), true);
  },
  'summary: result line and file; the termination log fits into its 4,096 bytes'() {
    const bases = Array.from({ length: 100 }, (_, i) => `http://livestash-pod-${i}.livestash-nodes.default.svc.cluster.local:4000`);
    const outputs = summary(endOfRun(), readOptions({ BASE_URLS: bases.join(','), SUMMARY: 'termination-log' }));
    const log = outputs['/dev/termination-log'];
    equal(log.length <= 4096, true, `${log.length} bytes`);
    equal([JSON.parse(log).servers, JSON.parse(log).left_out], [100, ['connections']]);
    const line = outputs.stdout.split('\n').filter((text) => text.startsWith('LIVESTASH_RESULT '));
    equal(line.length, 1);
    equal(Object.keys(JSON.parse(line[0].slice('LIVESTASH_RESULT '.length)).connections).length, 100);
    const short = summary(endOfRun(), readOptions(env({ SUMMARY: 'termination-log' })))['/dev/termination-log'];
    equal(JSON.parse(short).connections, { 'http://a:4000': 7 });
  },
  'summary: thresholds'() {
    const rules = thresholds(readOptions(env({ MIN_RECOVERED: '0.5', MAX_WRONG: '3', MAX_FAILED: '0.2' })));
    equal([rules.recovered, rules.wrong_count, rules.failed], [['rate>=0.5'], ['count<=3'], ['rate<=0.2']]);
    equal(thresholds(readOptions(env({ ADAPTER: 'none' }))).recovered, ['rate==0']);
    equal(REASONS.filter((reason) => reason !== 'ended').every((reason) => rules[`error{reason:${reason}}`]), true);
  },
};

export default async function unit() {
  await runCases({ ...pageCases, ...renderedCases, ...stashCases, ...socketCases, ...waitCases, ...optionCases, ...summaryCases });
}

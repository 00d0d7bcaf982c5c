// k6 run loadtests/k6/test/fuzz.js                     servers that answer anything: five seconds, the same cases each time
// k6 run -e FUZZTIME=10m -e SEED=0 loadtests/k6/test/fuzz.js      others each time
//
// Whatever a server sends, the library says what is wrong with a LiveViewError, and goes on: one runner has thousands of users, and all of
// them would end with an error of another kind, an endless loop or an endless text. A line says which case broke that, and how to run it
// again; what was found so stands in unit.js.

import { Counter } from 'k6/metrics';
import { LiveViewError } from '../lib/errors.js';
import { LiveView } from '../lib/liveview.js';
import { parseDuration } from '../lib/options.js';
import { parsePage } from '../lib/page.js';
import { MOST_HTML } from '../lib/rendered.js';
import { Socket } from '../lib/socket.js';

const time = parseDuration(__ENV.FUZZTIME || '5s');
const first = Number(__ENV.SEED || 1) || 1 + Math.floor(Math.random() * 1e9);

export const options = {
  thresholds: { finished: ['count==1'] },
  scenarios: { fuzz: { executor: 'per-vu-iterations', vus: 1, iterations: 1, maxDuration: `${time + 60000}ms` } },
};

const finished = new Counter('finished');

// How long one case may take, in ms. A busy machine stops for seconds.
const MOST = 20000;

// Numbers from 0 up to 1, the same for the same seed (mulberry32: neighbouring seeds have nothing in common).
function random(seed) {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const below = (r, n) => Math.floor(r() * n);
const one = (r, list) => list[below(r, list.length)];
const some = (r, most, make) => Array.from({ length: below(r, most + 1) }, () => make(r));

const NUMBERS = [0, 1, 2, 3, -1, -2, 7, 1.5, 1e15, -1e15, 4294967296, 1e308];
const TEXTS = ['', 'a', 'recovered', '0', '__proto__', 'constructor', 'toString', 'length', '<b>', '\u0000', '\ud800', 'lv:phx-1', 'x'.repeat(3000)];
const KEYS = ['0', '1', '2', '3', '-1', 's', 'p', 'c', 'k', 'kc', 'km', 'd', 'e', 'r', 't', 'stream', '__proto__', 'constructor', 'toString', 'then'];
const EVENTS = ['live-stash:init-ets', 'live-stash:init-', 'live-stash:stash-state', 'other', '', 7, null];

function anything(r, depth) {
  const kind = below(r, depth > 0 ? 9 : 6);
  if (kind < 2) {
    return one(r, TEXTS);
  }
  if (kind < 4) {
    return one(r, NUMBERS);
  }
  if (kind < 6) {
    return one(r, [null, true, false]);
  }
  if (kind === 6) {
    return some(r, 4, () => anything(r, depth - 1));
  }
  return tree(r, depth - 1);
}

// What looks like a render or a diff, and is one in some places only.
function tree(r, depth) {
  const node = Object.create(null);
  const part = () => (r() < 0.6 && depth > 0 ? tree(r, depth - 1) : anything(r, depth));
  for (let n = below(r, 5); n > 0; n--) {
    node[one(r, KEYS)] = part();
  }
  if (r() < 0.6) {
    node.s = r() < 0.3 ? one(r, NUMBERS) : some(r, 4, () => one(r, TEXTS));
  }
  if (r() < 0.2) {
    node.p = { 0: ['<', '>'], 1: anything(r, 1) };
  }
  if (r() < 0.25) {
    node.k = { 0: part(), 1: r() < 0.5 ? one(r, NUMBERS) : [one(r, NUMBERS), part()], kc: r() < 0.7 ? below(r, 4) : anything(r, 1) };
  }
  if (r() < 0.2) {
    node.c = { 1: part(), 2: part(), 3: { 0: below(r, 4), s: one(r, [1, 2, 3, -1, -2, ['', '']]) } };
  }
  if (r() < 0.3) {
    node.e = r() < 0.7 ? some(r, 3, () => [one(r, EVENTS), anything(r, 2)]) : anything(r, 2);
  }
  return node;
}

// Takes characters out of a text, puts others in, repeats some.
function mangled(r, text) {
  let out = text;
  for (let n = below(r, 4); n > 0; n--) {
    const at = below(r, out.length + 1);
    const to = at + below(r, 12);
    const put = one(r, ['', '', '<', '>', '"', "'", '=', '/', '<!--', '</', '<title>', '&#99999999;', '&#x110000;', '&#0;', out.slice(at, to).repeat(3)]);
    out = out.slice(0, at) + put + out.slice(to);
  }
  return out;
}

const PAGE = `<!DOCTYPE html><html><head><title>t</title><meta name="csrf-token" content="a&amp;&#39;b"><script>if (a<b) "x"</script></head>
<body><!-- c --><div id="phx-1" data-phx-main data-phx-session='SES' data-phx-static=STA></div></body></html>`;

// What a handler of a socket has thrown.
let escaped = null;

// Stands for k6's WebSocket: answers each message with what the seed makes of it.
function servedBy(r) {
  return class {
    constructor() {
      this.readyState = 0;
      Promise.resolve().then(() => {
        this.readyState = 1;
        this.onopen({});
      });
    }
    send(data) {
      if (typeof data !== 'string') {
        ArrayBuffer.isView(data); // the library closes the connection at that moment
        return;
      }
      const [joinRef, ref, topic] = JSON.parse(data);
      for (let n = 1 + below(r, 3); n > 0; n--) {
        const frame = answer(r, joinRef, ref, topic);
        Promise.resolve().then(() => {
          if (this.readyState !== 1) {
            return;
          }
          try {
            this.onmessage({ data: frame });
          } catch (error) {
            escaped = error; // in k6 it would end the iteration of all users
          }
        });
      }
    }
    close() {
      if (this.readyState === 1) {
        this.readyState = 3;
        Promise.resolve().then(() => this.onclose({ code: 1000 }));
      }
    }
  };
}

function answer(r, joinRef, ref, topic) {
  const reply = { status: one(r, ['ok', 'ok', 'ok', 'error', null]), response: response(r) };
  const frame = [
    r() < 0.8 ? joinRef : anything(r, 1),
    r() < 0.8 ? ref : anything(r, 1),
    r() < 0.8 ? topic : anything(r, 1),
    one(r, ['phx_reply', 'phx_reply', 'phx_reply', 'diff', 'phx_error', 'phx_close', 'redirect', '', '__proto__']),
    r() < 0.8 ? reply : anything(r, 3),
  ];
  const text = JSON.stringify(r() < 0.95 ? frame : anything(r, 3));
  return r() < 0.95 ? text : mangled(r, text);
}

function response(r) {
  if (r() < 0.1) {
    return anything(r, 3);
  }
  return r() < 0.5 ? { rendered: { s: ['', ''], ...tree(r, 4) }, diff: tree(r, 4) } : { diff: anything(r, 4), redirect: r() < 0.1 };
}

const isText = (value) => value === undefined || typeof value === 'string';

// Each returns what is wrong, or nothing. An error of another kind than the library's own is wrong too.
const targets = {
  page(r) {
    const page = parsePage(mangled(r, PAGE));
    return ['csrf', 'id', 'session', 'static'].every((part) => typeof page[part] === 'string' && page[part] !== '') ? '' : 'a part is missing';
  },
  rendered(r) {
    const view = new LiveView({ path: '/x' });
    view.merge({ s: ['', ''], ...tree(r, 4) });
    for (let n = below(r, 4); n > 0; n--) {
      view.merge(tree(r, 4));
      const texts = [view.rendered.text(0), view.rendered.text(1), view.rendered.html()];
      if (!texts.every(isText) || texts.some((text) => text && text.length > MOST_HTML)) {
        return 'what is rendered is no text, or longer than one may be';
      }
    }
    return '';
  },
  async view(r) {
    const view = new LiveView({ path: '/x', timeout: 10, onEvent: (name, detail) => name.length + Object.keys(detail).length, Implementation: servedBy(r) });
    Object.assign(view, { page: parsePage(PAGE), topic: 'lv:phx-1', url: 'http://x/x' });
    await view.reconnect('http://x');
    try {
      for (let n = below(r, 3); n > 0; n--) {
        await view.event('click', 'stash');
        if (![view.rendered.text(0), view.rendered.text(1)].every(isText)) {
          return 'a part is no text';
        }
      }
    } finally {
      await view.disconnect();
    }
    return '';
  },
  async socket(r) {
    const socket = new Socket('ws://x', { timeout: 10, Implementation: servedBy(r), onPush: () => {} });
    await socket.open();
    try {
      const reply = await socket.push(null, 'lv:phx-1', 'phx_join', {});
      return reply !== null && typeof reply === 'object' ? '' : 'a reply is no object';
    } finally {
      await socket.close();
    }
  },
};

async function failure(name, seed) {
  const began = Date.now();
  let wrong = '';
  escaped = null;
  try {
    wrong = await targets[name](random(seed));
  } catch (error) {
    escaped = error instanceof LiveViewError ? escaped : error;
  }
  if (escaped) {
    wrong = `${escaped.name}: ${escaped.message}\n${escaped.stack}`;
  }
  if (Object.keys(Object.prototype).length > 0) {
    wrong = `every object has the properties ${Object.keys(Object.prototype)} now`;
  }
  return wrong || (Date.now() - began > MOST ? `it took ${Date.now() - began} ms` : '');
}

export const handleSummary = () => ({});

export default async function fuzz() {
  const until = Date.now() + time;
  const names = Object.keys(targets);
  let seed = first;
  for (; Date.now() < until; seed++) {
    const name = names[seed % names.length];
    const wrong = await failure(name, seed);
    if (wrong) {
      console.error(`${name}, again with -e SEED=${seed} -e FUZZTIME=1ms: ${wrong}`);
      return;
    }
  }
  finished.add(1);
  console.log(`${seed - first} cases from seed ${first} on, and nothing wrong`);
}

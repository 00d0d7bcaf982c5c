// The tree of a rendered LiveView and the diffs that change it.
//
// A node is an object: "s" its static strings (or the number of a template in "p"), "0", "1", ... its dynamic parts. A
// dynamic part is a string, a node, or the number of a component in the root's "c". A comprehension has "k": entries by
// position and their count "kc"; before LiveView 1.1 it had "d": a list of entries. A diff is a node that carries changes
// only; "e" are pushed events, "t" the page's title, "r" the reply to an event (in a full render: a mark of no interest).

import { LiveViewError } from './errors.js';

/** Characters that the HTML of a page, or of a part, may have. */
export const MOST_HTML = 4 << 20;

// How deep a tree may be, components in components counted, and of how many parts the HTML may be made. A server can ask for endlessly many
// with one short message: a component that contains itself, or a count of entries.
const MOST_DEPTH = 200;
const MOST_PARTS = 100000;

/** What the server has rendered so far. */
export class Rendered {
  /** @param {Object} rendered the `rendered` part of a join reply; not used by the caller afterwards */
  constructor(rendered) {
    this.root = {};
    this.components = {};
    this.merge(rendered);
  }

  /**
   * Applies a full render or a diff.
   *
   * @param {Object} diff not used by the caller afterwards: parts of it become parts of the tree
   * @returns {{events: Array<[string, Object]>, reply: any, title: string|undefined}} what came with it: pushed events in
   *   order, the reply of `handle_event` (undefined when there is none), a new page title
   * @throws {Error} when it is none
   */
  merge(diff) {
    const { e: events = [], r: mark, t: title, c: components = {}, ...tree } = diff;
    if (!Array.isArray(events) || !events.every(isEvent)) {
      throw malformed('the pushed events are no list of names and details');
    }
    const isFull = tree.s !== undefined;
    resolveTemplates(tree, null, 0);
    this.root = mergeNode(this.root, tree);
    this.mergeComponents(components);
    return { events, reply: isFull ? undefined : mark, title };
  }

  /**
   * A dynamic part of the root.
   *
   * @param {number} slot its number, from 0
   * @returns {string|undefined} its text; undefined when there is no such part, HTML when the part is a subtree
   * @throws {LiveViewError} as html()
   */
  text(slot) {
    const part = this.root[slot];
    return part === undefined ? undefined : this.html(part);
  }

  /**
   * The whole page's HTML, or that of one part. Streams are rendered as far as the server has sent them in the last diff:
   * their older entries live in a browser's DOM only.
   *
   * @param {string|number|Object} [part] a node, a text or a component's number; default: the root
   * @returns {string}
   * @throws {LiveViewError} `bad_message` when a part is missing or is none, and when it would be longer than MOST_HTML
   */
  html(part = this.root) {
    return this.part(part, { parts: 0, length: 0 }, 0);
  }

  part(part, spent, depth) {
    if (depth > MOST_DEPTH) {
      throw malformed(`it is deeper than ${MOST_DEPTH} parts in each other`);
    }
    if (typeof part === 'string') {
      return counted(part, spent);
    }
    if (typeof part === 'number') {
      return part in this.components ? this.part(this.components[part], spent, depth + 1) : '';
    }
    if (!isNode(part)) {
      throw malformed('a part is missing, or is none');
    }
    if (part.k) {
      let out = '';
      for (let i = 0; i < part.k.kc; i++) {
        out += this.interleave(part.s, part.k[i], spent, depth);
      }
      return out;
    }
    if (part.d) {
      return part.d.map((entry) => this.interleave(part.s, entry, spent, depth)).join('');
    }
    return this.interleave(part.s, part, spent, depth);
  }

  interleave(statics, dynamics, spent, depth) {
    if (!Array.isArray(statics) || dynamics === null || typeof dynamics !== 'object') {
      throw malformed('a part lacks its static strings, or an entry is missing');
    }
    let out = counted(statics[0], spent);
    for (let i = 1; i < statics.length; i++) {
      out += this.part(dynamics[i - 1], spent, depth + 1) + counted(statics[i], spent);
    }
    return out;
  }

  mergeComponents(diffs) {
    if (!isNode(diffs) || !Object.keys(diffs).every((cid) => /^[0-9]+$/.test(cid) && isNode(diffs[cid]))) {
      throw malformed('the components are none');
    }
    const before = { ...this.components };
    const done = {};
    const begun = {};
    const build = (cid) => {
      if (done[cid]) {
        return done[cid];
      }
      if (begun[cid] || !diffs[cid]) {
        throw malformed(`component ${cid} is its own model, or is missing`);
      }
      begun[cid] = true;
      const { s: statics, ...changes } = diffs[cid];
      // A number instead of static strings: they, and all unchanged parts, are those of another component; below zero
      // of one that existed before this diff.
      if (typeof statics === 'number') {
        const model = copy(statics > 0 ? build(statics) : before[-statics]);
        resolveTemplates(changes, null, 0);
        done[cid] = mergeNode(model, changes);
        return done[cid];
      }
      resolveTemplates(diffs[cid], null, 0);
      done[cid] = cid in before ? mergeNode(before[cid], diffs[cid]) : diffs[cid];
      return done[cid];
    };
    // Models are built first: a model that this same diff changes must not be changed before it is copied.
    for (const cid of Object.keys(diffs)) {
      if (typeof diffs[cid].s === 'number' && diffs[cid].s < 0) {
        build(cid);
      }
    }
    Object.keys(diffs).forEach(build);
    Object.assign(this.components, done);
  }
}

function mergeNode(target, source) {
  if (!isNode(source) || !isNode(target) || source.s !== undefined) {
    return source;
  }
  if (source.k) {
    return mergeComprehension(target, source);
  }
  for (const key of Object.keys(source)) {
    target[key] = mergeNode(target[key], source[key]);
  }
  return target;
}

function mergeComprehension(target, source) {
  const { k: changes, ...rest } = source;
  // Moved entries refer to places before this diff, so the old places must stay readable while the new ones are filled.
  const old = copy(target.k || {});
  const entries = target.k || {};
  for (const place of Object.keys(changes)) {
    const change = changes[place];
    if (place === 'kc' || place === 'km') {
      continue;
    }
    if (typeof change === 'number') {
      entries[place] = old[change];
      continue;
    }
    entries[place] = Array.isArray(change) ? mergeNode(copy(old[change[0]]), change[1]) : mergeNode(entries[place], change);
  }
  for (let i = changes.kc; i < (old.kc || 0); i++) {
    delete entries[i];
  }
  entries.kc = changes.kc;
  return Object.assign(target, rest, { k: entries });
}

// Puts the shared static strings where they are used: the numbers are valid only within the diff that brought them.
// What it is given has been seen in full then, and can be merged.
function resolveTemplates(node, inherited, depth) {
  if (depth > MOST_DEPTH) {
    throw malformed(`it is deeper than ${MOST_DEPTH} parts in each other`);
  }
  if ((node.k !== undefined && !isKeyed(node.k)) || (node.d !== undefined && !Array.isArray(node.d))) {
    throw malformed('a comprehension is none');
  }
  const templates = node.p || inherited;
  delete node.p;
  if (templates && typeof node.s === 'number') {
    node.s = templates[node.s];
  }
  for (const key of Object.keys(node)) {
    // To write to it is to change every object of this VU.
    if (key === '__proto__') {
      throw malformed('a part has the name __proto__');
    }
    const part = node[key];
    if (isNode(part)) {
      resolveTemplates(part, templates, depth + 1);
    }
    if (Array.isArray(part) && key !== 's') {
      resolveList(part, templates, depth + 1);
    }
  }
}

function resolveList(list, templates, depth) {
  if (depth > MOST_DEPTH) {
    throw malformed(`it is deeper than ${MOST_DEPTH} parts in each other`);
  }
  for (const part of list) {
    if (isNode(part)) {
      resolveTemplates(part, templates, depth + 1);
    }
    if (Array.isArray(part)) {
      resolveList(part, templates, depth + 1);
    }
  }
}

// A text as it is. The sum of them is bounded.
function counted(text, spent) {
  if (typeof text !== 'string') {
    throw malformed('a static string is none');
  }
  spent.parts += 1;
  spent.length += text.length;
  if (spent.parts > MOST_PARTS || spent.length > MOST_HTML) {
    throw malformed(`it has more than ${MOST_PARTS} parts, or more than ${MOST_HTML} characters`);
  }
  return text;
}

// Entries by position and their count, which nothing but a loop compares with what is there.
function isKeyed(entries) {
  return isNode(entries) && (entries.kc === undefined || (Number.isInteger(entries.kc) && entries.kc >= 0 && entries.kc <= MOST_PARTS));
}

function isEvent(event) {
  return Array.isArray(event) && typeof event[0] === 'string' && isNode(event[1]);
}

function malformed(why) {
  return new LiveViewError('bad_message', `what the server rendered cannot be read: ${why}`);
}

function isNode(value) {
  return value !== null && typeof value === 'object' && !Array.isArray(value);
}

function copy(value) {
  return JSON.parse(JSON.stringify(value));
}

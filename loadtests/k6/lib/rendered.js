// The tree of a rendered LiveView and the diffs that change it.
//
// A node is an object: "s" its static strings (or the number of a template in "p"), "0", "1", ... its dynamic parts. A
// dynamic part is a string, a node, or the number of a component in the root's "c". A comprehension has "k": entries by
// position and their count "kc"; before LiveView 1.1 it had "d": a list of entries. A diff is a node that carries changes
// only; "e" are pushed events, "t" the page's title, "r" the reply to an event (in a full render: a mark of no interest).

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
   */
  merge(diff) {
    const { e: events = [], r: mark, t: title, c: components = {}, ...tree } = diff;
    const isFull = tree.s !== undefined;
    resolveTemplates(tree, null);
    this.root = mergeNode(this.root, tree);
    this.mergeComponents(components);
    return { events, reply: isFull ? undefined : mark, title };
  }

  /**
   * A dynamic part of the root.
   *
   * @param {number} slot its number, from 0
   * @returns {string|undefined} its text; undefined when there is no such part, HTML when the part is a subtree
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
   */
  html(part = this.root) {
    if (typeof part === 'string') {
      return part;
    }
    if (typeof part === 'number') {
      return part in this.components ? this.html(this.components[part]) : '';
    }
    if (part.k) {
      let out = '';
      for (let i = 0; i < part.k.kc; i++) {
        out += this.interleave(part.s, part.k[i]);
      }
      return out;
    }
    if (part.d) {
      return part.d.map((entry) => this.interleave(part.s, entry)).join('');
    }
    return this.interleave(part.s, part);
  }

  interleave(statics, dynamics) {
    let out = statics[0];
    for (let i = 1; i < statics.length; i++) {
      out += this.html(dynamics[i - 1]) + statics[i];
    }
    return out;
  }

  mergeComponents(diffs) {
    const before = { ...this.components };
    const done = {};
    const build = (cid) => {
      if (done[cid]) {
        return done[cid];
      }
      const { s: statics, ...changes } = diffs[cid];
      // A number instead of static strings: they, and all unchanged parts, are those of another component; below zero
      // of one that existed before this diff.
      if (typeof statics === 'number') {
        const model = copy(statics > 0 ? build(statics) : before[-statics]);
        resolveTemplates(changes, null);
        done[cid] = mergeNode(model, changes);
        return done[cid];
      }
      resolveTemplates(diffs[cid], null);
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
function resolveTemplates(node, inherited) {
  const templates = node.p || inherited;
  delete node.p;
  if (templates && typeof node.s === 'number') {
    node.s = templates[node.s];
  }
  for (const key of Object.keys(node)) {
    const part = node[key];
    if (isNode(part)) {
      resolveTemplates(part, templates);
    }
    if (Array.isArray(part) && key !== 's') {
      resolveList(part, templates);
    }
  }
}

function resolveList(list, templates) {
  for (const part of list) {
    if (isNode(part)) {
      resolveTemplates(part, templates);
    }
    if (Array.isArray(part)) {
      resolveList(part, templates);
    }
  }
}

function isNode(value) {
  return value !== null && typeof value === 'object' && !Array.isArray(value);
}

function copy(value) {
  return JSON.parse(JSON.stringify(value));
}

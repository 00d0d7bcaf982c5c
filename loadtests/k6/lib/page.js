// What a LiveView client needs from the first page. A tokenizer of its own and no DOM: a DOM of a whole page for each of
// thousands of users costs more than everything else the client does. It accepts any attribute order, quoting and case,
// and does not look into comments, scripts or style sheets; it does not accept a page that lacks a part, or has two.

import { LiveViewError } from './errors.js';

// Elements whose content is text: a tag inside them is no tag.
const RAW_TEXT = ['script', 'style', 'textarea', 'title', 'noscript', 'template'];
// The largest number of a character, and the character for what is none.
const MOST_CODE = 0x10ffff;
const REPLACEMENT = 0xfffd;
const ENTITIES = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" };

/**
 * Reads the parts a join needs.
 *
 * @param {string} html the page
 * @returns {{csrf: string, id: string, session: string, static: string}} CSRF token, id of the main LiveView's element,
 *   and its signed session and static tokens
 * @throws {LiveViewError} `bad_page`, naming the part that is missing or doubled
 */
export function parsePage(html) {
  const csrf = [];
  const main = [];
  for (const { name, attributes } of tags(html)) {
    if (name === 'meta' && attributes.name === 'csrf-token') {
      csrf.push(attributes.content);
    }
    if ('data-phx-main' in attributes) {
      main.push(attributes);
    }
  }
  if (main.length !== 1) {
    throw badPage(`the page has ${main.length} elements with data-phx-main instead of one: no LiveView, or an error page`);
  }
  if (csrf.length !== 1) {
    throw badPage(`the page has ${csrf.length} <meta name="csrf-token"> instead of one`);
  }
  const page = { csrf: csrf[0], id: main[0].id, session: main[0]['data-phx-session'], static: main[0]['data-phx-static'] };
  for (const part of ['csrf', 'id', 'session', 'static']) {
    if (!page[part]) {
      throw badPage(`the page's LiveView has an empty ${part}`);
    }
    page[part] = copied(page[part]);
  }
  return page;
}

/**
 * The opening tags of a page, in order.
 *
 * @param {string} html the page
 * @returns {Array<{name: string, attributes: Object<string, string>}>} names in lower case, values with entities decoded,
 *   '' for an attribute without a value
 * @throws {LiveViewError} `bad_page` when a tag, a comment or a quoted value is never closed
 */
export function tags(html) {
  const found = [];
  let at = html.indexOf('<');
  while (at !== -1) {
    at = skipTag(html, at, found);
    at = html.indexOf('<', at);
  }
  return found;
}

function skipTag(html, at, found) {
  if (html.startsWith('<!--', at)) {
    return after(html, '-->', at + 4, 'comment');
  }
  const next = html[at + 1] || '';
  if (next === '!' || next === '?' || next === '/') {
    return after(html, '>', at, 'tag');
  }
  if (!/[a-zA-Z]/.test(next)) {
    return at + 1; // a bare "<" in text
  }
  let end = at + 1;
  while (end < html.length && !isSpace(html[end]) && html[end] !== '>' && html[end] !== '/') {
    end++;
  }
  const tag = { name: html.slice(at + 1, end).toLowerCase(), attributes: {} };
  end = readAttributes(html, end, tag.attributes);
  found.push(tag);
  if (!RAW_TEXT.includes(tag.name)) {
    return end;
  }
  return endOfRawText(html, tag.name, end);
}

function endOfRawText(html, name, at) {
  for (;;) {
    const close = html.indexOf('</', at);
    if (close === -1) {
      throw badPage(`<${name}> is never closed`);
    }
    if (html.slice(close + 2, close + 2 + name.length).toLowerCase() === name) {
      return close;
    }
    at = close + 2;
  }
}

// Returns the place after the tag's ">".
function readAttributes(html, at, attributes) {
  for (;;) {
    while (isSpace(html[at]) || html[at] === '/') {
      at++;
    }
    if (at >= html.length) {
      throw badPage('a tag is never closed');
    }
    if (html[at] === '>') {
      return at + 1;
    }
    const start = at;
    while (at < html.length && !isSpace(html[at]) && html[at] !== '=' && html[at] !== '>' && html[at] !== '/') {
      at++;
    }
    if (at === start) {
      at++; // a stray "=": not a name
      continue;
    }
    const name = html.slice(start, at).toLowerCase();
    let value = '';
    let look = at;
    while (isSpace(html[look])) {
      look++;
    }
    if (html[look] === '=') {
      [value, at] = readValue(html, look + 1);
    }
    // As in browsers, the first of two attributes of one name counts.
    if (!(name in attributes)) {
      attributes[name] = decode(value);
    }
  }
}

function readValue(html, at) {
  while (isSpace(html[at])) {
    at++;
  }
  const quote = html[at];
  if (quote === '"' || quote === "'") {
    const end = html.indexOf(quote, at + 1);
    if (end === -1) {
      throw badPage('a quoted attribute is never closed');
    }
    return [html.slice(at + 1, end), end + 1];
  }
  let end = at;
  while (end < html.length && !isSpace(html[end]) && html[end] !== '>') {
    end++;
  }
  return [html.slice(at, end), end];
}

function after(html, mark, at, what) {
  const end = html.indexOf(mark, at);
  if (end === -1) {
    throw badPage(`a ${what} is never closed`);
  }
  return end + mark.length;
}

function decode(value) {
  if (!value.includes('&')) {
    return value;
  }
  return value.replace(/&(#[0-9]+|#[xX][0-9a-fA-F]+|[a-z]+);/g, (whole, entity) => {
    if (entity[0] === '#') {
      const hex = entity[1] === 'x' || entity[1] === 'X';
      const code = hex ? parseInt(entity.slice(2), 16) : parseInt(entity.slice(1), 10);
      return String.fromCodePoint(code <= MOST_CODE ? code : REPLACEMENT);
    }
    return ENTITIES[entity] || whole;
  });
}

function isSpace(char) {
  return char === ' ' || char === '\n' || char === '\t' || char === '\r' || char === '\f';
}

// A part of a text keeps the whole text in memory, and a user keeps the parts for as long as there is a page.
function copied(part) {
  return ` ${part}`.slice(1);
}

function badPage(message) {
  return new LiveViewError('bad_page', message);
}

// The environment of a scenario: read once, checked whole, refused with sentences.

const ADAPTERS = ['none', 'ets', 'browser_memory', 'redis', 'mnesia'];
const UNITS = { ms: 1, s: 1000, m: 60000, h: 3600000 };
const BASE = /^https?:\/\/[^\s/?#,{}"]+$/;
/** What k6 itself holds open, and connections that are being closed while their users open new ones. @type {number} */
export const SPARE_DESCRIPTORS = 500;
// How long the last visitors are away who come back when their stash has expired, in TTLs.
const LATEST_RETURN = 1.65;

/**
 * Reads a scenario's options. What each means stands in loadtests/k6/README.md.
 *
 * @param {Object<string, string|undefined>} env as k6's __ENV; an empty value counts as absent
 * @param {string} [scenario] its name: reconnect or visits
 * @returns {{scenario: string, testid: string, bases: string[], adapter: string, path: string, users: number, usersPerVu: number,
 *   vus: number, runners: number, runner: number|null, ttlMs: number, durationMs: number, rampMs: number, rampDownMs: number,
 *   pauseMs: number, timeoutMs: number, cleanerMs: number, inTime: number, minRecovered: number, maxWrong: number, maxFailed: number,
 *   maxClientDelayMs: number, events: {from: number, to: number}[], summary: string}} times in ms, shares from 0 to 1; `runner` from 0, null when k6 is told its segment on the command line
 * @throws {Error} one sentence per wrong option
 */
export function readOptions(env, scenario = 'reconnect') {
  const problems = [];
  const read = reader(env, problems);
  const options = {
    scenario,
    ...readShared(env, read, problems),
    adapter: read('ADAPTER', 'ets', oneOf(ADAPTERS)),
    users: read('USERS', '200', integer(1)),
    usersPerVu: read('USERS_PER_VU', '100', integer(1)),
    ttlMs: read('TTL', '60s', duration(1000)),
    cleanerMs: read('CLEANER', '75s', duration(0)),
    inTime: read('IN_TIME', '0.5', share),
    minRecovered: read('MIN_RECOVERED', '0.99', share),
    maxWrong: read('MAX_WRONG', '0', integer(0)),
    events: read('EVENTS', '', windows),
  };
  // Visitors who are to be back within a short TTL cannot stay for long.
  const pause = scenario === 'visits' ? Math.min(5000, (options.ttlMs || 0) / 2) : 2000;
  options.pauseMs = read('PAUSE', `${pause}ms`, duration(0));
  options.path = read('STASH_PATH', `/stash/${options.adapter}`, path);
  options.durationMs = read('DURATION', `${3 * (options.ttlMs || 0)}ms`, duration(1));
  options.rampMs = read('RAMP', `${Math.round((options.durationMs || 0) / 4)}ms`, duration(0));
  options.rampDownMs = read('RAMP_DOWN', `${rampDown(options)}ms`, duration(0));
  problems.push(...conflicts(options));
  refuse(problems);
  // A multiple of the runners, so that each of them gets as many VUs, and as many users, as the others.
  options.vus = Math.ceil(Math.ceil(options.users / options.usersPerVu) / options.runners) * options.runners;
  return options;
}

/**
 * A function that reads one option: name, what an absent or empty one counts as, and how it is parsed.
 *
 * @param {Object<string, string|undefined>} env
 * @param {string[]} problems gets a sentence for each option that cannot be parsed; its value is undefined then
 * @returns {function(string, string, function(string): any): any}
 */
export function reader(env, problems) {
  return (name, fallback, parse) => {
    const text = env[name] === undefined || env[name].trim() === '' ? fallback : env[name].trim();
    try {
      return parse(text);
    } catch (error) {
      problems.push(`${name}=${text}: ${error.message}`);
      return undefined;
    }
  };
}

/**
 * The options that every scenario has.
 *
 * @param {Object<string, string|undefined>} env
 * @param {Function} read of reader()
 * @param {string[]} problems
 * @returns {Object} part of what readOptions() returns
 */
export function readShared(env, read, problems) {
  return {
    testid: read('TESTID', '', name),
    runners: read('RUNNERS', '1', integer(1)),
    runner: readRunner(env, read),
    descriptors: read('FILE_DESCRIPTORS', '20000', integer(SPARE_DESCRIPTORS + 1)),
    timeoutMs: read('TIMEOUT', '10s', duration(1)),
    maxClientDelayMs: read('MAX_CLIENT_DELAY', '100ms', duration(0)),
    maxFailed: read('MAX_FAILED', '0.01', share),
    summary: read('SUMMARY', '', (text) => (text === 'termination-log' ? '/dev/termination-log' : text)),
    bases: readBases(env, problems),
  };
}

/**
 * Ends the start of a test that has problems.
 *
 * @param {string[]} problems
 * @throws {Error} unless there are none
 */
export function refuse(problems) {
  if (problems.length > 0) {
    throw new Error(`The test cannot start:\n- ${problems.join('\n- ')}`);
  }
}

// Visitors leave as they came. The published test takes a quarter of its length for each.
function rampDown({ scenario, durationMs = 0, rampMs = 0 }) {
  return scenario === 'visits' ? Math.max(0, Math.round(Math.min(rampMs, durationMs / 4, durationMs - rampMs))) : 0;
}

// Kubernetes tells the pods of an indexed Job their number.
function readRunner(env, read) {
  const given = ['RUNNER', 'JOB_COMPLETION_INDEX'].find((key) => (env[key] || '').trim() !== '');
  return given ? read(given, '', integer(0)) : null;
}

// Options that are right each and wrong together. Those that could not be read are undefined, and no comparison holds for them.
function conflicts({ scenario, users, runners, runner, descriptors, durationMs, rampMs, rampDownMs, ttlMs, pauseMs }) {
  const problems = [];
  if (rampMs >= durationMs) {
    problems.push('RAMP must be shorter than DURATION: it is the part of the test in which the users arrive.');
  }
  if (rampMs < durationMs && rampMs + rampDownMs > durationMs) {
    problems.push('RAMP and RAMP_DOWN together must not be longer than DURATION: the first user would leave before the last one came.');
  }
  if (runners > users) {
    problems.push(`RUNNERS=${runners} is more than USERS=${users}: a runner without a user proves nothing, so set RUNNERS to ${users} or less.`);
  }
  problems.push(...misnumbered(runner, runners));
  if (Math.ceil(users / runners) + SPARE_DESCRIPTORS > descriptors) {
    const needed = Math.ceil(users / (descriptors - SPARE_DESCRIPTORS));
    problems.push(
      `USERS=${users} on ${runners} runner${runners === 1 ? '' : 's'} need ${Math.ceil(users / runners) + SPARE_DESCRIPTORS} file descriptors each, ` +
        `and FILE_DESCRIPTORS=${descriptors}: use ${needed} runners or more (RUNNERS and the parallelism).`,
    );
  }
  if (scenario === 'visits' && durationMs < LATEST_RETURN * ttlMs + 4 * pauseMs) {
    problems.push(`DURATION must be at least ${LATEST_RETURN} times TTL and four times PAUSE together: else no visitor comes back after the TTL.`);
  }
  if (scenario === 'visits' && pauseMs > ttlMs / 2) {
    problems.push('PAUSE must be at most half of TTL: else visitors who are to be back in time would be late by their own pause.');
  }
  return problems;
}

function readBases(env, problems) {
  const many = (env.BASE_URLS || '').trim();
  const one = (env.BASE_URL || '').trim();
  if (many && one) {
    problems.push('BASE_URL and BASE_URLS are both set: set one of them.');
    return [];
  }
  const bases = (many || one)
    .split(',')
    .map((base) => base.trim().replace(/\/$/, ''))
    .filter((base) => base !== '');
  if (bases.length === 0) {
    problems.push('BASE_URLS is missing: name the servers, for example BASE_URLS=http://10.0.0.1:4000,http://10.0.0.2:4000.');
  }
  for (const base of bases) {
    if (!BASE.test(base)) {
      problems.push(`${many ? 'BASE_URLS' : 'BASE_URL'}: "${base}" must be http:// or https:// with a host, a port if needed, and no path.`);
    }
  }
  if (new Set(bases).size !== bases.length) {
    problems.push('BASE_URLS names the same server twice.');
  }
  return bases;
}

/** @returns {string[]} a sentence when there is no such runner, of `runner` from 0, or null, and `runners` */
export function misnumbered(runner, runners) {
  return runner !== null && runner >= runners
    ? [`This is runner ${runner}, counted from 0, and RUNNERS=${runners}: set RUNNERS to the number of runners (a Job's completions).`]
    : [];
}

/**
 * Parses a duration.
 *
 * @param {string} text a number with ms, s, m or h, or several of them ("1m30s"); a bare number means seconds
 * @returns {number} ms
 * @throws {Error} when it is none
 */
export function parseDuration(text) {
  if (/^\d+(\.\d+)?$/.test(text)) {
    return Number(text) * UNITS.s;
  }
  if (!/^(\d+(\.\d+)?(ms|s|m|h))+$/.test(text)) {
    throw new Error('must be a duration such as 500ms, 60s, 1m30s, or a number of seconds.');
  }
  return text.match(/\d+(\.\d+)?(ms|s|m|h)/g).reduce((sum, part) => {
    const [, number, , unit] = part.match(/^(\d+(\.\d+)?)(ms|s|m|h)$/);
    return sum + Number(number) * UNITS[unit];
  }, 0);
}

/** A parser of durations of at least `least` ms. */
export function duration(least) {
  return (text) => {
    const ms = parseDuration(text);
    if (ms < least) {
      throw new Error(`must be at least ${least} ms.`);
    }
    return ms;
  };
}

/** A parser of whole numbers of at least `least`. */
export function integer(least) {
  return (text) => {
    if (!/^\d+$/.test(text) || Number(text) < least) {
      throw new Error(`must be a whole number, at least ${least}.`);
    }
    return Number(text);
  };
}

/** Parses a share from 0 to 1. */
export function share(text) {
  if (!/^\d+(\.\d+)?$/.test(text) || Number(text) > 1) {
    throw new Error('must be a share from 0 to 1.');
  }
  return Number(text);
}

// "50s+2m,5m+1m": from 50 s on for 2 min, and from 5 min on for 1 min.
function windows(text) {
  return text.split(',').filter((part) => part.trim() !== '').map((part) => {
    const [from, length, more] = part.split('+').map((half) => half.trim());
    if (length === undefined || more !== undefined) {
      throw new Error('must be times with a length each, such as 50s+2m, separated by commas.');
    }
    return { from: parseDuration(from), to: parseDuration(from) + parseDuration(length) };
  });
}

/** A parser of one of some words. */
export function oneOf(values) {
  return (text) => {
    if (!values.includes(text)) {
      throw new Error(`must be one of ${values.join(', ')}.`);
    }
    return text;
  };
}

function name(text) {
  if (!/^[\w.-]{0,128}$/.test(text)) {
    throw new Error('must be at most 128 letters, digits, ".", "-" and "_".');
  }
  return text;
}

/** Parses the path of an address. */
export function path(text) {
  if (!text.startsWith('/') || /\s/.test(text)) {
    throw new Error('must be a path that starts with "/".');
  }
  return text;
}

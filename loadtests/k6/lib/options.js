// The environment of a scenario: read once, checked whole, refused with sentences.

const ADAPTERS = ['none', 'ets', 'browser_memory', 'redis', 'mnesia'];
const UNITS = { ms: 1, s: 1000, m: 60000, h: 3600000 };
const BASE = /^https?:\/\/[^\s/?#,{}"]+$/;

/**
 * Reads a scenario's options. What each means stands in loadtests/k6/README.md.
 *
 * @param {Object<string, string|undefined>} env as k6's __ENV; an empty value counts as absent
 * @returns {{bases: string[], adapter: string, path: string, users: number, usersPerVu: number, vus: number,
 *   durationMs: number, rampMs: number, pauseMs: number, timeoutMs: number, minRecovered: number, maxWrong: number,
 *   maxFailed: number, summary: string}} times in ms, shares from 0 to 1
 * @throws {Error} one sentence per wrong option
 */
export function readOptions(env) {
  const problems = [];
  const read = (name, fallback, parse) => {
    const text = env[name] === undefined || env[name].trim() === '' ? fallback : env[name].trim();
    try {
      return parse(text);
    } catch (error) {
      problems.push(`${name}=${text}: ${error.message}`);
      return undefined;
    }
  };

  const options = {
    adapter: read('ADAPTER', 'ets', oneOf(ADAPTERS)),
    users: read('USERS', '200', integer(1)),
    usersPerVu: read('USERS_PER_VU', '100', integer(1)),
    durationMs: read('DURATION', '60s', duration(1)),
    pauseMs: read('PAUSE', '2s', duration(0)),
    timeoutMs: read('TIMEOUT', '10s', duration(1)),
    minRecovered: read('MIN_RECOVERED', '0.99', share),
    maxWrong: read('MAX_WRONG', '0', integer(0)),
    maxFailed: read('MAX_FAILED', '0.01', share),
    summary: read('SUMMARY', '', (text) => (text === 'termination-log' ? '/dev/termination-log' : text)),
  };
  options.bases = readBases(env, problems);
  options.path = read('STASH_PATH', `/stash/${options.adapter}`, path);
  options.rampMs = read('RAMP', `${Math.round((options.durationMs || 0) / 10)}ms`, duration(0));
  if (options.rampMs >= options.durationMs) {
    problems.push('RAMP must be shorter than DURATION: it is the part of the test in which the users arrive.');
  }
  if (problems.length > 0) {
    throw new Error(`The test cannot start:\n- ${problems.join('\n- ')}`);
  }
  options.vus = Math.ceil(options.users / options.usersPerVu);
  return options;
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

function duration(least) {
  return (text) => {
    const ms = parseDuration(text);
    if (ms < least) {
      throw new Error(`must be at least ${least} ms.`);
    }
    return ms;
  };
}

function integer(least) {
  return (text) => {
    if (!/^\d+$/.test(text) || Number(text) < least) {
      throw new Error(`must be a whole number, at least ${least}.`);
    }
    return Number(text);
  };
}

function share(text) {
  if (!/^\d+(\.\d+)?$/.test(text) || Number(text) > 1) {
    throw new Error('must be a share from 0 to 1.');
  }
  return Number(text);
}

function oneOf(values) {
  return (text) => {
    if (!values.includes(text)) {
      throw new Error(`must be one of ${values.join(', ')}.`);
    }
    return text;
  };
}

function path(text) {
  if (!text.startsWith('/') || /\s/.test(text)) {
    throw new Error('must be a path that starts with "/".');
  }
  return text;
}

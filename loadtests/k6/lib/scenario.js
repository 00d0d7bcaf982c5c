// What all scenarios share: k6's options, the check before the start, and users who live side by side in few VUs.

import exec from 'k6/execution';
import { now } from './clock.js';
import { LiveViewError } from './errors.js';
import { TREND_STATS } from './histogram.js';
import { LiveView } from './liveview.js';
import { metrics } from './metrics.js';
import { thresholds } from './report.js';
import { placeOf, segmentOptions, usersOf } from './runners.js';
import { User } from './user.js';
import { sleep } from './wait.js';

// After DURATION nothing new is begun. Waits that are under way may end by themselves for WAITS_END; then they are cut, and
// DROP later k6 itself ends the scenario, which also ends connections that a server has neither refused nor answered.
export const WAITS_END_MS = 10000;
const DROP_MS = 2000;
/** Longest wait before the start, when is looked whether there is anything to test, in ms. @type {number} */
export const LOOK_MS = 10000;

/**
 * k6's `options`.
 *
 * @param {Object} config of readOptions()
 * @param {Object} [own] what another scenario has otherwise
 * @returns {Object}
 */
export function k6Options(config, own = {}) {
  const tags = seriesTags(config);
  const options = {
    // On what k6 measures of itself, too: a Prometheus takes the series of two processes that nothing tells apart for one, and refuses
    // all that comes along with a sample that is not its newest.
    tags: { ...tags, scenario: config.scenario },
    scenarios: {
      [config.scenario]: {
        executor: 'per-vu-iterations',
        vus: config.vus,
        iterations: 1,
        maxDuration: `${config.durationMs + WAITS_END_MS + DROP_MS}ms`,
        gracefulStop: '0s',
        // Once more: flags as k6-operator's --tag replace those above.
        tags,
      },
    },
    setupTimeout: `${2 * LOOK_MS}ms`,
    thresholds: own.thresholds || thresholds(config),
    summaryTrendStats: TREND_STATS,
    // Users of one VU do not share their connections: the first render has to open one, and a Service spreads connections.
    noConnectionReuse: true,
    // The few that tell series apart: every further tag multiplies what a Prometheus has to keep.
    systemTags: ['status', 'method', 'name', 'scenario', 'error_code'],
  };
  Object.assign(options, own);
  if (config.runner !== null) {
    Object.assign(options, segmentOptions(config.runner, config.runners));
  }
  return options;
}

/**
 * k6's `setup`: finds out which runner this is, and whether there is anything to test.
 *
 * @param {Object} config of readOptions()
 * @param {function(Object): Promise<string|null>} [look] why there is nothing to test, one sentence, or null; default: the page is asked for
 * @returns {Promise<{runner: number, runners: number, problem: string|null, began: number}>} `problem`: why the test cannot be
 *   run, one sentence. It is returned and not thrown, so that it gets into the report. `began`: when the load begins, in ms since 1970
 */
export async function prepare(config, look = lookForPage) {
  const { executionSegment, executionSegmentSequence } = exec.test.options;
  const { runner, runners } = placeOf(executionSegment, executionSegmentSequence);
  const problem = misplaced(runners, config.runners) || (await look(config));
  // short enough for a termination log
  return { runner, runners, problem: problem && problem.slice(0, 500), began: Date.now() };
}

/**
 * One iteration of one VU: all its users, side by side, from the start to the end of the test.
 *
 * @param {Object} config of readOptions()
 * @param {{problem: string|null}} prepared of prepare()
 * @param {function(User): Promise<void>} live what a user does until the end of the test
 */
export async function runUsers(config, prepared, live) {
  if (prepared.problem) {
    exec.test.abort(prepared.problem);
  }
  const end = exec.scenario.startTime + config.durationMs;
  const begin = now() - (Date.now() - exec.scenario.startTime);
  const indexes = usersOf(exec.vu.idInTest - 1, config.vus, config.users);
  metrics.planned.add(indexes.length);
  try {
    await Promise.all(
      indexes.map(async (index) => {
        // Who came last leaves first, as k6 takes VUs away when a test ramps down.
        const left = end - Math.round((config.rampDownMs * index) / config.users);
        const user = new User(config, index, { begin, end: left, cut: left + WAITS_END_MS });
        await user.until((config.rampMs * index) / config.users);
        await live(user);
        await user.leave();
      }),
    );
    // A runner whose users have all left is not over before the test is.
    await sleep(end - Date.now());
  } catch (error) {
    // A fault of this script. k6 would log it, go on, and exit with 0.
    exec.test.abort(`the scenario itself failed: ${error.stack || error}`);
  }
}

// k6 was given another part of the test than the environment speaks of.
function misplaced(runners, told) {
  if (runners === told) {
    return null;
  }
  if (runners === 1) {
    return `RUNNERS=${told}, and nothing says which of them this is: make the Job Indexed, or set RUNNER, from 0.`;
  }
  return `k6 runs one of ${runners} parts of this test, and RUNNERS=${told}: set RUNNERS to ${runners} (in a TestRun: to its parallelism).`;
}

// Looks whether any server gives the page. One that does not while another does is measured: it may come back.
async function lookForPage(config) {
  const views = config.bases.map(() => new LiveView({ path: config.path, timeout: Math.min(config.timeoutMs, LOOK_MS) }));
  const problems = await Promise.all(
    views.map(async (view, i) => {
      try {
        await view.fetchPage(config.bases[i]);
        return null;
      } catch (error) {
        if (!(error instanceof LiveViewError)) {
          throw error;
        }
        return error.message;
      }
    }),
  );
  if (problems.includes(null)) {
    return null;
  }
  const none = problems.length > 1 ? `none of ${problems.length} servers gives the page, the first because of ` : '';
  return `There is nothing to test: ${none}${problems[0]}. Check BASE_URLS and STASH_PATH=${config.path}.`;
}

// What tells the series of a run apart in a Prometheus: those of two adapters, and those of two runners, which would
// otherwise write into one.
function seriesTags({ adapter, protocol, testid, runner }) {
  return { ...(adapter ? { adapter } : {}), ...(protocol ? { protocol } : {}), ...(testid ? { testid } : {}), ...(runner === null ? {} : { runner: String(runner) }) };
}

// Durations that can be added up over runners: exponential histograms, as OpenTelemetry defines them.
//
// Bucket i of scale s holds the values in (b^i, b^(i+1)] with b = 2^(2^-s). Histograms of one scale are merged by adding their
// counts; one of scale s becomes one of s-1 by merging buckets 2i and 2i+1 into i. A quantile read from a merged one is
// wrong by no more than the width of a bucket, whatever the distributions are. README.md says why it is no grid of quantiles.

/** Finest scale: buckets grow by 2.2 %, so the middle of one is within 1.1 % of everything in it. */
export const SCALE = 5;

// k6 keeps every value, in Go, and tells quantiles of them at the end of the run; it gives no script the values. So the buckets
// are counted from a grid of quantiles that is finer than any answer: every tenth of a percent, above 99 every hundredth.
const LEVELS = [];
for (let tenths = 1; tenths < 990; tenths++) {
  LEVELS.push(tenths / 10);
}
for (let hundredths = 9900; hundredths < 10000; hundredths++) {
  LEVELS.push(hundredths / 100);
}

/** What k6's `summaryTrendStats` must hold for histogram(). @type {string[]} */
export const TREND_STATS = ['count', 'min', 'max', 'avg', ...LEVELS.map((level) => `p(${level})`)];

/**
 * Counts one runner's values.
 *
 * @param {Object<string, number>|undefined} values TREND_STATS of a k6 Trend, in ms
 * @param {number} [scale] at most SCALE
 * @returns {{count: number, sum: number, min: number|null, max: number|null, scale: number, offset: number, counts: number[]}}
 *   `counts` from bucket `offset` on; -n in it stands for n empty buckets. Each value is counted in the bucket that holds
 *   it or one that is at most a step of the grid above it in rank
 */
export function histogram(values, scale = SCALE) {
  if (!values || !values.count) {
    return { count: 0, sum: 0, min: null, max: null, scale, offset: 0, counts: [] };
  }
  const { count, min, max, avg } = values;
  const buckets = new Map([[bucketOf(min, scale), 1]]);
  let counted = 1;
  const countTo = (rank, value) => {
    if (rank > counted) {
      const index = bucketOf(value, scale);
      buckets.set(index, (buckets.get(index) || 0) + rank - counted);
      counted = rank;
    }
  };
  for (const level of LEVELS) {
    // the place that k6 gives to a level among its sorted values, the first being 1
    countTo(Math.floor((level / 100) * (count - 1) + 1e-9) + 1, values[`p(${level})`]);
  }
  countTo(count, max);
  return { count, sum: round(avg * count), min: round(min), max: round(max), scale, ...pack(buckets) };
}

/**
 * The same values in buckets of twice the width.
 *
 * @param {Object} from of histogram()
 * @returns {Object} with a scale that is smaller by one
 */
export function coarser(from) {
  const buckets = new Map();
  for (const [index, count] of unpack(from)) {
    const half = Math.floor(index / 2);
    buckets.set(half, (buckets.get(half) || 0) + count);
  }
  return { ...from, scale: from.scale - 1, ...pack(buckets) };
}

/**
 * Adds up the histograms of several runners.
 *
 * @param {Object[]} parts of histogram(), of any scales
 * @returns {Object} of the coarsest scale among them
 */
export function merge(parts) {
  const scale = Math.min(...parts.map((part) => part.scale));
  const buckets = new Map();
  const sum = { count: 0, sum: 0, min: null, max: null, scale };
  for (let part of parts.filter(({ count }) => count > 0)) {
    while (part.scale > scale) {
      part = coarser(part);
    }
    for (const [index, count] of unpack(part)) {
      buckets.set(index, (buckets.get(index) || 0) + count);
    }
    sum.count += part.count;
    sum.sum = round(sum.sum + part.sum);
    sum.min = sum.min === null ? part.min : Math.min(sum.min, part.min);
    sum.max = sum.max === null ? part.max : Math.max(sum.max, part.max);
  }
  return { ...sum, ...pack(buckets) };
}

/**
 * A quantile, by nearest rank.
 *
 * @param {Object} from of histogram() or merge()
 * @param {number} share from 0 to 1
 * @returns {number|null} ms: the middle of the bucket that holds the value of that rank, so at most (b-1)/(b+1) of the value off
 *   (1.1 % at scale 5, 2.2 % at 4); never outside min and max; null when nothing was counted
 */
export function quantile(from, share) {
  const rank = Math.max(1, Math.ceil(share * from.count));
  let below = 0;
  for (const [index, count] of unpack(from)) {
    below += count;
    if (below >= rank) {
      return Math.min(from.max, Math.max(from.min, middle(index, from.scale)));
    }
  }
  return null;
}

function bucketOf(value, scale) {
  // A microsecond, the resolution of k6's clock, stands for everything below it.
  return Math.ceil(Math.log2(Math.max(value, 0.001)) * 2 ** scale) - 1;
}

// The value with the same relative distance to both ends of a bucket.
function middle(index, scale) {
  const low = 2 ** (index / 2 ** scale);
  const high = 2 ** ((index + 1) / 2 ** scale);
  return (2 * low * high) / (low + high);
}

function pack(buckets) {
  const indexes = [...buckets.keys()].sort((a, b) => a - b);
  const counts = [];
  let next = indexes[0];
  for (const index of indexes) {
    if (index > next) {
      counts.push(next - index);
    }
    counts.push(buckets.get(index));
    next = index + 1;
  }
  return { offset: indexes.length > 0 ? indexes[0] : 0, counts };
}

function unpack({ offset, counts }) {
  const pairs = [];
  let index = offset;
  for (const count of counts) {
    if (count < 0) {
      index -= count;
    } else {
      pairs.push([index, count]);
      index += 1;
    }
  }
  return pairs;
}

function round(ms) {
  return Number(ms.toFixed(3));
}

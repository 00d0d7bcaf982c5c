// How the users of one test are dealt out over several runners, and over the VUs of each.

/**
 * The users of a VU. k6 numbers VUs through the whole test, also when it is cut into segments: equal segments take turns.
 *
 * @param {number} vu number of the VU in the whole test, from 0
 * @param {number} vus number of VUs in the whole test
 * @param {number} users number of users in the whole test
 * @returns {number[]} users, from 0
 */
export function usersOf(vu, vus, users) {
  const indexes = [];
  for (let index = vu; index < users; index += vus) {
    indexes.push(index);
  }
  return indexes;
}

/**
 * k6's options for one of several equal runners.
 *
 * @param {number} runner from 0
 * @param {number} runners
 * @returns {{executionSegment: string, executionSegmentSequence: string}}
 */
export function segmentOptions(runner, runners) {
  const bounds = Array.from({ length: runners + 1 }, (_, i) => (i === 0 || i === runners ? String(i / runners) : `${i}/${runners}`));
  return { executionSegment: `${bounds[runner]}:${bounds[runner + 1]}`, executionSegmentSequence: bounds.join(',') };
}

/**
 * Which of several runners a segment is, the reverse of segmentOptions(). k6 shortens fractions: 2/4 becomes 1/2.
 *
 * @param {string|null} segment k6's `executionSegment`
 * @param {string|null} sequence k6's `executionSegmentSequence`
 * @returns {{runner: number, runners: number}} `runner` from 0
 */
export function placeOf(segment, sequence) {
  if (!segment || !sequence) {
    return { runner: 0, runners: 1 };
  }
  const bounds = sequence.split(',').map(fraction);
  const start = fraction(segment.split(':')[0]);
  return { runner: bounds.findIndex((bound) => Math.abs(bound - start) < 1e-9), runners: bounds.length - 1 };
}

function fraction(text) {
  const [above, below = '1'] = text.split('/');
  return Number(above) / Number(below);
}

// For how long the visitors of visits.js are away, as in LiveStash's published benchmark.

/** The longest pause on the page, as a multiple of the mean one. */
export const LONGEST_PAUSE = 1.2;

// In TTLs: who is back in time is away from SOONEST to LATEST, the others LATE, a tenth more or less.
const SOONEST = 0.1;
const LATEST = 0.5;
const LATE = 1.5;
// Who is back within the TTL is so at least so much before its end, in ms: a second of it the server may round away.
const MARGIN_MS = 1500;
// how long after the cleaner somebody comes who is to find nothing, and what is left of the test then at least, in ms
const SPARE_MS = 1000;

/**
 * @param {{ttlMs: number, cleanerMs: number, pauseMs: number, inTime: number}} config of readOptions()
 * @param {boolean} patient whether this one stays away until the cleaner must have been there, if the test is long enough
 * @param {number} left for how long the user will still be there, in ms
 * @param {function(): number} [random] from 0 to 1; default Math.random
 * @returns {number} ms from when the page was left
 */
export function timeAway({ ttlMs, cleanerMs, pauseMs, inTime }, patient, left, random = Math.random) {
  const late = LATE * ttlMs * (0.9 + 0.2 * random());
  const cleaned = Math.max(late, ttlMs + cleanerMs + SPARE_MS);
  if (patient && inTime < 1 && left > cleaned + SPARE_MS) {
    return cleaned;
  }
  if (random() >= inTime) {
    return late;
  }
  // The TTL counts from the stash, which was a pause ago, and coming back takes time.
  const longest = Math.max(0, Math.min(LATEST * ttlMs, Math.min(0.8 * ttlMs, ttlMs - MARGIN_MS) - LONGEST_PAUSE * pauseMs));
  const shortest = Math.min(SOONEST * ttlMs, longest);
  return shortest + (longest - shortest) * random();
}

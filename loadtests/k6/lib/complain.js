// Errors on the console: the first few of each kind, because thousands of them would hide what they say.

const SHOWN_ERRORS = 3;
const shown = {};

/**
 * Counts an error, and shows it unless there were many of its kind.
 *
 * @param {Counter} counter k6 metric with the tag `reason`
 * @param {string} reason one of REASON_TAGS
 * @param {string} message one sentence
 */
export function complain(counter, reason, message) {
  counter.add(1, { reason });
  shown[reason] = (shown[reason] || 0) + 1;
  if (shown[reason] <= SHOWN_ERRORS) {
    const last = shown[reason] === SHOWN_ERRORS ? ' (further ones of this kind are only counted)' : '';
    console.error(`${reason}: ${message}${last}`);
  }
}

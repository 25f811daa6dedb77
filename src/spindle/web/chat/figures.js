// Tokens, money, times and errors as people read them.

const shortened = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
const whole = new Intl.NumberFormat('en');
const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' });
const day = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric' });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });

/** @param {number} n */
export const tokens = n => (n < 1000 ? String(n) : shortened.format(n).toLowerCase());
/** @param {number} dollars */
export const cost = dollars =>
  dollars === 0
    ? '$0'
    : dollars < 0.01
      ? '<$0.01'
      : `$${dollars < 100 ? dollars.toFixed(2) : whole.format(Math.round(dollars))}`;
/** @param {number} when */
export const fullTime = when => full.format(new Date(when));

/**
 * How many midnights lie between `when` and now.
 * @param {number} when
 */
export function daysAgo(when) {
  /** @param {Date} date */
  const midnight = date => new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();
  return Math.round((midnight(new Date()) - midnight(new Date(when))) / 86_400_000);
}

/** @param {number} when */
export const shortTime = when => (daysAgo(when) === 0 ? clock : day).format(new Date(when));

/**
 * Model APIs fail with a status and an object, in which there is something to read.
 * @param {any} error
 */
export function readable(error) {
  const at = error.indexOf('{');
  try {
    const object = at >= 0 ? JSON.parse(error.slice(at)) : {};
    const words = object.error?.message || object.message;
    return words ? error.slice(0, at) + words : error;
  } catch {
    return error;
  }
}

// Values as people read them, and the text in messages.

const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit' });
const day = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric' });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });

export const tokens = n => (n < 1000 ? String(n) : compact.format(n).toLowerCase());
export const count = (n, noun) => `${n.toLocaleString('en')} ${noun}${n === 1 ? '' : 's'}`;
export const cost = dollars =>
  dollars === 0 ? '$0' : dollars < 0.01 ? '<$0.01' : `$${dollars.toFixed(dollars < 10 ? 2 : 1)}`;
export const fullTime = when => full.format(new Date(when));

export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60
    ? `${minutes} min ${Math.round(seconds % 60)} s`
    : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** How many midnights lie between `when` and now. */
export function daysAgo(when) {
  const midnight = date => new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();
  return Math.round((midnight(new Date()) - midnight(new Date(when))) / 86_400_000);
}

export const shortTime = when => (daysAgo(when) === 0 ? clock : day).format(new Date(when));

/** The text of a content field: a string, or a list of blocks. */
export function textOf(content) {
  if (typeof content === 'string') return content;
  return (content ?? [])
    .filter(block => block.type === 'text')
    .map(block => block.text)
    .join('\n');
}

export const imagesOf = content => (Array.isArray(content) ? content.filter(block => block.type === 'image') : []);

export const oneLine = (text, limit = 160) => {
  const line = text
    .slice(0, limit * 4)
    .replace(/\s+/g, ' ')
    .trim();
  return line.length > limit ? line.slice(0, limit - 1) + '…' : line;
};

/** Model APIs fail with a status and an object, in which there is something to read. */
export function readable(error) {
  const [, status, object] = /^(\d{3}: )(\{[^]*\})$/.exec(error) ?? [];
  try {
    return object ? status + (JSON.parse(object).message || object) : error;
  } catch {
    return error;
  }
}

const CONTROL = /\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])|\r(?!\n)/g;

/** Output of a program without the sequences that move a terminal's cursor. */
export const plainOutput = text => text.replace(CONTROL, '');

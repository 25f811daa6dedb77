// Files that came along with a message. For the model their paths stand at its end; people see names.

const LINE = /(?:^|\n\n)Attached file: ([^\n]+)$/;

/**
 * A message with the paths of its files.
 * @param {string} text
 * @param {any[]} files
 */
export const withFiles = (text, files) =>
  [text, ...files.map(({ path }) => `Attached file: ${path}`)].filter(Boolean).join('\n\n');

/**
 * The text of a message and its files, {name, path}.
 * @param {any} message
 */
export function splitFiles(message) {
  const files = [];
  let text = message;
  for (let found = LINE.exec(text); found; found = LINE.exec(text)) {
    const path = found[1].trim();
    files.unshift({ name: path.split(/[\\/]/).findLast(Boolean) ?? path, path });
    text = text.slice(0, found.index);
  }
  return { text, files };
}

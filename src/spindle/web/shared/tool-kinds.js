// What the tools of the agent do. Made by scripts/manual.py from shapes/builtin_tools.py; do not edit.

/** @type {Record<string, string>} */
export const TOOL_KINDS = {
  read: 'read',
  bash: 'execute',
  edit: 'edit',
  write: 'edit',
  grep: 'search',
  find: 'search',
  ls: 'search',
  todo_write: 'think',
  bash_output: 'think',
  bash_kill: 'think',
  task: 'think',
};

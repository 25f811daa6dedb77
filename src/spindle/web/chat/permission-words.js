// Words of modes and levels, made by scripts/manual.py from permission_modes.py and sandbox.py of shapes.

export const PERMISSION_MODES = [
  ['bypass', 'Bypass', 'Every tool call is allowed'],
  ['default', 'Ask', 'Reading is free, everything else is asked about'],
  ['acceptEdits', 'Accept edits', 'Edits in the working directory are allowed, the rest is asked about'],
  ['plan', 'Plan', 'Only reading is allowed'],
  ['dontAsk', "Don't ask", 'What no rule allows is refused'],
];

export const SANDBOX_LEVELS = [
  ['off', 'No sandbox', 'Commands may do what the user may do'],
  ['read-only', 'Read only', 'Commands write nothing but a temporary folder of their own'],
  [
    'workspace-write',
    'Write in the workspace',
    'Commands write in the working directory, in a temporary folder and where you say',
  ],
];

// What the states of MCP servers mean, in words.

/** @type {Record<string, string>} */
export const SERVER_STATES = {
  idle: 'not needed yet',
  starting: 'starting',
  ready: 'ready',
  stopped: 'stopped; it is started again when needed',
  failed: 'failed',
  login: 'needs a login',
  disabled: 'switched off',
  invalid: 'not valid',
};

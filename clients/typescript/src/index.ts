export * from './client.js';
export * from './http.js';
export * from './protocol.js';
export * from './transport.js';

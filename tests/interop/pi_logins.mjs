// Reads and writes auth.json with pi's own store: node pi_logins.mjs AUTH_JSON [PROVIDER ENTRY]
import { pathToFileURL } from 'node:url';

const [path, provider, entry] = process.argv.slice(2);
const { AuthStorage } = await import(pathToFileURL(`${process.env.SPINDLE_TEST_PI}/dist/core/auth-storage.js`).href);
const storage = AuthStorage.create(path);
if (provider) storage.set(provider, JSON.parse(entry));
console.log(JSON.stringify({ all: storage.getAll(), key: await storage.getApiKey('openai-codex') }));

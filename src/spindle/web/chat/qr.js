// QR codes (ISO/IEC 18004): bytes, error correction level L, versions 1 to 10. Enough for an address with a token.

const EC = [7, 10, 15, 20, 26, 18, 20, 24, 30, 18]; // codewords of correction in a block, by version
const BLOCKS = [
  [1, 19, 0],
  [1, 34, 0],
  [1, 55, 0],
  [1, 80, 0],
  [1, 108, 0],
  [2, 68, 0],
  [2, 78, 0],
  [2, 97, 0],
  [2, 116, 0],
  [2, 68, 2],
];
// Blocks, data codewords in each, and how many more blocks have one codeword more.
const ALIGN = [[], [6, 18], [6, 22], [6, 26], [6, 30], [6, 34], [6, 22, 38], [6, 24, 42], [6, 26, 46], [6, 28, 50]];

const EXP = new Uint8Array(512);
const LOG = new Uint8Array(256);
for (let i = 0, x = 1; i < 255; i++) {
  EXP[i] = EXP[i + 255] = x;
  LOG[x] = i;
  x = (x << 1) ^ (x & 128 ? 0x11d : 0);
}
/**
 * @param {number} a
 * @param {number} b
 */
const times = (a, b) => (a && b ? EXP[LOG[a] + LOG[b]] : 0);

/**
 * Return the modules of a text, row by row, true for dark; null if it is too long.
 * @param {string} text
 */
export function qrModules(text) {
  const bytes = new TextEncoder().encode(text);
  const version =
    BLOCKS.findIndex(([n, size, more], v) => (n + more) * size + more >= bytes.length + (v < 9 ? 2 : 3)) + 1;
  if (!version) return null;
  const size = version * 4 + 17;
  const grid = Array.from({ length: size }, () => new Array(size).fill(null));
  functionPatterns(grid, version);
  place(grid, interleaved(dataCodewords(bytes, version), version));
  /** @type {any} */
  let best = null;
  for (let mask = 0; mask < 8; mask++) {
    const made = masked(grid, mask);
    const score = penalty(made);
    if (!best || score < best.score) best = { made, score };
  }
  return best.made;
}

/**
 * @param {Uint8Array} bytes
 * @param {number} version
 */
function dataCodewords(bytes, version) {
  const [n, size, more] = BLOCKS[version - 1];
  const total = n * size + more * (size + 1);
  const bits = [];
  /**
   * @param {any} value
   * @param {number} width
   */
  const put = (value, width) => {
    for (let i = width - 1; i >= 0; i--) bits.push((value >> i) & 1);
  };
  put(4, 4);
  put(bytes.length, version < 10 ? 8 : 16);
  for (const byte of bytes) put(byte, 8);
  put(0, Math.min(4, total * 8 - bits.length));
  while (bits.length % 8) bits.push(0);
  const words = [];
  for (let i = 0; i < bits.length; i += 8) words.push(parseInt(bits.slice(i, i + 8).join(''), 2));
  for (let pad = 0xec; words.length < total; pad ^= 0xec ^ 0x11) words.push(pad);
  return words;
}

/**
 * @param {number[]} words
 * @param {number} version
 */
function interleaved(words, version) {
  const [n, size, more] = BLOCKS[version - 1];
  const ec = EC[version - 1];
  const blocks = [];
  for (let i = 0, at = 0; i < n + more; i++) {
    const length = size + (i >= n ? 1 : 0);
    blocks.push(words.slice(at, at + length));
    at += length;
  }
  const checks = blocks.map(block => remainder(block, ec));
  const result = [];
  for (let i = 0; i <= size; i++) for (const block of blocks) if (i < block.length) result.push(block[i]);
  for (let i = 0; i < ec; i++) for (const check of checks) result.push(check[i]);
  return result;
}

/**
 * The codewords of correction: what is left of the data divided by the generator.
 * @param {any[]} data
 * @param {number} degree
 */
function remainder(data, degree) {
  let generator = [1];
  for (let i = 0; i < degree; i++) {
    const next = new Array(generator.length + 1).fill(0);
    generator.forEach((value, k) => {
      next[k] ^= value;
      next[k + 1] ^= times(value, EXP[i]);
    });
    generator = next;
  }
  const rest = [...data, ...new Array(degree).fill(0)];
  for (let i = 0; i < data.length; i++) {
    const factor = rest[i];
    if (factor)
      generator.forEach((value, k) => {
        rest[i + k] ^= times(value, factor);
      });
  }
  return rest.slice(data.length);
}

/**
 * @param {any[][]} grid
 * @param {number} version
 */
function functionPatterns(grid, version) {
  const size = grid.length;
  /**
   * @param {number} y
   * @param {number} x
   * @param {boolean} on
   */
  const set = (y, x, on) => {
    if (y >= 0 && x >= 0 && y < size && x < size) grid[y][x] = on ? 1 : 0;
  };
  for (const [top, left] of [
    [0, 0],
    [0, size - 7],
    [size - 7, 0],
  ])
    for (let y = -1; y < 8; y++)
      for (let x = -1; x < 8; x++) {
        const ring = Math.max(Math.abs(y - 3), Math.abs(x - 3));
        set(top + y, left + x, ring !== 2 && ring < 4);
      }
  const places = ALIGN[version - 1];
  for (const y of places)
    for (const x of places) {
      if (grid[y][x] !== null) continue;
      for (let dy = -2; dy < 3; dy++)
        for (let dx = -2; dx < 3; dx++) set(y + dy, x + dx, Math.max(Math.abs(dy), Math.abs(dx)) !== 1);
    }
  for (let i = 8; i < size - 8; i++) {
    if (grid[6][i] === null) set(6, i, i % 2 === 0);
    if (grid[i][6] === null) set(i, 6, i % 2 === 0);
  }
  set(size - 8, 8, true);
  for (const [y, x] of formatPlaces(size).flat()) if (grid[y][x] === null) grid[y][x] = 0;
  if (version >= 7) {
    let rest = version;
    for (let i = 0; i < 12; i++) rest = (rest << 1) ^ ((rest >> 11) * 0x1f25);
    const bits = (version << 12) | rest;
    for (let i = 0; i < 18; i++) {
      const [a, b] = [Math.floor(i / 3), size - 11 + (i % 3)];
      set(a, b, ((bits >> i) & 1) === 1);
      set(b, a, ((bits >> i) & 1) === 1);
    }
  }
}

/**
 * Where the bits of the format stand, twice, from the lowest bit on.
 * @param {number} size
 */
function formatPlaces(size) {
  const first = [];
  for (let i = 0; i < 15; i++) first.push(i < 6 ? [i, 8] : i < 8 ? [i + 1, 8] : i === 8 ? [8, 7] : [8, 14 - i]);
  const second = [];
  for (let i = 0; i < 15; i++) second.push(i < 8 ? [8, size - 1 - i] : [size - 15 + i, 8]);
  return [first, second];
}

/**
 * Put the codewords where nothing stands yet, in the zigzag of the standard; 2 and 3 are data, still to be masked.
 * @param {any[][]} grid
 * @param {number[]} words
 */
function place(grid, words) {
  const size = grid.length;
  let bit = 0;
  for (let right = size - 1; right > 0; right -= 2) {
    if (right === 6) right = 5;
    for (let step = 0; step < size; step++) {
      const up = ((right + 1) & 2) === 0;
      const y = up ? size - 1 - step : step;
      for (const x of [right, right - 1]) {
        if (grid[y][x] !== null) continue;
        grid[y][x] = 2 + (((words[bit >> 3] ?? 0) >> (7 - (bit & 7))) & 1);
        bit++;
      }
    }
  }
}

const MASKS = [
  (/** @type {number} */ y, /** @type {number} */ x) => (y + x) % 2 === 0,
  (/** @type {number} */ y) => y % 2 === 0,
  (/** @type {number} */ y, /** @type {number} */ x) => x % 3 === 0,
  (/** @type {number} */ y, /** @type {number} */ x) => (y + x) % 3 === 0,
  (/** @type {number} */ y, /** @type {number} */ x) => (Math.floor(y / 2) + Math.floor(x / 3)) % 2 === 0,
  (/** @type {number} */ y, /** @type {number} */ x) => ((y * x) % 2) + ((y * x) % 3) === 0,
  (/** @type {number} */ y, /** @type {number} */ x) => (((y * x) % 2) + ((y * x) % 3)) % 2 === 0,
  (/** @type {number} */ y, /** @type {number} */ x) => (((y + x) % 2) + ((y * x) % 3)) % 2 === 0,
];

/**
 * @param {any[][]} grid
 * @param {number} mask
 */
function masked(grid, mask) {
  const made = grid.map((row, /** @type {number} */ y) =>
    row.map((value, /** @type {number} */ x) => (value < 2 ? value === 1 : (value === 3) !== MASKS[mask](y, x))),
  );
  const data = (1 << 3) | mask; // 1: level L
  let rest = data;
  for (let i = 0; i < 10; i++) rest = (rest << 1) ^ ((rest >> 9) * 0x537);
  const bits = ((data << 10) | rest) ^ 0x5412;
  for (const places of formatPlaces(grid.length))
    places.forEach(([y, x], i) => {
      made[y][x] = ((bits >> i) & 1) === 1;
    });
  made[grid.length - 8][8] = true;
  return made;
}

/** @param {any[][]} grid */
function penalty(grid) {
  const size = grid.length;
  let score = 0;
  const lines = [...grid, ...grid.map((_, /** @type {number} */ x) => grid.map(row => row[x]))];
  for (const line of lines) {
    for (let i = 0, run = 0; i < size; i++) {
      run = i && line[i] === line[i - 1] ? run + 1 : 1;
      if (run === 5) score += 3;
      else if (run > 5) score++;
    }
    const text = line.map((/** @type {boolean} */ on) => (on ? 1 : 0)).join('');
    for (const pattern of ['10111010000', '00001011101'])
      for (let at = text.indexOf(pattern); at >= 0; at = text.indexOf(pattern, at + 1)) score += 40;
  }
  for (let y = 1; y < size; y++)
    for (let x = 1; x < size; x++)
      if (grid[y][x] === grid[y - 1][x] && grid[y][x] === grid[y][x - 1] && grid[y][x] === grid[y - 1][x - 1])
        score += 3;
  const dark = grid.flat().filter(Boolean).length / (size * size);
  return score + Math.floor(Math.abs(dark - 0.5) * 20) * 10;
}

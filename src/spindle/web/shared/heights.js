// Heights of rows, added up by a Fenwick tree: to change one, and to find the row at a height, costs a logarithm.

export class Heights {
  /** @param {Iterable<number>} values */
  constructor(values = []) {
    /** @type {number[]} */
    this.values = [];
    this.sums = [0]; // sums[k]: of the values from k - (k & -k) up to k
    for (const value of values) this.push(value);
  }

  /**
   * Add one at the end.
   * @param {any} value
   */
  push(value) {
    this.values.push(value);
    const place = this.values.length;
    let sum = value;
    for (let k = place - 1; k > place - (place & -place); k -= k & -k) sum += this.sums[k];
    this.sums.push(sum);
  }

  /**
   * @param {number} i
   * @param {any} value
   */
  set(i, value) {
    const change = value - this.values[i];
    this.values[i] = value;
    for (let k = i + 1; k < this.sums.length; k += k & -k) this.sums[k] += change;
  }

  /**
   * How high the first `n` are together.
   * @param {number} n
   */
  before(n) {
    let sum = 0;
    for (let k = n; k > 0; k -= k & -k) sum += this.sums[k];
    return sum;
  }

  get total() {
    return this.before(this.values.length);
  }

  /**
   * Which one stands at `height`; the last one below all of them, -1 if there is none.
   * @param {number} height
   */
  at(height) {
    let place = 0;
    let step = 1 << Math.floor(Math.log2(Math.max(1, this.values.length)));
    for (; step; step >>= 1) {
      if (place + step < this.sums.length && this.sums[place + step] <= height) {
        place += step;
        height -= this.sums[place];
      }
    }
    return Math.min(place, this.values.length - 1);
  }
}

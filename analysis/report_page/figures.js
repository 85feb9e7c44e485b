/* The figures of the page, and how they are written. */

/**
 * @typedef {{mean: number, low: number, high: number, worst?: number, best?: number,
 *   chance?: number, ceiling?: number, trivial?: boolean}} Estimate
 * @typedef {{pool: number[], rows: number, attempted: number, scored: number, failed: number,
 *   failures: Object<string, number>, tied: number|null, calls: number|null,
 *   tokensIn: number|null, tokensOut: number|null, cost: number|null,
 *   metrics: Object<string, Estimate>}} Cell
 * @typedef {{name: string, label: string, run: number, look: [number, number],
 *   cells: Object<string, Cell>}} Curve
 * @typedef {{symbol: string, title: string, atK: boolean}} MetricKind
 */

/** Set by main.js from the JSON of the page. @type {any} */
let report = null;

/** @returns {MetricKind} the chosen metric */
function chosenMetric() {
  return report.metrics.find((one) => one.symbol === state.get("m")) || report.metrics[0];
}

/** @returns {number} the chosen k */
function chosenK() {
  const wish = Number(state.get("k"));
  return report.ks.includes(wish) ? wish : report.ks[0];
}

/** The name of a metric at a k, as the figures have it. @param {MetricKind} kind @param {number} k */
function metricName(kind, k) {
  return kind.atK ? `${kind.symbol}@${k}` : kind.symbol;
}

/** @param {MetricKind} kind @param {number} k @returns {string} such as `recall@5` */
function metricTitle(kind, k) {
  return kind.title.replace("@k", `@${k}`).replace("first k", k === 1 ? "first place" : `first ${k}`);
}

/**
 * A number with so many decimals; a tie goes to the even digit, as in the tables of the commands.
 * @param {number} value
 * @param {number} [digits]
 */
function fixed(value, digits = 3) {
  const scaled = Math.abs(value) * 10 ** digits;
  const down = Math.floor(scaled);
  if (scaled - down === 0.5 && down % 2 === 0) {
    return `${value < 0 && down ? "\u2212" : ""}${(down / 10 ** digits).toFixed(digits)}`;
  }
  return value.toFixed(digits).replace("-", "\u2212");
}

/** @param {number} value @param {number} [digits] @returns {string} with its sign */
function signed(value, digits = 3) {
  return `${value < 0 ? "" : "+"}${fixed(value, digits)}`;
}

/** @param {Estimate|undefined} one @returns {string} */
function withInterval(one) {
  if (!one) return "\u2013";
  return one.trivial ? "k \u2265 pool" : `${fixed(one.mean)} [${fixed(one.low)}, ${fixed(one.high)}]`;
}

/** @param {number} count @returns {string} */
function grouped(count) {
  return count.toLocaleString("en-US");
}

/** @param {number|null|undefined} amount @returns {string} */
function plainAmount(amount) {
  if (amount === null || amount === undefined) return "unknown";
  return amount !== 0 && Math.abs(amount) < 1 ? String(Number(amount.toPrecision(4))) : grouped(Number(amount.toFixed(2)));
}

/** @param {number|null|undefined} p @returns {string} */
function pText(p) {
  if (p === null || p === undefined) return "\u2013";
  return p < 0.001 ? "<0.001" : fixed(p);
}

/** One distractor, 300 distractors. @param {number} count @param {string} one @param {string} [many] */
function counted(count, one, many = `${one}s`) {
  return `${grouped(count)} ${count === 1 ? one : many}`;
}

const FAILED = -1;
const NOT_RUN = 0;

/**
 * The ties of a row as a list with one [above, tied] per gold; null if it failed or was not run.
 * @param {any} entry
 * @returns {Array<[number, number]>|null}
 */
function tiesOf(entry) {
  if (!Array.isArray(entry)) return null;
  return Array.isArray(entry[0]) ? entry : [entry];
}

/**
 * The chance that a gold is among the first k under a random order of equal scores (success@k).
 * Of the group of equal scores that straddles rank k, some places are free: a gold misses them all
 * with the probability that the others fill them.
 * @param {Array<[number, number]>} ties
 * @param {number} k
 */
function successAt(ties, k) {
  if (ties.some(([above, tied]) => above + tied <= k)) return 1;
  const across = ties.filter(([above]) => above < k);
  if (!across.length) return 0;
  const [above, tied] = across[0];
  let missed = 1;
  for (let place = 0; place < k - above; place++) missed *= Math.max(tied - across.length - place, 0) / (tied - place);
  return 1 - missed;
}

/** `3`, or `3 to 7` for a gold tied with others. @param {[number, number]} tie */
function rankText([above, tied]) {
  return tied === 1 ? grouped(above + 1) : `${grouped(above + 1)} to ${grouped(above + tied)}`;
}

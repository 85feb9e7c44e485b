/* The index of all queries, and what the reader wants to see of them. */

/**
 * @typedef {{names: string[], of: number[]}} Names
 * @typedef {{id: string[], text?: string[], groups?: Object<string, Names & {title: string}>,
 *   fields?: Object<string, Names>, ties: Array<Object<string, any[]>>}} QueryIndex
 * @typedef {{a: number, b: number, cell: string, k: number, outcome: string, search: string,
 *   groups: Array<[string, string]>}} Wish
 */

const OUTCOMES = [
  ["", "all"],
  ["hit", "hit: a gold is in the first k"],
  ["miss", "miss: no gold is in the first k"],
  ["partly", "tie: the order of equal scores decides"],
  ["failed", "failed"],
  ["a-beats-b", "the first is better than the second"],
  ["b-beats-a", "the second is better than the first"],
];

/** @returns {Wish} what the state says, each choice one that there is */
function chosenWish() {
  const a = curveNumber(state.get("a"), 0);
  let b = curveNumber(state.get("b"), -1);
  const sizes = report.sizes;
  const n = sizes.includes(Number(state.get("n"))) && state.get("n") ? Number(state.get("n")) : sizes[0];
  const seed = report.seeds.includes(Number(state.get("seed"))) && state.get("seed") ? Number(state.get("seed")) : report.seeds[0];
  const outcome = OUTCOMES.some(([value]) => value === state.get("f")) ? state.get("f") : "";
  if ((b < 0 || b === a) && outcome.includes("beats")) b = report.curves.findIndex((_, i) => i !== a);
  const groups = [...state.values].map(([key, value]) => [groupOfKey(key), value]).filter(([name]) => name);
  return {
    a,
    b: b === a ? -1 : b,
    cell: `${n}/${seed}`,
    k: chosenK(),
    outcome,
    search: state.get("s"),
    groups: /** @type {Array<[string, string]>} */ (groups),
  };
}

/** The key of a grouping in the fragment. @param {string} name */
function keyOfGroup(name) {
  return own({ language: "lang", label: "label" }, name) || `field.${name}`;
}

/** @param {string} key of the fragment @returns {string} the grouping, empty if it is none */
function groupOfKey(key) {
  return key.startsWith("field.") ? key.slice(6) : own({ lang: "language", label: "label" }, key) || "";
}

/** @param {string} name @param {number} otherwise @returns {number} */
function curveNumber(name, otherwise) {
  const found = report.curves.findIndex((curve) => curve.name === name);
  if (found >= 0) return found;
  const byLabel = report.curves.findIndex((curve) => curve.label === name);
  return byLabel >= 0 ? byLabel : otherwise;
}

/** @param {QueryIndex} index @param {number} curve @param {string} cell @param {number} query */
function entryOf(index, curve, cell, query) {
  const column = curve < 0 ? undefined : index.ties[curve][cell];
  return column ? column[query] : NOT_RUN;
}

/**
 * What a row comes to at a k: `kind` is hit, miss, partly (a tie), failed or none; `word` is shown.
 * @param {any} entry of the index
 * @param {number} k
 * @returns {{kind: string, word: string, success: number|null}}
 */
function outcomeOf(entry, k) {
  const ties = tiesOf(entry);
  if (!ties) return entry === FAILED ? { kind: "failed", word: "failed", success: null } : { kind: "none", word: "not run", success: null };
  const success = successAt(ties, k);
  if (success > 0 && success < 1) return { kind: "partly", word: `tie (${fixed(success, 2)})`, success };
  return success ? { kind: "hit", word: "hit", success } : { kind: "miss", word: "miss", success };
}

/** @param {QueryIndex} index @param {Wish} wish @returns {number[]} the queries that fit */
function filtered(index, wish) {
  const words = wish.search.toLocaleLowerCase().split(/\s+/).filter(Boolean);
  const groups = index.groups || {};
  const found = [];
  for (let query = 0; query < index.id.length; query++) {
    if (wish.groups.some(([name, value]) => own(groups, name) && named(groups[name], query) !== value)) continue;
    if (words.length) {
      const text = `${index.id[query]}\n${index.text ? index.text[query] : ""}`.toLocaleLowerCase();
      if (!words.every((word) => text.includes(word))) continue;
    }
    if (wish.outcome && !fits(index, wish, query)) continue;
    found.push(query);
  }
  return found;
}

/** @param {QueryIndex} index @param {Wish} wish @param {number} query @returns {boolean} */
function fits(index, wish, query) {
  const one = outcomeOf(entryOf(index, wish.a, wish.cell, query), wish.k);
  if (!wish.outcome.includes("beats")) return one.kind === wish.outcome;
  const other = outcomeOf(entryOf(index, wish.b, wish.cell, query), wish.k);
  if (one.success === null || other.success === null) return false;
  return wish.outcome === "a-beats-b" ? one.success > other.success : other.success > one.success;
}

/** @param {Names|undefined} names @param {number} query @returns {string} empty if it has none */
function named(names, query) {
  return names && names.of[query] >= 0 ? names.names[names.of[query]] : "";
}

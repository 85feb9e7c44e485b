/* One query: its text, its golds, and the memories that one or two retrievers rank first. */

/**
 * @typedef {{size: number, golds: number[], shown: Array<[number, number|null]>}} QueryPool
 * @typedef {{curve: number, cell: string, order: number[], scores: number[], more: any}} Ranking
 * @typedef {{gold: number[], pools: Object<string, QueryPool>, rankings: Ranking[],
 *   memories: Map<number, [string, string|null]>}} QueryRows
 */

/** Read a query's rankings and the texts that they show. @param {number} query @returns {Promise<QueryRows>} */
async function readQuery(query) {
  const { queriesOfABlock, memoriesOfABlock, texts } = report.queries;
  const block = await blockValue(`rows-${Math.floor(query / queriesOfABlock)}`);
  const { gold, pools, rows } = block[query % queriesOfABlock];
  const rankings = rows.map(([curve, cell, order, scores, more]) => ({ curve, cell, order, scores, more: more || {} }));
  const memories = new Map();
  if (texts) {
    const used = Object.values(pools).flatMap((pool) => /** @type {QueryPool} */ (pool).shown.map(([, memory]) => memory));
    for (const number of new Set([...gold, ...used])) {
      const chunk = await blockValue(`memories-${Math.floor(number / memoriesOfABlock)}`);
      memories.set(number, chunk[number % memoriesOfABlock]);
    }
  }
  return { gold, pools, rankings, memories };
}

/**
 * @param {QueryIndex} index
 * @param {number} query
 * @param {QueryRows} rows
 * @param {Wish} wish
 * @returns {Node[]}
 */
function queryDetail(index, query, rows, wish) {
  const parts = [];
  if (index.text) parts.push(el("blockquote", { id: "q-text", dir: "auto" }, shown(index.text[query])));
  const groups = Object.entries(index.groups || {}).filter(([name]) => !own(index.fields, name));
  const facts = groups.map(([name, column]) => [(own(GROUP_TITLES, name) || name).toLowerCase(), named(column, query)]);
  for (const [name, column] of Object.entries(index.fields || {})) facts.push([name, named(column, query)]);
  const known = facts.filter(([, value]) => value);
  if (known.length) {
    parts.push(el("dl", { id: "q-facts" }, known.map(([name, value]) => el("div", {}, el("dt", {}, shown(name)), el("dd", {}, bdi(value))))));
  }
  if (rows.memories.size) {
    const golds = rows.gold.map((number) => el("li", { dir: "auto" }, shown(rows.memories.get(number)?.[0] || "")));
    parts.push(el("h4", {}, golds.length === 1 ? "Gold memory" : "Gold memories"), el("ul", { id: "q-gold" }, golds));
  }
  const sides = [["a", wish.a], ["b", wish.b]].filter(([, curve]) => curve >= 0);
  const found = sides.map(([side, curve]) => [side, curve, rows.rankings.find((one) => one.curve === curve && one.cell === wish.cell)]);
  parts.push(el("div", { class: sides.length > 1 ? "sides two" : "sides" }, found.map(([side, curve, ranking], i) => {
    const other = found[1 - i];
    return rankingSection(side, curve, ranking, other && other[2] ? other : null, rows, index, query, wish);
  })));
  return parts;
}

/**
 * @param {string} side
 * @param {number} curve
 * @param {Ranking|undefined} ranking
 * @param {any} other the other side, if there is one
 * @param {QueryRows} rows
 * @param {QueryIndex} index
 * @param {number} query
 * @param {Wish} wish
 */
function rankingSection(side, curve, ranking, other, rows, index, query, wish) {
  const name = report.curves[curve].name;
  const entry = entryOf(index, curve, wish.cell, query);
  const { kind, word } = outcomeOf(entry, wish.k);
  const section = el("section", { class: "ranking", "data-side": side, "data-curve": name, "aria-label": `Ranking of ${escaped(name)}` });
  section.append(el("h4", {}, bdi(name), " ", el("span", { class: `outcome ${kind}` }, el("b", {}, word), ` at k = ${wish.k}`)));
  const ties = tiesOf(entry);
  if (!ranking || !ties) {
    const why = ranking && ranking.more.error;
    section.append(el("p", {}, why ? "Failed: " : "This query was not run with this retriever and pool.", why ? bdi(why) : ""));
    return section;
  }
  const pool = rows.pools[wish.cell];
  section.append(el("p", { class: "gold-rank" }, goldRanks(ties, pool)));
  const facts = usage(ranking.more);
  if (facts) section.append(el("p", { class: "hint" }, facts));
  section.append(scrolling(`Memories ranked first by ${escaped(name)}`, rankingTable(ranking, ties, pool, other, rows)));
  return section;
}

/** @param {Array<[number, number]>} ties @param {QueryPool} pool */
function goldRanks(ties, pool) {
  const of = `of ${grouped(pool.size)}`;
  if (ties.length > 1) return `Ranks of the golds: ${ties.map(rankText).join("; ")}, ${of}.`;
  const [, tied] = ties[0];
  return `Rank of the gold: ${rankText(ties[0])} ${of}${tied > 1 ? `, tied with ${counted(tied - 1, "other")}` : ""}.`;
}

/** @param {any} more @returns {string} */
function usage(more) {
  const parts = [];
  if (more.calls) parts.push(`${counted(more.calls, "call")}, ${grouped(more.tokensIn || 0)} tokens in, ${grouped(more.tokensOut || 0)} out`);
  if (more.depth) parts.push(`the first ${grouped(more.depth)} of the first stage were reranked`);
  if (more.first) parts.push(`rank of the gold before: ${more.first.map(rankText).join("; ")}`);
  for (const [what, count] of Object.entries(more.repairs || {})) parts.push(`repaired: ${escaped(what)} \u00d7 ${count}`);
  return parts.length ? `${parts.join("; ")}.` : "";
}

/**
 * Ranks of the memories shown: equal scores share theirs; a group that reaches the end of the list
 * may go on below it.
 * @param {number[]} scores
 * @param {number} size of the pool
 * @returns {string[]}
 */
function ranksOf(scores, size) {
  return scores.map((score) => {
    const first = scores.indexOf(score) + 1;
    const last = scores.lastIndexOf(score) + 1;
    const open = last === scores.length && size > scores.length;
    if (first === last && !open) return String(first);
    return open ? `${first} or below` : `${first} to ${last}`;
  });
}

/**
 * @param {Ranking} ranking
 * @param {Array<[number, number]>} ties
 * @param {QueryPool} pool
 * @param {any} other
 * @param {QueryRows} rows
 */
function rankingTable(ranking, ties, pool, other, rows) {
  const isGold = (position) => pool.golds.indexOf(position);
  const ranks = ranksOf(ranking.scores, pool.size);
  const elsewhere = other ? otherRanks(other[2], pool) : null;
  const texts = rows.memories.size > 0;
  const line = (place, rank, score) => {
    const [position, number] = pool.shown[place];
    const gold = isGold(position);
    const memory = number === null ? undefined : rows.memories.get(number);
    return el("tr", { "data-position": position, class: gold >= 0 ? "gold" : null },
      el("td", { class: "figure" }, gold >= 0 ? [rankText(ties[gold]), " ", el("span", { class: "mark" }, "\u2605 gold")] : rank),
      texts && el("td", { class: "text", dir: "auto" }, memory ? shown(memory[0]) : "\u2013"),
      el("td", { class: "figure" }, score === null ? "\u2013" : String(Number(score.toPrecision(5))).replace("-", "\u2212")),
      elsewhere && el("td", { class: "figure" }, elsewhere.get(position) || "\u2013"),
      texts && el("td", { class: "label" }, memory && memory[1] ? labelPath(memory[1]) : ""),
      el("td", { class: "figure" }, grouped(position)));
  };
  const body = el("tbody", {}, ranking.order.map((place, i) => line(place, ranks[i], ranking.scores[i])));
  const below = pool.golds.filter((gold) => !ranking.order.some((place) => pool.shown[place][0] === gold));
  for (const gold of below) {
    const place = pool.shown.findIndex(([position]) => position === gold);
    body.append(line(place, "", null));
  }
  const heads = ["rank", texts && "memory", "score", other && `rank in ${escaped(report.curves[other[1]].name)}`, texts && "label", "position"];
  return el("table", {}, el("thead", {}, el("tr", {}, heads.filter(Boolean).map((head) => el("th", { scope: "col" }, head)))), body);
}

/** The ranks of the other side by position. @param {Ranking} ranking @param {QueryPool} pool */
function otherRanks(ranking, pool) {
  const ranks = ranksOf(ranking.scores, pool.size);
  return new Map(ranking.order.map((place, i) => [pool.shown[place][0], ranks[i]]));
}

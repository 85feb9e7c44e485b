/* Significance: differences of all pairs at one size, paired by query. */

/** @param {HTMLElement} panel */
function buildSignificance(panel) {
  const { sizes, areas, alpha, reasons } = report.significance;
  panel.append(
    el("p", {}, "Paired differences over the same queries. p is of a randomisation test over sessions, after Holm's correction over the pairs of this size and metric. ",
      `\u25b2 better and \u25bc worse than the retriever of the column, p at most ${alpha}; without a mark, not shown to differ.`),
  );
  if (reasons.length) panel.append(el("ul", { class: "hint" }, reasons.map((line) => el("li", {}, shown(line)))));
  const names = Object.keys(areas);
  const n = select("sig-n", report.sizes.map((one) => [one, grouped(one)]), report.sizes[0], () => update());
  const metric = select("sig-metric", names.map((one) => [one, one]), names[0], () => update());
  const matrix = el("table", { id: "sig-matrix" });
  const pairs = /** @type {HTMLTableElement} */ (el("table", { id: "sig-pairs" }));
  const area = /** @type {HTMLTableElement} */ (el("table", { id: "area" }));
  const none = el("p", { class: "hint" }, "Nothing to compare: fewer than two retrievers at this size.");
  const matrixPlace = scrolling("Matrix of differences", matrix);
  const pairsPlace = scrolling("Table of pairs", pairs);
  panel.append(
    el("div", { class: "controls" }, labelled("Distractors", n), labelled("Metric", metric)),
    none, matrixPlace, el("h3", {}, "All pairs"), pairsPlace,
    el("h3", {}, "Area under the curve"),
    el("p", {}, "One figure per retriever: the area under the metric against the logarithm of the pool's size, between 0 and 1."),
    scrolling("Areas under the curves", area),
  );
  const update = () => {
    const found = sizes[n.value][metric.value] || [];
    for (const element of [matrixPlace, pairsPlace]) element.hidden = found.length === 0;
    none.hidden = found.length > 0;
    fillMatrix(matrix, found, metric.value, n.value, alpha);
    fillPairs(pairs, found, metric.value, n.value);
    fillAreas(area, areas[metric.value], metric.value);
  };
  update();
}

/**
 * @param {HTMLElement} table
 * @param {any[]} pairs
 * @param {string} metric
 * @param {string} n
 * @param {number} alpha
 */
function fillMatrix(table, pairs, metric, n, alpha) {
  const curves = [...new Set(pairs.flatMap((one) => [one.a, one.b]))].sort((a, b) => a - b);
  const of = new Map(pairs.flatMap((one) => [[`${one.a} ${one.b}`, one], [`${one.b} ${one.a}`, flipped(one)]]));
  const head = el("tr", {}, el("td"), curves.map((curve) => el("th", { scope: "col" }, bdi(report.curves[curve].name))));
  const body = curves.map((a) => el("tr", {}, el("th", { scope: "row" }, bdi(report.curves[a].name)), curves.map((b) => {
    if (a === b) return el("td", { class: "same" }, "\u2013");
    const one = of.get(`${a} ${b}`);
    const data = { "data-a": report.curves[a].name, "data-b": report.curves[b].name };
    if (!one) return el("td", data, "not compared");
    const sure = one.holm !== null && one.holm <= alpha && one.difference !== 0;
    const mark = !sure ? "" : one.difference > 0 ? " \u25b2" : " \u25bc";
    return el("td", { ...data, class: sure ? (one.difference > 0 ? "better" : "worse") : "" },
      el("div", { class: "difference" }, `${one.difference === 0 ? "0" : signed(one.difference)}${mark}`),
      el("div", { class: "hint" }, `p ${pText(one.holm)}`),
      el("div", { class: "hint" }, `${grouped(one.wins)} wins, ${grouped(one.losses)} losses`));
  })));
  const caption = `${metric} at ${counted(Number(n), "distractor")}: the retriever of the row minus that of the column.`;
  table.replaceChildren(captionOf(caption), el("thead", {}, head), el("tbody", {}, body));
}

/** The same pair seen from the other side. @param {any} one */
function flipped(one) {
  const negative = (value) => (value === null ? null : -value);
  return {
    ...one, a: one.b, b: one.a, difference: -one.difference, low: negative(one.high), high: negative(one.low),
    effect: negative(one.effect), wins: one.losses, losses: one.wins,
  };
}

/** @param {HTMLTableElement} table @param {any[]} pairs @param {string} metric @param {string} n */
function fillPairs(table, pairs, metric, n) {
  const name = (number) => report.curves[number].name;
  const interval = (one) => (one.low === null ? (one.reason || "\u2013") : `${signed(one.difference)} [${signed(one.low)}, ${signed(one.high)}]`);
  const effect = (one) => (one.effect === null ? "\u2013" : signed(one.effect, 2));
  /** @type {Column[]} */
  const columns = [
    { key: "a", head: "a", text: true, head_of_row: true, value: (one) => name(one.a), cell: (one) => bdi(name(one.a)) },
    { key: "b", head: "b", text: true, value: (one) => name(one.b), cell: (one) => bdi(name(one.b)) },
    { key: "difference", head: "a \u2212 b [95 %]", value: (one) => one.difference, cell: interval },
    { key: "p", head: "p", value: (one) => one.p, cell: (one) => pText(one.p) },
    { key: "holm", head: "p (Holm)", value: (one) => one.holm, cell: (one) => pText(one.holm) },
    { key: "mcnemar", head: "p (McNemar)", value: (one) => one.mcnemar, cell: (one) => pText(one.mcnemar) },
    { key: "effect", head: "effect", value: (one) => one.effect, cell: effect },
    { key: "wins", head: "wins", value: (one) => one.wins, cell: (one) => grouped(one.wins) },
    { key: "ties", head: "ties", value: (one) => one.ties, cell: (one) => grouped(one.ties) },
    { key: "losses", head: "losses", value: (one) => one.losses, cell: (one) => grouped(one.losses) },
    { key: "n", head: "queries", value: (one) => one.n, cell: (one) => grouped(one.n) },
  ];
  const caption = `${metric} at ${counted(Number(n), "distractor")}, one row per pair. McNemar's exact test where all values are 0 or 1; effect: standardised mean difference over sessions.`;
  fillTable(table, caption, columns, pairs, (one) => ({ "data-a": name(one.a), "data-b": name(one.b) }));
}

/** @param {HTMLTableElement} table @param {any[]} areas @param {string} metric */
function fillAreas(table, areas, metric) {
  const name = (one) => report.curves[one.curve].name;
  /** @type {Column[]} */
  const columns = [
    { key: "retriever", head: "retriever", text: true, head_of_row: true, value: name, cell: (one) => bdi(name(one)) },
    { key: "area", head: "area [95 %]", value: (one) => one.mean, cell: withInterval },
    { key: "sizes", head: "distractors", text: true, value: (one) => one.sizes[0], cell: (one) => `${grouped(one.sizes[0])} to ${grouped(one.sizes[one.sizes.length - 1])}` },
    { key: "n", head: "queries", value: (one) => one.n, cell: (one) => grouped(one.n) },
  ];
  fillTable(table, `Area under ${metric} against log pool size.`, columns, areas, (one) => ({ "data-curve": name(one) }));
}

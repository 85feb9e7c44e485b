/* Breakdown: a metric by groups of queries, as a heat map and a table. */

/** Colours of a heat map from low to high, in both themes. */
const SHADES = [[247, 251, 255], [107, 174, 214], [8, 48, 107]];

/** The colour that plotly gives a share of the highest value. @param {number} share */
function shadeOf(share) {
  const place = Math.min(Math.max(share, 0), 1) * (SHADES.length - 1);
  const low = Math.min(Math.floor(place), SHADES.length - 2);
  return SHADES[low].map((from, i) => from + (SHADES[low + 1][i] - from) * (place - low));
}

/** Black or white, whichever has more contrast on a colour. @param {number[]} shade */
function inkOn(shade) {
  const [r, g, b] = shade.map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}

/** @param {HTMLElement} panel */
function buildBreakdown(panel) {
  if (!report.breakdown) {
    panel.append(el("p", { id: "breakdown-none" }, "The page was made without the data of the runs, so queries cannot be grouped."));
    return;
  }
  const { by, metrics, few } = report.breakdown;
  const kinds = Object.keys(by);
  const chosen = select("by", kinds.map((one) => [one, `${one}: ${by[one].title}`]), kinds[0], () => update());
  const metric = select("breakdown-metric", metrics.map((one) => [one, one]), metrics[0], () => update());
  const n = select("breakdown-n", report.sizes.map((one) => [one, grouped(one)]), report.sizes[0], () => update());
  const chart = makeChart("breakdown-chart", () => describeBreakdown(found()));
  const table = /** @type {HTMLTableElement} */ (el("table", { id: "breakdown-table" }));
  panel.append(
    el("p", {}, "A metric over groups of queries. Groups of fewer than ", el("strong", {}, `${few} queries`), " are marked \u201cfew\u201d: read their figures as examples."),
    el("div", { class: "controls" }, labelled("Groups", chosen), labelled("Metric", metric), labelled("Distractors", n)),
    el("figure", {}, chart.div),
    scrolling("Table of the breakdown", table),
  );
  /** The chosen cells by group and curve; the group of all queries is last. */
  const found = () => {
    const { title, groups, cells } = by[chosen.value];
    const mine = cells[metric.value][n.value] || [];
    const rows = [...groups, report.breakdown.total].map((name, place) => {
      const number = place === groups.length ? -1 : place;
      const held = new Map(mine.filter((one) => one[0] === number).map(([, curve, count, failed, mean, low, high]) => [curve, { count, failed, mean, low, high }]));
      const count = Math.max(0, ...[...held.values()].map((one) => one.count));
      return { name, total: number < 0, held, count, few: count < few };
    }).filter((row) => row.held.size > 0);
    const curves = report.curves.map((_, i) => i).filter((i) => rows.some((row) => row.held.has(i)));
    return { title, rows, curves, metric: metric.value, n: n.value, by: chosen.value };
  };
  const update = () => {
    fillBreakdown(table, found());
    redraw(chart);
  };
  update();
}

/** @param {HTMLTableElement} table @param {any} found */
function fillBreakdown(table, found) {
  const figure = (row, curve) => {
    const one = row.held.get(curve);
    if (!one) return "\u2013";
    const count = one.count === row.count ? "" : ` (of ${grouped(one.count)})`;
    return one.mean === null ? `\u2013${count}` : `${withInterval(one)}${count}`;
  };
  const order = new Map(found.rows.map((row, i) => [row.name, i]));
  /** @type {Column[]} */
  const columns = [
    { key: "group", head: "group", text: true, head_of_row: true, value: (row) => order.get(row.name), cell: (row) => bdi(row.name) },
    { key: "n", head: "queries", value: (row) => row.count, cell: (row) => [grouped(row.count), row.few && el("span", { class: "few" }, " few")].filter(Boolean) },
    ...found.curves.map((curve) => ({
      key: `c${curve}`,
      head: `${report.curves[curve].name} [95 %]`,
      value: (row) => (row.held.has(curve) ? row.held.get(curve).mean : null),
      cell: (row) => figure(row, curve),
    })),
  ];
  const caption = `${found.metric} at ${counted(Number(found.n), "distractor")} by ${found.by}: ${found.title}.`;
  fillTable(table, caption, columns, found.rows, (row) => ({ "data-group": row.name, class: row.total ? "total" : null }));
}

/** @param {any} found */
function describeBreakdown(found) {
  const rows = [...found.rows].reverse(); // plotly's first row is the lowest
  if (!rows.length) return null;
  const value = (row, curve) => (row.held.has(curve) ? row.held.get(curve).mean : null);
  const label = (row) => plotText(`${row.name.length > 32 ? `${row.name.slice(0, 31)}\u2026` : row.name} (${grouped(row.count)}${row.few ? ", few" : ""})`);
  const most = Math.max(0.01, ...rows.flatMap((row) => found.curves.map((curve) => value(row, curve) || 0)));
  const marks = rows.flatMap((row, y) => found.curves.map((curve, x) => ({ x, y, at: value(row, curve) }))).filter(({ at }) => at !== null);
  const hover = rows.map((row) => found.curves.map((curve) => {
    const one = row.held.get(curve);
    if (!one || one.mean === null) return "no figure";
    return plotText(`${report.curves[curve].name}, ${row.name}: ${withInterval(one)}, ${counted(one.count, "query", "queries")}`);
  }));
  return {
    traces: [{
      type: "heatmap", z: rows.map((row) => found.curves.map((curve) => value(row, curve))),
      x: found.curves.map((_, i) => i), y: rows.map((_, i) => i), hovertext: hover, hoverinfo: "text",
      colorscale: SHADES.map((shade, i) => [i / (SHADES.length - 1), `rgb(${shade.join(",")})`]), zmin: 0, zmax: most,
      xgap: 2, ygap: 2, colorbar: { thickness: 12, outlinewidth: 0 },
    }, {
      type: "scatter", mode: "text", x: marks.map(({ x }) => x), y: marks.map(({ y }) => y), text: marks.map(({ at }) => fixed(at, 2)),
      textfont: { color: marks.map(({ at }) => inkOn(shadeOf(at / most))) }, hoverinfo: "skip",
    }],
    height: 120 + 34 * rows.length,
    label: `Heat map of ${found.metric} by ${found.by} at ${found.n} distractors. The table below has the figures.`,
    layout: {
      hovermode: "closest",
      xaxis: { tickvals: found.curves.map((_, i) => i), ticktext: found.curves.map((curve) => plotText(report.curves[curve].name)), showgrid: false, zeroline: false, range: [-0.5, found.curves.length - 0.5] },
      yaxis: { tickvals: rows.map((_, i) => i), ticktext: rows.map(label), showgrid: false, zeroline: false, range: [-0.5, rows.length - 0.5] },
    },
  };
}

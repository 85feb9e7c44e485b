/* Curves of the chosen metric with their bands, and the table of all figures. */

/** @type {Set<string>} */
const hiddenCurves = new Set();

/** @param {HTMLElement} panel */
function buildResults(panel) {
  const metrics = report.metrics.map((one) => [one.symbol, one.title]);
  const metric = select("metric", metrics, chosenMetric().symbol, (value) => state.set({ m: value }));
  const k = select("k", report.ks.map((one) => [one, String(one)]), chosenK(), (value) => state.set({ k: value }));
  const drawn = report.curves.filter((curve) => sizesOf(curve).length > 0);
  const several = report.sizes.length > 1;
  const chart = makeChart("curve-chart", () => describeCurves(drawn));
  const again = () => redraw(chart);
  const bands = checkbox("bands", true, again);
  const logx = checkbox("logx", several && report.sizes[0] > 0, again);
  const logy = checkbox("logy", false, again);
  logx.disabled = !several || report.sizes[0] <= 0;

  const toggles = el("fieldset", { id: "curve-toggles" }, el("legend", {}, "Curves"));
  for (const curve of drawn) toggles.append(curveToggle(curve.name, swatch(curve.look), { "data-curve": curve.name }, again));
  report.published.forEach((line, i) => {
    toggles.append(curveToggle(line.name, null, { "data-published": line.name }, again, `${i + 1}: `));
  });
  const caption = el("figcaption", { id: "curve-caption" });
  const note = report.published.length ? `Dashed grey lines: ${report.publishedCaption}.` : "";
  byId("results-controls").append(
    el("div", { class: "controls" }, labelled("Metric", metric), labelled("k", k),
      labelled("intervals", bands), labelled("logarithmic sizes", logx), labelled("logarithmic metric", logy)),
    el("figure", {}, chart.div, caption),
    toggles,
    note && el("p", { class: "hint" }, note),
  );

  const fill = () => {
    setChoice(metric, chosenMetric().symbol);
    setChoice(k, chosenK());
    k.disabled = !chosenMetric().atK;
    caption.textContent = `${metricTitle(chosenMetric(), chosenK())} against the number of distractors in the pool, with 95 % intervals over sessions; dotted: chance. The table below has the figures.`;
    fillResults(/** @type {HTMLTableElement} */ (byId("results")));
    redraw(chart);
  };
  let last = "";
  state.listeners.push(() => {
    const now = `${chosenMetric().symbol}@${chosenK()}`;
    if (now !== last) {
      last = now;
      fill();
    }
  });
  panel.dataset.built = "true";
}

/** @param {Curve} curve @returns {number[]} sizes with a scored row, ascending */
function sizesOf(curve) {
  return Object.keys(curve.cells).filter((size) => curve.cells[size].scored > 0).map(Number).sort((a, b) => a - b);
}

/**
 * @param {string} name
 * @param {Node|null} sign
 * @param {Object<string, string>} data
 * @param {() => void} again
 * @param {string} [number] of a published line
 */
function curveToggle(name, sign, data, again, number = "") {
  const box = el("input", { type: "checkbox", autocomplete: "off", ...data });
  /** @type {HTMLInputElement} */ (box).checked = true;
  box.addEventListener("change", () => {
    if (/** @type {HTMLInputElement} */ (box).checked) hiddenCurves.delete(name);
    else hiddenCurves.add(name);
    again();
  });
  return el("label", {}, box, " ", sign, " ", number, bdi(name));
}

/** @param {Curve[]} curves */
function describeCurves(curves) {
  if (!curves.length) return null;
  const kind = chosenMetric();
  const name = metricName(kind, chosenK());
  const title = metricTitle(kind, chosenK());
  const checked = (id) => /** @type {HTMLInputElement} */ (byId(id)).checked;
  const visible = curves.filter((curve) => !hiddenCurves.has(curve.name));
  const single = report.sizes.length === 1;
  const traces = [];
  for (const curve of visible) {
    const sizes = sizesOf(curve).filter((size) => curve.cells[size].metrics[name]);
    const points = sizes.map((size) => curve.cells[size].metrics[name]);
    if (checked("bands") && points.length > 1) traces.push(band(curve, sizes, points));
    const style = traceStyle(curve.look);
    const trace = {
      ...style,
      x: single ? sizes.map(() => plotText(curve.name)) : sizes,
      y: points.map((one) => one.mean),
      customdata: points.map((one) => [fixed(one.low), fixed(one.high)]),
      name: plotText(curve.name),
      hovertemplate: "%{y:.3f} [%{customdata[0]}, %{customdata[1]}]<extra>%{fullData.name}</extra>",
    };
    if (checked("bands") && points.length === 1) {
      trace.error_y = { type: "data", symmetric: false, array: points.map((p) => p.high - p.mean), arrayminus: points.map((p) => p.mean - p.low), color: style.line.color };
    }
    traces.push(trace);
  }
  const chance = chanceLine(curves, name);
  if (!single) traces.push(...chance, ...publishedLines(kind));
  const shapes = single ? chance.map(({ y, line }) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: y[0], y1: y[0], line })) : [];
  const shownSizes = [...new Set(report.sizes)];
  const div = byId("curve-chart");
  div.dataset.curves = String(visible.length);
  div.dataset.title = title;
  const log = checked("logx") && !single;
  return {
    traces,
    label: `${title} of ${visible.map((curve) => escaped(curve.name)).join(", ") || "no curve"} against the number of distractors. The table below has the figures.`,
    layout: {
      hovermode: single ? "closest" : "x unified",
      shapes,
      xaxis: single
        ? { type: "category", title: { text: counted(report.sizes[0], "distractor") } }
        : { type: log ? "log" : "linear", tickvals: shownSizes, ticktext: shownSizes.map(grouped), title: { text: "distractors in the pool" } },
      yaxis: { type: checked("logy") ? "log" : "linear", rangemode: "tozero", title: { text: title } },
    },
  };
}

/** @param {Curve} curve @param {number[]} sizes @param {Estimate[]} points */
function band(curve, sizes, points) {
  return {
    x: [...sizes, ...[...sizes].reverse()],
    y: [...points.map((one) => one.high), ...points.map((one) => one.low).reverse()],
    fill: "toself",
    fillcolor: faded(colour(colourName(curve.look[0])), 0.14),
    line: { width: 0 },
    mode: "lines",
    hoverinfo: "skip",
  };
}

/** @param {Curve[]} curves @param {string} name */
function chanceLine(curves, name) {
  const chance = new Map();
  for (const curve of curves) {
    for (const size of sizesOf(curve)) {
      const one = curve.cells[size].metrics[name];
      if (one && one.chance !== undefined && !chance.has(size)) chance.set(size, one.chance);
    }
  }
  const sizes = [...chance.keys()].sort((a, b) => a - b);
  if (!sizes.length) return [];
  const line = { color: colour("--quiet"), width: 1.5, dash: "dot" };
  return [{ x: sizes, y: sizes.map((size) => chance.get(size)), mode: "lines", line, name: "chance", hovertemplate: "%{y:.3f}<extra>chance</extra>" }];
}

/** Published figures are of one chosen memory: recall@1. @param {MetricKind} kind */
function publishedLines(kind) {
  if (kind.symbol !== "R" || chosenK() !== 1) return [];
  const numbered = report.published.map((one, i) => ({ ...one, number: i + 1 }));
  return numbered.filter((one) => !hiddenCurves.has(one.name)).map((one) => ({
    x: one.values.map(([size]) => size),
    y: one.values.map(([, value]) => value),
    mode: "lines+text",
    text: one.values.map((_, at) => (at === one.values.length - 1 ? String(one.number) : "")),
    textposition: "middle right",
    line: { color: colour("--quiet"), width: 1.2, dash: "dash" },
    name: plotText(`${one.number}: ${one.name}`),
    hovertemplate: "%{y:.3f}<extra>%{fullData.name}</extra>",
  }));
}

/** @param {HTMLTableElement} table */
function fillResults(table) {
  const kind = chosenMetric();
  const k = chosenK();
  const name = metricName(kind, k);
  const rows = report.curves.flatMap((curve) => Object.entries(curve.cells).map(([size, cell]) => ({ curve, size: Number(size), cell })));
  const others = report.metrics.filter((one) => one.symbol !== kind.symbol);
  const has = (test) => rows.some(({ cell }) => test(cell));
  const mean = (metric) => (row) => (row.cell.metrics[metric] ? row.cell.metrics[metric].mean : null);
  /** @type {Column[]} */
  const columns = [
    { key: "retriever", head: "retriever", text: true, head_of_row: true, value: (row) => row.curve.name, cell: (row) => [swatch(row.curve.look), " ", bdi(row.curve.name)] },
    { key: "distractors", head: "distractors", value: (row) => row.size, cell: (row) => grouped(row.size) },
    { key: "value", head: `${name} [95 %]`, value: mean(name), cell: (row) => withInterval(row.cell.metrics[name]) },
  ];
  if (has((cell) => cell.metrics[name] && cell.metrics[name].worst !== undefined)) {
    const ends = (row) => row.cell.metrics[name];
    columns.push({ key: "ends", head: "ties: worst\u2013best", value: (row) => (ends(row) ? ends(row).best - ends(row).worst : null), cell: (row) => (ends(row) ? `${fixed(ends(row).worst)}\u2013${fixed(ends(row).best)}` : "\u2013") });
  }
  for (const one of others) {
    const other = metricName(one, k);
    columns.push({ key: `m-${one.symbol}`, head: other, value: mean(other), cell: (row) => (mean(other)(row) === null ? "\u2013" : fixed(mean(other)(row))) });
  }
  columns.push(
    { key: "tied", head: "tied", value: (row) => row.cell.tied, cell: (row) => (row.cell.tied === null ? "\u2013" : `${fixed(100 * row.cell.tied, 1)} %`) },
    { key: "chance", head: "chance", value: (row) => (row.cell.metrics[name] ? row.cell.metrics[name].chance : null), cell: (row) => (row.cell.metrics[name] ? fixed(row.cell.metrics[name].chance, 4) : "\u2013") },
  );
  if (has((cell) => cell.calls)) {
    const amount = (key, head) => columns.push({ key, head, value: (row) => row.cell[key], cell: (row) => (row.cell[key] === null ? "\u2013" : plainAmount(row.cell[key])) });
    amount("calls", "calls per query");
    amount("tokensIn", "tokens in per query");
    amount("tokensOut", "tokens out per query");
    amount("cost", "cost of all rows");
  }
  columns.push(
    { key: "scored", head: "scored", value: (row) => row.cell.scored, cell: (row) => (row.cell.scored === row.cell.rows ? grouped(row.cell.scored) : `${grouped(row.cell.scored)} of ${grouped(row.cell.rows)}`) },
    { key: "failed", head: "failed", value: (row) => row.cell.failed, cell: (row) => grouped(row.cell.failed) },
  );
  const caption = `${metricTitle(kind, k)} and other figures, one row per retriever and number of distractors. Intervals: 95 %, bootstrap over sessions.`;
  fillTable(table, caption, columns, rows, (row) => ({ "data-curve": row.curve.name, "data-distractors": row.size }));
}

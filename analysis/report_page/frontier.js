/* Frontier: recall against what a query takes. */

/** @param {HTMLElement} panel */
function buildFrontier(panel) {
  const { axes, sizes, reasons } = report.frontier;
  panel.append(el("p", {}, "Recall against tokens, milliseconds or cost per query. A configuration is on the frontier if none that takes as much or less has as much recall."));
  const known = Object.keys(sizes);
  for (const [size, reason] of Object.entries(reasons)) {
    panel.append(el("p", { class: "hint" }, `${counted(Number(size), "distractor")}: ${reason}.`));
  }
  if (!known.length) return;
  const usable = (axis) => known.some((n) => Object.values(sizes[n]).some((one) => one.points.some((point) => point.amounts[axis])));
  const first = ["tokens", "cost", "ms"].find(usable) || "ms";
  const axis = select("frontier-x", Object.entries(axes), first, () => update());
  const n = select("frontier-n", known.map((one) => [one, grouped(Number(one))]), known[known.length - 1], () => update());
  const k = select("frontier-k", report.ks.map((one) => [one, String(one)]), report.ks[0], () => update());
  const found = () => sizes[n.value][k.value];
  const chart = makeChart("frontier-chart", () => describeFrontier(found(), axis.value, axes[axis.value], k.value, n.value));
  const table = /** @type {HTMLTableElement} */ (el("table", { id: "frontier-table" }));
  const notes = el("ul", { class: "hint" });
  panel.append(
    el("div", { class: "controls" }, labelled("Per query", axis), labelled("Distractors", n), labelled("k", k)),
    el("figure", {}, chart.div),
    el("p", { class: "hint" }, "Milliseconds are those of the machine and moment of the run, and are not reproducible; recall, tokens and cost are."),
    notes,
    scrolling("Table of the frontier", table),
  );
  const update = () => {
    const { points, remarks } = found();
    notes.replaceChildren(...remarks[axis.value].map((line) => el("li", {}, shown(line))));
    /** @type {Column[]} */
    const columns = [
      { key: "name", head: "configuration", text: true, head_of_row: true, value: (one) => one.name, cell: (one) => bdi(one.name) },
      { key: "recall", head: `R@${k.value} [95 %]`, value: (one) => one.recall, cell: (one) => withInterval({ ...one, mean: one.recall }) },
      ...Object.keys(axes).map((key) => ({ key, head: key, value: (one) => one.amounts[key], cell: (one) => plainAmount(one.amounts[key]) })),
      { key: "on", head: "on the frontier", text: true, value: (one) => (one.on.includes(axis.value) ? "yes" : "no") },
    ];
    fillTable(table, `Recall at ${counted(Number(n.value), "distractor")} and what a query takes.`, columns, points, (one) => ({ "data-name": one.name }));
    redraw(chart);
  };
  update();
}

/** @param {any} found @param {string} axis @param {string} title @param {string} k @param {string} n */
function describeFrontier(found, axis, title, k, n) {
  const paid = found.points.filter((one) => one.amounts[axis]);
  const free = found.points.filter((one) => one.amounts[axis] === 0);
  if (!paid.length) return null;
  const looks = new Map(found.points.map((one, i) => [one.name, i]));
  const traces = paid.map((one) => {
    const { marker } = traceStyle([looks.get(one.name), 0]);
    return {
      x: [one.amounts[axis]], y: [one.recall], mode: "markers+text", marker: { ...marker, size: 11 }, name: plotText(one.name),
      text: [plotText(one.name)], textposition: "top center", cliponaxis: false,
      error_y: { type: "data", symmetric: false, array: [one.high - one.recall], arrayminus: [one.recall - one.low], color: marker.color },
      hovertemplate: "%{x:.4g}: %{y:.3f}<extra>%{fullData.name}</extra>",
    };
  });
  const best = paid.filter((one) => one.on.includes(axis)).sort((a, b) => a.amounts[axis] - b.amounts[axis]);
  traces.unshift({ x: best.map((one) => one.amounts[axis]), y: best.map((one) => one.recall), mode: "lines", line: { color: colour("--quiet"), dash: "dot", shape: "hv" }, hoverinfo: "skip" });
  const shapes = free.map((one) => ({ type: "line", xref: "paper", x0: 0, x1: 1, y0: one.recall, y1: one.recall, line: { dash: "dash", width: 1.5, color: colour(colourName(looks.get(one.name))) } }));
  const annotations = free.map((one) => ({ xref: "paper", x: 0, xanchor: "left", y: one.recall, yanchor: "bottom", showarrow: false, text: plotText(`${one.name}: none`) }));
  return {
    traces,
    label: `recall@${k} at ${n} distractors against ${title}. The table below has the figures.`,
    layout: { hovermode: "closest", shapes, annotations, xaxis: { type: "log", title: { text: plotText(title) } }, yaxis: { rangemode: "tozero", title: { text: `recall@${k}` } } },
  };
}

/* The runs: what they were made on and with, as their manifests say. */

/** @param {HTMLElement} panel */
function buildRuns(panel) {
  for (const run of report.runs) {
    const section = el("section", { class: "run", "data-run": run.name }, el("h3", {}, bdi(run.name)));
    const missing = run.expected - run.rows;
    const lines = [`${grouped(run.rows)} of ${counted(run.expected, "row")}`, `${grouped(run.failed)} failed`];
    if (missing > 0) lines.push("the run is not finished");
    section.append(el("p", {}, `${lines.join(", ")}.`));
    section.append(pairs("Data, pools and code", "facts", flat(run.facts)));
    for (const entry of run.retrievers) {
      const { label, ...rest } = entry;
      section.append(pairs(`Settings of ${label}`, "settings", flat(rest), label));
      const causes = failuresOf(run, label);
      if (causes.length) section.append(pairs(`Failures of ${label}`, "failures", causes, label));
      const notes = flat(run.notes[label] || {});
      if (notes.length) section.append(pairs(`Notes on ${label}`, "notes", notes, label));
    }
    const more = flat(run.more);
    if (more.length) section.append(pairs("Remarks of the run", "more", more));
    section.append(pairs("Versions", "versions", flat(run.libraries)));
    panel.append(section);
  }
}

/** @param {any} run @param {string} label @returns {Array<[string, any]>} */
function failuresOf(run, label) {
  const found = [];
  for (const curve of report.curves) {
    if (report.runs[curve.run] !== run || curve.label !== label) continue;
    for (const [size, cell] of Object.entries(curve.cells)) {
      for (const [cause, count] of Object.entries(/** @type {Cell} */ (cell).failures)) found.push([`at ${size}: ${cause}`, count]);
    }
  }
  return found;
}

/**
 * The members of nested objects and lists with their paths.
 * @param {any} value
 * @param {string} [path]
 * @returns {Array<[string, any]>}
 */
function flat(value, path = "") {
  if (Array.isArray(value) && value.every((one) => typeof one !== "object" || one === null)) return [[path, value.join(", ")]];
  if (typeof value !== "object" || value === null) return [[path, value]];
  return Object.entries(value).flatMap(([key, member]) => flat(member, path ? `${path}.${key}` : key));
}

/** @param {string} title @param {string} kind @param {Array<[string, any]>} rows @param {string} [label] */
function pairs(title, kind, rows, label) {
  const body = rows.map(([key, value]) => el("tr", {}, el("th", { scope: "row" }, shown(key)), el("td", { dir: "auto" }, shown(value === null ? "\u2013" : String(value)))));
  const table = el("table", { class: `pairs ${kind}`, "data-label": label }, captionOf(title), el("tbody", {}, body));
  return scrolling(escaped(title), table);
}

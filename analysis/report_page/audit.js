/* Audit: shortcuts in the data that need no reading. */

/** @param {HTMLElement} panel */
function buildAudit(panel) {
  const { audit } = report;
  if (!audit) {
    panel.append(el("p", { id: "audit-none" }, "The data was not audited for this page. ", el("code", {}, "recallbed report --audit"), " adds it; ", el("code", {}, "recallbed audit"), " prints it."));
    return;
  }
  panel.append(el("p", {}, "Rankers that read no text and other properties of the data by which a gold could be found without retrieval, each with its verdict. The cleaned view removes what it can."));
  panel.append(summaryOf(audit.summary));
  const table = /** @type {HTMLTableElement} */ (el("table", { id: "audit-table" }));
  const order = ["shortcut", "note", "clear", "not applicable"];
  const interval = (one) => (one.interval ? `${fixed(one.value)} [${fixed(one.interval.low)}, ${fixed(one.interval.high)}]` : one.value === null ? "\u2013" : fixed(one.value));
  /** @type {Column[]} */
  const columns = [
    { key: "name", head: "what", text: true, head_of_row: true, value: (one) => one.name, cell: (one) => shown(one.name) },
    { key: "verdict", head: "verdict", text: true, value: (one) => order.indexOf(one.verdict), cell: (one) => el("span", { class: `verdict ${one.verdict.replace(" ", "-")}` }, one.verdict) },
    { key: "value", head: "value [95 %]", value: (one) => one.value, cell: interval },
    { key: "chance", head: "chance", value: (one) => one.chance, cell: (one) => (one.chance === null ? "\u2013" : fixed(one.chance, 4)) },
    { key: "holm", head: "p (Holm)", value: (one) => one.holm, cell: (one) => pText(one.holm) },
    { key: "unit", head: "of", text: true, value: (one) => one.unit },
    { key: "cleaned", head: "cleaned", text: true, value: (one) => (one.cleaned ? one.cleaned.value : null), cell: (one) => cleanedText(one.cleaned) },
    { key: "text", head: "in words", text: true, value: (one) => one.text, cell: (one) => el("div", { class: "words" }, shown(one.text)) },
  ];
  fillTable(table, "Findings, worst first.", columns, audit.findings, (one) => ({ "data-name": one.name, "data-verdict": one.verdict }));
  panel.append(scrolling("Findings of the audit", table));
}

/** @param {any} cleaned */
function cleanedText(cleaned) {
  if (!cleaned) return "\u2013";
  if (cleaned.value === null) return shown(cleaned.reason || cleaned.verdict || "\u2013");
  return `${fixed(cleaned.value)}, ${cleaned.verdict}`;
}

/** Lines in words, of which the indented ones are items. @param {string[]} lines */
function summaryOf(lines) {
  const found = el("div", { id: "audit-summary" });
  for (const line of lines) {
    const last = found.lastElementChild;
    if (!line.startsWith(" ")) found.append(el("p", {}, shown(line)));
    else if (last && last.localName === "ul") last.append(el("li", {}, shown(line.trim())));
    else found.append(el("ul", {}, el("li", {}, shown(line.trim()))));
  }
  return found;
}

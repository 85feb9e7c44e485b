"use strict";
// Sorts the table by the column whose head is pressed; rows without a value stay last.
const heads = [...document.querySelectorAll("thead th")];
const body = document.querySelector("tbody");
const status = document.querySelector("[role=status]");

function valueOf(row, column, kind) {
  const cell = row.children[column];
  if (kind === "text") return cell.dataset.value ?? cell.textContent.trim();
  return cell.dataset.value === "" ? null : Number(cell.dataset.value);
}

heads.forEach((head, column) => {
  head.querySelector("button").addEventListener("click", () => {
    const kind = head.dataset.kind;
    const before = head.getAttribute("aria-sort");
    const first = kind === "figure" ? "descending" : "ascending";
    const order = before === null ? first : before === "ascending" ? "descending" : "ascending";
    const sign = order === "ascending" ? 1 : -1;
    const rows = [...body.rows].map((row) => [valueOf(row, column, kind), row]);
    rows.sort(([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return sign * (kind === "text" ? a.localeCompare(b) : a - b);
    });
    body.append(...rows.map(([, row]) => row));
    for (const one of heads) one.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", order);
    status.textContent = `Sorted by ${head.textContent}, ${order}.`;
  });
});

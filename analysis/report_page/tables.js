/* Tables that can be sorted by any column, by mouse or keyboard. */

/**
 * @typedef {{key: string, head: string, text?: boolean, value: (row: any) => any,
 *   cell?: (row: any) => any, head_of_row?: boolean}} Column
 * `value` is what is sorted by (null is last); `cell` what is shown, `value` if it is missing.
 */

/**
 * Fill a table; it keeps its order of sorting when it is filled again.
 * @param {HTMLTableElement} table
 * @param {string} caption
 * @param {Column[]} columns
 * @param {any[]} rows
 * @param {(row: any) => Object<string, any>} [attributes] of a row's element
 */
function fillTable(table, caption, columns, rows, attributes = () => ({})) {
  const head = el("tr");
  const body = el("tbody");
  const by = columns.find((column) => column.key === table.dataset.sorted);
  const order = { column: by || null, down: table.dataset.down === "true" };
  const made = rows.map((row) => ({ row, element: rowElement(columns, row, attributes(row)) }));

  const arrange = () => {
    const { column } = order;
    const sorted = column ? [...made].sort((one, other) => compared(column, order.down, one.row, other.row)) : made;
    body.replaceChildren(...sorted.map((one) => one.element));
    [...head.children].forEach((cell, i) => {
      const direction = order.down ? "descending" : "ascending";
      cell.setAttribute("aria-sort", columns[i] === column ? direction : "none");
    });
  };
  for (const column of columns) {
    const sort = () => {
      order.down = order.column === column ? !order.down : !column.text;
      order.column = column;
      table.dataset.sorted = column.key;
      table.dataset.down = String(order.down);
      arrange();
    };
    const button = el("button", { type: "button", "data-sort": column.key, on: { click: sort } }, shown(column.head));
    head.append(el("th", { scope: "col", class: column.text ? "" : "figure", "aria-sort": "none" }, button));
  }
  arrange();
  table.replaceChildren(captionOf(caption), el("thead", {}, head), body);
}

/** A caption that stays in view, and within it, when its table is scrolled. @param {string} text */
function captionOf(text) {
  return el("caption", {}, el("span", {}, shown(text)));
}

/** @param {Column[]} columns @param {any} row @param {Object<string, any>} attributes */
function rowElement(columns, row, attributes) {
  const cells = columns.map((column) => {
    const content = column.cell ? column.cell(row) : column.value(row);
    const kind = { "data-key": column.key, class: column.text ? "" : "figure" };
    if (column.head_of_row) return el("th", { scope: "row", ...kind }, content);
    return el("td", kind, content === null || content === undefined ? "\u2013" : content);
  });
  return el("tr", attributes, cells);
}

/** @param {Column} column @param {boolean} down @param {any} one @param {any} other @returns {number} */
function compared(column, down, one, other) {
  const [a, b] = [column.value(one), column.value(other)];
  const absent = (value) => value === null || value === undefined;
  if (absent(a) || absent(b)) return Number(absent(a)) - Number(absent(b));
  const found = typeof a === "number" && typeof b === "number" ? a - b : String(a) < String(b) ? -1 : Number(String(a) > String(b));
  return down ? -found : found;
}

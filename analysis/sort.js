"use strict";
function sortBy(table, column, header) {
  const descending = header.getAttribute("aria-sort") === "ascending";
  const key = (row) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
  };
  const order = (a, b) => {
    const [x, y] = [key(a), key(b)];
    if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
    const found = typeof x === "number" ? x - y : x.localeCompare(y);
    return descending ? -found : found;
  };
  const body = table.tBodies[0];
  body.append(...Array.from(body.rows).sort(order));
  for (const other of header.parentElement.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", descending ? "descending" : "ascending");
}
for (const header of document.querySelectorAll("table.sortable th")) {
  header.querySelector("button").addEventListener("click", () => {
    sortBy(header.closest("table"), header.cellIndex, header);
  });
}

// table.js - tables of columns and rows.
import { h } from "./dom.js";

// A column is {title, cell, help, num, wrap}: cell(row) returns a text or a node; help is the tooltip of the
// title; num right-aligns the cells; wrap permits line breaks in their text.

export function text(title, cell, help) {
  return { title, cell, help };
}

export function number(title, cell, help) {
  return { title, cell, help, num: true };
}

function headCell(column) {
  const props = { scope: "col", class: column.num ? "num" : null, title: column.help };
  return h("th", props, column.title);
}

function bodyCell(column, row) {
  const kind = column.num ? "num" : column.wrap ? "wrap" : null;
  return h("td", { class: kind }, column.cell(row));
}

export function table(columns, rows, caption) {
  const head = h("tr", {}, columns.map(headCell));
  const body = rows.map((row) =>
    h(
      "tr",
      {},
      columns.map((column) => bodyCell(column, row)),
    ),
  );
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", { class: "sr" }, caption),
      h("thead", {}, head),
      h("tbody", {}, body),
    ),
  );
}

export function tallTable(columns, rows, caption) {
  return h("div", { class: "tall-scroll" }, table(columns, rows, caption));
}

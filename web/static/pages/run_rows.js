// run_rows.js - the rows of the table of runs. The document contains only the visible rows and some around
// them, so a list of thousands scrolls as fast as one of twenty. All rows have the height of the first, and
// each is a grid of its own, so that adding or removing one does not affect the layout of others. Screen
// readers receive the number of rows and their positions. For searching and printing the page, all rows are
// drawn.
import { h } from "../base/dom.js";

// extra rows beyond each edge of the visible area, for the Tab key and a turn of the wheel
const around = 14;
const unmeasured = 40; // number of rows drawn before the height of a row is known

/** True for keys by which browsers search a page. */
function isFind({ key, ctrlKey, metaKey, target }) {
  if (ctrlKey || metaKey) return /^[fg]$/i.test(key);
  return key === "F3" || (/^[/']$/.test(key) && target.tagName !== "INPUT");
}

export class RunRows {
  /** make(row) returns the tr of a run. */
  constructor(make) {
    this.make = make;
    this.rows = []; // total number of rows
    this.height = 0; // height of a row in pixels; 0: not measured
    this.from = 0; // range of drawn rows: [from, to)
    this.to = 0;
    this.isWhole = false; // all rows are drawn
    this.left = null; // run whose row had the focus when it was removed
    this.body = h("tbody", { role: "rowgroup" });
    this.ruler = h("div", { class: "ruler", "aria-hidden": "true" }); // the widest cell of each column
    this.lengths = []; // lengths of the texts in the ruler
    this.isLonger = false; // true: a text was replaced since the last measurement
    this.boxHeight = 0;
    const find = (event) => isFind(event) && this.drawAll();
    let wasWhole = false;
    const print = () => {
      wasWhole = this.isWhole;
      this.drawAll();
    };
    const printed = () => {
      this.isWhole = wasWhole;
      this.draw();
    };
    addEventListener("keydown", find);
    addEventListener("beforeprint", print);
    addEventListener("afterprint", printed);
    this.close = () => {
      removeEventListener("keydown", find);
      removeEventListener("beforeprint", print);
      removeEventListener("afterprint", printed);
      this.size.disconnect();
    };
  }

  /** box: the scrolling element; head: the row of titles. */
  attach(box, table, head) {
    Object.assign(this, { box, table, head });
    box.append(this.ruler);
    box.addEventListener("scroll", () => this.draw(), { passive: true });
    box.addEventListener("blur", () => {
      this.left = null;
    });
    this.size = new ResizeObserver(([{ contentRect }]) => {
      this.boxHeight = contentRect.height;
      this.draw();
    });
    this.size.observe(box);
  }

  /** Replaces the rows; the focused element keeps the focus. */
  show(rows) {
    const focus = this.body.contains(document.activeElement) ? document.activeElement : null;
    const run = focus && focus.closest("tr").dataset.run;
    this.rows = rows;
    this.table.setAttribute("aria-rowcount", String(rows.length + 1));
    this.draw(true);
    if (run !== null) this.body.querySelector(`tr[data-run="${run}"] ${focus.tagName}`)?.focus();
  }

  showNothing(row) {
    this.rows = [];
    this.from = this.to = 0;
    this.body.style.padding = "0";
    this.body.replaceChildren(row);
  }

  forgetWidths() {
    const titles = [...this.head.children].map((title) => title.cloneNode(true));
    this.lengths = titles.map(() => -1);
    this.ruler.style.gridTemplateColumns = `repeat(${titles.length}, max-content)`;
    this.ruler.replaceChildren(...titles, ...titles.map(() => h("td")));
    this.isLonger = true;
  }

  drawAll() {
    this.isWhole = true;
    this.draw();
  }

  // ---- navigation

  /** Returns the index of the row that has the focus, or had it before it was scrolled away; -1: none. */
  at() {
    const row = document.activeElement?.closest("tr");
    const run = this.body.contains(row) ? row.dataset.run : this.left;
    return this.rows.findIndex((one) => one.run === run);
  }

  /** Scrolls a row into view and focuses it. */
  go(index) {
    const { box, height } = this;
    const room = box.clientHeight - this.head.offsetHeight - height;
    const top = index * height;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (top > box.scrollTop + room) box.scrollTop = top - room;
    this.draw();
    this.body.children[index - this.from].querySelector("input").focus();
  }

  range() {
    const { box, height, rows } = this;
    if (this.isWhole) return [0, rows.length];
    if (!height) return [0, Math.min(rows.length, unmeasured)];
    const seen = Math.ceil((this.boxHeight || box.clientHeight) / height);
    const first = Math.min(Math.floor(box.scrollTop / height), rows.length - seen);
    return [Math.max(0, first - around), Math.min(rows.length, first + seen + around)];
  }

  // ---- drawing

  /** Draws the rows that became visible and removes those that left the view; anew: recreates every row. */
  draw(anew) {
    const [from, to] = this.range();
    if (anew || from >= this.to || to <= this.from) {
      this.take(this.from, this.to);
      this.body.replaceChildren();
      this.from = this.to = from;
    }
    this.take(to, this.to);
    this.take(this.from, from);
    this.body.prepend(...this.made(from, this.from));
    this.body.append(...this.made(this.to, to));
    this.from = from;
    this.to = to;
    if (this.isLonger) this.measure();
    if (!this.height && to > from) {
      this.height = this.body.firstChild.getBoundingClientRect().height;
      if (this.height) return this.draw(true);
    }
    // a padding, because an individual position for every row takes four times as long
    this.body.style.padding = `${from * this.height}px 0 ${(this.rows.length - to) * this.height}px`;
    if (this.left !== null && document.activeElement === this.box) this.giveBack();
  }

  /** Creates the rows with indices from `from` to before `to`; none if `to` is not larger. */
  made(from, to) {
    return this.rows.slice(from, Math.max(from, to)).map((row, i) => {
      const made = this.make(row);
      made.setAttribute("aria-rowindex", String(from + i + 2)); // the titles are row 1
      for (let cell = made.firstChild, k = 0; cell; cell = cell.nextSibling, k++)
        this.widen(k, cell);
      return made;
    });
  }

  /** Removes drawn rows from one index to another; the box receives a focus among them. */
  take(from, to) {
    for (let i = to - 1; i >= from; i--) {
      const row = this.body.children[i - this.from];
      if (row.contains(document.activeElement)) {
        this.box.focus({ preventScroll: true });
        this.left = row.dataset.run;
      }
      row.remove();
    }
  }

  /** Returns the focus to its row. */
  giveBack() {
    const box = this.body.querySelector(`tr[data-run="${this.left}"] input`);
    if (box) box.focus({ preventScroll: true });
  }

  widen(column, cell) {
    const { length } = cell.textContent;
    if (length <= this.lengths[column]) return;
    this.lengths[column] = length;
    this.ruler.children[this.lengths.length + column].replaceWith(cell.cloneNode(true));
    this.isLonger = true;
  }

  /** Computes the columns' widths; the remaining width belongs to the last column if it is a text, else to
   * all. */
  measure() {
    this.isLonger = false;
    const widths = getComputedStyle(this.ruler).gridTemplateColumns.split(" ").map(parseFloat);
    const last = this.ruler.lastChild.classList.contains("num") ? -1 : widths.length - 1;
    const track = (width, i) => {
      const least = `${Math.ceil(width)}px`;
      if (last < 0) return `minmax(${least}, ${Math.ceil(width)}fr)`;
      return i === last ? `minmax(${least}, 1fr)` : least;
    };
    const all = widths.reduce((sum, width) => sum + Math.ceil(width), 0);
    this.table.style.minWidth = `${all}px`;
    this.table.style.setProperty("--columns", widths.map(track).join(" "));
  }
}

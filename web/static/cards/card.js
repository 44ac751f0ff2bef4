// card.js - a figure of a page: title, drawing, a generated sentence for screen readers, and a table of the
// numbers (key T). A card loads when it becomes visible, and again after new records while it is visible.
import { button } from "../base/controls.js";
import { empty, h, redrawInPlace, say } from "../base/dom.js";
import { table } from "../base/table.js";

/**
 * spec:
 *   title, sub      sub: a few words beside the title; wide: over the whole width of the page
 *   load(width)     returns a promise of data for a width in pixels
 *   every           minimum milliseconds between two loads caused by new records; default 1000
 *   draw(body, data)
 *   sentence(data)  returns a text; table(data): {columns, rows}, see base/table.js
 *   tools           nodes above the drawing
 *   keys(event)     true if the drawing handled the key; close()
 *   marks           true: the drawing also shows the run's events and restarts
 */
export class Card {
  constructor(spec) {
    this.spec = spec;
    this.data = null;
    this.width = 600;
    this.seen = false; // the card is visible on the screen
    this.stale = true;
    this.due = false; // redraw even if the data are unchanged
    this.loading = false;
    this.asTable = false;
    this.closed = false;
    this.sentence = "";
    this.loadedAt = 0;
    this.timer = 0;
    this.build();
    this.watch();
  }

  build() {
    const { title, sub, wide, tools } = this.spec;
    const flip = { class: "icon", "aria-pressed": "false", title: "numbers as a table (T)" };
    this.body = h("div", { class: "body" });
    this.numbers = h("div", { class: "tall-scroll" });
    this.caption = h("figcaption");
    this.sub = h("span", { class: "sub" }, sub || "");
    const grow = {
      class: "icon",
      "aria-pressed": "false",
      title: "over the page's width, and high",
    };
    this.growButton = button("Large", () => this.grow(), grow);
    this.flipButton = this.spec.table && button("Table", () => this.flip(), flip);
    this.el = h(
      "figure",
      {
        class: wide ? "card wide" : "card",
        role: "figure",
        tabindex: "0",
        "aria-label": title,
        onkeydown: (event) => this.key(event),
      },
      h(
        "header",
        {},
        h("h2", {}, title),
        this.sub,
        h("span", { class: "push" }),
        this.growButton,
        this.flipButton,
      ),
      tools ? h("div", { class: "tools" }, tools) : null,
      this.body,
      this.numbers,
      this.caption,
    );
    this.numbers.hidden = true;
  }

  watch() {
    const look = (entries) => {
      this.seen = entries[entries.length - 1].isIntersecting;
      if (this.seen && this.stale) this.load();
    };
    this.watcher = new IntersectionObserver(look, { rootMargin: "120px" });
    this.watcher.observe(this.el);
    // Reading the element's width would force the browser to compute the layout of the page.
    this.size = new ResizeObserver((entries) => {
      this.width = Math.round(entries[entries.length - 1].contentRect.width) || this.width;
    });
    this.size.observe(this.el);
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    this.watcher.disconnect();
    this.size.disconnect();
    if (this.spec.close) this.spec.close();
  }

  key(event) {
    if (event.target !== this.el || event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^t$/i.test(event.key) && this.spec.table) this.flip();
    else if (!this.spec.keys || !this.spec.keys(event)) return;
    event.preventDefault();
  }

  flip() {
    this.asTable = !this.asTable;
    this.flipButton.setAttribute("aria-pressed", String(this.asTable));
    this.body.hidden = this.asTable;
    this.numbers.hidden = !this.asTable;
    this.draw();
  }

  grow() {
    const isLarge = this.el.classList.toggle("large");
    this.growButton.setAttribute("aria-pressed", String(isLarge));
    this.due = true;
    this.load(); // a wider card shows more points
  }

  setSub(text) {
    say(this.sub, text);
  }

  draw() {
    if (!this.data) return;
    const { title, sentence } = this.spec;
    this.due = false;
    redrawInPlace(this.el, () => {
      if (this.asTable) {
        const { columns, rows } = this.spec.table(this.data);
        this.numbers.replaceChildren(table(columns, rows, title));
      } else this.spec.draw(this.body, this.data);
    });
    const text = sentence ? sentence(this.data) : "";
    if (text === this.sentence) return;
    this.sentence = text;
    say(this.caption, text);
    this.el.setAttribute("aria-label", text ? `${title}. ${text}` : title);
  }

  /** Loads at once, before the browser has computed the layout: for a card that the caller knows to be visible. */
  begin() {
    this.seen = true;
    this.load();
  }

  redraw() {
    if (this.seen) this.draw();
    else this.stale = this.due = true;
  }

  redrawMarks() {
    if (this.spec.marks) this.redraw();
  }

  /** Loads and draws. tick: true after new records, false after a choice of the user. */
  async load(tick) {
    this.stale = true;
    if (!tick && this.spec.marks) this.due = true;
    if (!this.seen || this.loading || this.closed || document.hidden) return;
    const { every = 1000 } = this.spec;
    const rest = tick ? this.loadedAt + every - performance.now() : 0;
    if (rest > 0) {
      this.timer = this.timer || setTimeout(() => this.load(), rest);
      return;
    }
    clearTimeout(this.timer);
    this.timer = 0;
    this.loadedAt = performance.now();
    this.loading = true;
    while (this.stale && !this.closed) {
      this.stale = false;
      try {
        await this.loadOnce();
      } catch (error) {
        if (!this.data) this.showError(error);
        break;
      }
    }
    this.loading = false;
  }

  async loadOnce() {
    const data = await this.spec.load(this.width);
    if (this.closed) return;
    const isNew = data !== this.data;
    this.data = data;
    // unchanged content is kept, including its focus and selection
    if (isNew || this.due) this.draw();
  }

  showError(error) {
    const box = empty(error.message);
    box.classList.add("error");
    this.body.replaceChildren(box);
  }
}

/** Adds a card to a page. find() returns a promise of the card, or of null if the run has none; if find()
 * fails, the page omits the card. */
export function optionalCard(find, isWide = true) {
  const box = h("div", { class: isWide ? "wide" : "", hidden: true });
  let card = null;
  find()
    .then((found) => {
      if (!found) return;
      card = found;
      box.replaceChildren(card.el);
      box.hidden = false;
      return card.load();
    })
    .catch(() => {});
  const pass =
    (what) =>
    (...args) =>
      card?.[what](...args);
  return { el: box, load: pass("load"), redraw: pass("redraw"), close: pass("close") };
}

// card.js - a figure: title, drawing, one generated sentence for those who listen, a table for those who want the numbers (T).
// Cards load when they are seen and again when something new was committed while they are seen.
import { h, say, table } from "./dom.js";

// spec: {title, sub, wide, every: milliseconds between loads at most, load(width) -> data, draw(body, data), sentence(data), table(data) -> {columns, rows}, tools: [nodes], keys(event)}
export function card(spec) {
  const body = h("div", { class: "body" }),
    caption = h("figcaption"),
    extra = h("div", { class: "tall-scroll" });
  const sub = h("span", { class: "sub" }, spec.sub || "");
  let data = null,
    width = 600,
    shown = false,
    busy = false,
    stale = true,
    asTable = false,
    dead = false,
    said = "",
    at = 0,
    later = 0;
  const button =
    spec.table &&
    h(
      "button",
      {
        class: "icon",
        type: "button",
        "aria-pressed": "false",
        title: "numbers as a table (T)",
        onclick: () => flip(),
      },
      "Table",
    );
  const el = h(
    "figure",
    {
      class: spec.wide ? "card wide" : "card",
      role: "figure",
      tabindex: "0",
      "aria-label": spec.title,
      onkeydown: (e) => {
        if (e.target !== el || e.ctrlKey || e.metaKey || e.altKey) return;
        if ((e.key === "t" || e.key === "T") && spec.table) flip();
        else if (!spec.keys || !spec.keys(e)) return;
        e.preventDefault();
      },
    },
    h("header", {}, h("h2", {}, spec.title), sub, h("span", { class: "push" }), button),
    spec.tools ? h("div", { class: "tools" }, spec.tools) : null,
    body,
    extra,
    caption,
  );
  extra.hidden = true;

  function flip() {
    asTable = !asTable;
    button.setAttribute("aria-pressed", String(asTable));
    body.hidden = asTable;
    extra.hidden = !asTable;
    put();
  }
  function put() {
    if (!data) return;
    if (asTable) {
      const t = spec.table(data);
      extra.replaceChildren(table(t.columns, t.rows, spec.title));
    } else spec.draw(body, data);
    const says = spec.sentence ? spec.sentence(data) : "";
    if (says === said) return;
    say(caption, (said = says));
    el.setAttribute("aria-label", says ? `${spec.title}. ${says}` : spec.title);
  }
  // tick: something was committed, as opposed to something was chosen
  async function load(tick) {
    stale = true;
    if (!shown || busy || dead || document.hidden) return;
    const rest = tick && spec.every ? at + spec.every - performance.now() : 0;
    if (rest > 0) {
      later = later || setTimeout(load, rest);
      return;
    }
    clearTimeout(later);
    later = 0;
    at = performance.now();
    busy = true;
    while (stale && !dead) {
      stale = false;
      try {
        const got = await spec.load(width);
        if (dead) return;
        const same = got === data && tick;
        data = got;
        if (!same) put();
      } catch (e) {
        if (!data) body.replaceChildren(h("div", { class: "empty error" }, e.message));
        break;
      }
    }
    busy = false;
  }
  const watcher = new IntersectionObserver(
    (seen) => {
      shown = seen[seen.length - 1].isIntersecting;
      if (shown && stale) load();
    },
    { rootMargin: "120px" },
  );
  watcher.observe(el);
  const size = new ResizeObserver((seen) => {
    width = Math.round(seen[seen.length - 1].contentRect.width) || width;
  }); // asking the element would make the browser lay out the page
  size.observe(el);
  return {
    el,
    load,
    redraw: () => {
      if (shown) put();
      else stale = true;
    },
    setSub: (t) => say(sub, t),
    close: () => {
      dead = true;
      clearTimeout(later);
      watcher.disconnect();
      size.disconnect();
      if (spec.close) spec.close();
    },
  };
}

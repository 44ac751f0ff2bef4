// dom.js - making elements. Text reaches the page as text nodes only; nothing here or elsewhere parses markup.
const svgNs = "http://www.w3.org/2000/svg";

function fill(el, props, kids) {
  for (const [key, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) el.addEventListener(key.slice(2), value);
    else if (key === "value" || key === "checked" || key === "disabled" || key === "indeterminate")
      el[key] = value;
    else el.setAttribute(key, value === true ? "" : value);
  }
  for (const kid of kids.flat())
    if (kid !== null && kid !== undefined && kid !== false) el.append(kid);
  return el;
}

export function h(tag, props, ...kids) {
  return fill(document.createElement(tag), props, kids);
}
export function svg(tag, props, ...kids) {
  return fill(document.createElementNS(svgNs, tag), props, kids);
}

// a text that is as it was costs nothing
const said = new WeakMap();
export function say(el, text) {
  if (said.get(el) === text) return;
  said.set(el, text);
  el.textContent = text;
}

// told to those who listen, once the keys rest
let telling = 0;
export function announce(text) {
  clearTimeout(telling);
  telling = setTimeout(() => say(document.getElementById("said"), text), 250);
}

export function select(label, options, value, onchange) {
  const box = h(
    "select",
    { "aria-label": label, onchange: () => onchange(box.value) },
    options.map(([v, text]) => h("option", { value: v }, text)),
  );
  box.value = value;
  return h("label", { class: "pick" }, h("span", {}, label), box);
}

export function toggle(label, on, onchange) {
  const b = h(
    "button",
    {
      class: "chip",
      type: "button",
      "aria-pressed": String(on),
      onclick: () => {
        on = !on;
        b.setAttribute("aria-pressed", String(on));
        onchange(on);
      },
    },
    label,
  );
  return b;
}

// a table from columns [{title, cell: row => text or node, num, key}] and rows
export function table(columns, rows, caption) {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", { class: "sr" }, caption),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          columns.map((c) =>
            h("th", { scope: "col", class: c.num ? "num" : null, title: c.help }, c.title),
          ),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((r) =>
          h(
            "tr",
            {},
            columns.map((c) =>
              h("td", { class: c.num ? "num" : c.wrap ? "wrap" : null }, c.cell(r)),
            ),
          ),
        ),
      ),
    ),
  );
}

// a polyline of up to 64 numbers; null leaves a gap; base: a line to hold it against
export function spark(values, label, base) {
  const w = 96,
    t = 22,
    known = values.filter((v) => v !== null);
  const floor = base === undefined ? [] : [base],
    lo = Math.min(...known, ...floor),
    hi = Math.max(...known, ...floor),
    span = hi - lo || 1;
  const level = (v) => (t - 3 - ((v - lo) / span) * (t - 6)).toFixed(1);
  let d = "",
    pen = "M";
  values.forEach((v, i) => {
    if (v === null) {
      pen = "M";
      return;
    }
    d += `${pen}${(2 + (i * (w - 4)) / Math.max(1, values.length - 1)).toFixed(1)} ${level(v)}`;
    pen = "L";
  });
  if (known.length === 1) d += "h.01";
  return svg(
    "svg",
    { class: "spark", viewBox: `0 0 ${w} ${t}`, role: "img", "aria-label": label },
    base !== undefined && known.length
      ? svg("path", { class: "base", d: `M2 ${level(base)}H${w - 2}` })
      : null,
    known.length ? svg("path", { d }) : null,
  );
}

// hatching, for what nobody accounts for
document.body.append(
  svg(
    "svg",
    { width: 0, height: 0, class: "sr", "aria-hidden": "true" },
    svg(
      "pattern",
      {
        id: "hatch",
        width: 5,
        height: 5,
        patternUnits: "userSpaceOnUse",
        patternTransform: "rotate(45)",
      },
      svg("rect", { class: "hatch", width: 2.5, height: 5 }),
    ),
  ),
);

// shares side by side in one bar: [{share, color (CSS variable), label, hatch}]; total shares may be below 1
export function bar(parts, label) {
  const b = svg("svg", {
    class: "bar",
    viewBox: "0 0 1000 10",
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": label,
  });
  let at = 0;
  for (const p of parts) {
    const w = Math.max(0, p.share || 0) * 1000;
    if (w > 0) {
      const r = svg(
        "rect",
        { x: at.toFixed(2), y: 0, width: w.toFixed(2), height: 10 },
        svg("title", {}, p.label),
      );
      r.style.fill = p.hatch ? "url(#hatch)" : `var(${p.color})`;
      b.append(r);
    }
    at += w;
  }
  return b;
}

export function legend(entries) {
  return h(
    "ul",
    { class: "legend" },
    entries.map((e) => {
      const dot = h("i", { "aria-hidden": "true" });
      dot.style.background = e.hatch
        ? `repeating-linear-gradient(45deg, var(${e.color}) 0 2px, transparent 2px 4px)`
        : `var(${e.color})`;
      return h("li", {}, dot, e.label);
    }),
  );
}

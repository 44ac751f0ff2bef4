// dom.js - creates elements and changes their texts. All text is inserted as text nodes: no module of the
// page parses markup. This module requires the two live regions of index.html, #toast and #said.

const svgNamespace = "http://www.w3.org/2000/svg";
const asProperty = ["value", "checked", "disabled", "indeterminate"];

function fill(el, props, kids) {
  for (const [key, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) el.addEventListener(key.slice(2), value);
    else if (asProperty.includes(key)) el[key] = value;
    else el.setAttribute(key, value === true ? "" : value);
  }
  for (const kid of kids.flat())
    if (kid !== null && kid !== undefined && kid !== false) el.append(kid);
  return el;
}

/**
 * Creates an HTML element. A property whose name begins with "on" is a listener; one that is null, undefined
 * or false is omitted. Children are nodes, texts, or lists of them.
 */
export function h(tag, props, ...kids) {
  return fill(document.createElement(tag), props, kids);
}

export function svg(tag, props, ...kids) {
  return fill(document.createElementNS(svgNamespace, tag), props, kids);
}

const texts = new WeakMap();

/** Sets the text of an element; has no effect if it is unchanged. */
export function say(el, text) {
  if (texts.get(el) === text) return;
  texts.set(el, text);
  el.textContent = text;
}

let announcing = 0;

export function announce(text) {
  clearTimeout(announcing);
  announcing = setTimeout(() => say(document.getElementById("said"), text), 250);
}

/** Shows a message in the corner for four seconds. */
export function toast(text) {
  const box = document.getElementById("toast");
  box.textContent = text;
  box.classList.add("shown");
  setTimeout(() => box.classList.remove("shown"), 4000);
}

export function empty(text) {
  return h("div", { class: "empty" }, text);
}

/** Creates a heading for screen readers only; each page has one. */
export function hiddenTitle(text) {
  return h("h1", { class: "sr" }, text);
}

const focusable = "a[href], button, input, select, summary, [tabindex]";

/** Redraws the content of an element and preserves focus and scroll positions, which are matched by order. */
export function redrawInPlace(el, draw) {
  const parts = () => [...el.querySelectorAll(focusable)];
  const boxes = () => [...el.querySelectorAll(".scroll, .tall-scroll")];
  const at = el.contains(document.activeElement) ? parts().indexOf(document.activeElement) : -1;
  const places = boxes().map(({ scrollLeft, scrollTop }) => [scrollLeft, scrollTop]);
  draw();
  boxes().forEach((box, i) => {
    const [left, top] = places[i] || [0, 0];
    if (left || top) box.scrollTo({ left, top, behavior: "instant" });
  });
  if (at >= 0 && !el.contains(document.activeElement)) parts()[at]?.focus({ preventScroll: true });
}

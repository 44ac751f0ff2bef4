// section.js - a card without a drawing, loaded by its creator: title and content.
import { h } from "../base/dom.js";

export function section(title, sub, wide, ...content) {
  const head = h("header", {}, h("h2", {}, title), h("span", { class: "sub" }, sub));
  return h("section", { class: wide ? "card wide" : "card" }, head, content);
}

// page.js - the common frame of the pages of a run.
import { h, hiddenTitle } from "../base/dom.js";

/**
 * Shows a page: a title for screen readers, and cards in a grid. ctx: the View (frame/view.js) that closes
 * the cards; before: nodes between the title and the cards.
 */
export function showPage(root, ctx, title, cards, ...before) {
  cards.forEach((card) => ctx.add(card));
  const elements = cards.map((card) => card.el);
  root.replaceChildren(hiddenTitle(title), ...before, h("div", { class: "grid" }, elements));
}

// optional_card.js - a card that only some runs have: it takes its place when it is known that it fits.
import { h } from "../base/dom.js";

/**
 * Among the cards of a page. find() promises the card, or nothing for a run that has none; the page
 * does without one that cannot be found out.
 */
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

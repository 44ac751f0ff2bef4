// first_page_boxes.js - boxes around the charts of the first page: configuration, overloaded host, and the
// two newest samples side by side.
import { h, say } from "../base/dom.js";
import { nth } from "../base/format.js";

/** Model, data, layout, learning rate and batch; a warning about a busy machine; and remarks about the run. */
export function chipsBox(ctx) {
  const list = h("ul", { class: "chips", "aria-label": "what is trained" });
  const crowded = h("p", { class: "crowded", hidden: true });
  let shown = "";
  ctx.onHead((head) => {
    const key = JSON.stringify(head.chips);
    const sentences = [head.crowded, ...(head.remarks || [])].filter(Boolean);
    crowded.hidden = !sentences.length;
    say(crowded, sentences.join(" "));
    if (key === shown) return;
    shown = key;
    list.replaceChildren(
      ...(head.chips || []).map(({ name, text }) => h("li", {}, h("span", {}, name), " ", text)),
    );
  });
  return h("div", {}, list, crowded);
}

function sampleBox(when) {
  const title = h("h2");
  const from = h("p", { class: "note" });
  const text = h("pre", { tabindex: "0" });
  const el = h("section", { class: "card sample" }, title, from, text);
  const put = (sample) => {
    el.hidden = !sample;
    if (!sample) return;
    say(title, `${when}, step ${nth(sample.step)}`);
    say(from, sample.prompt ? `after “${sample.prompt}”` : "");
    say(text, sample.text.trimStart());
  };
  return { el, put };
}

/** The two newest samples; hidden if there are none. The box is among the cards of a page but loads nothing. */
export function samplesCard(ctx) {
  const now = sampleBox("The model writes");
  const before = sampleBox("Before");
  const box = h("div", { class: "grid wide", hidden: true }, now.el, before.el);
  ctx.onHead(() => {
    box.hidden = !ctx.samples.length;
    now.put(ctx.samples[0]);
    before.put(ctx.samples[1]);
  });
  const nothing = () => {};
  return { el: box, load: nothing, redraw: nothing, close: nothing };
}

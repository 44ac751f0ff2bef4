// gate.js - replaces a page by the prompt for the token, or by the reason why there are no data. The previous
// page remains visible below, dimmed, because it may be outdated.
import { h } from "../base/dom.js";

function showAbove(root, hasPast, ...content) {
  const past = h("div", { class: "past", inert: true }, ...(hasPast ? root.childNodes : []));
  root.replaceChildren(h("section", { class: "card gate", role: "alert" }, ...content), past);
  scrollTo({ top: 0, behavior: "instant" });
}

/** onenter receives the token that was typed; again: true if an earlier token was accepted before. */
export function showGate(root, again, onenter) {
  const box = h("input", {
    type: "password",
    autocomplete: "off",
    "aria-label": "token",
    placeholder: "token",
  });
  const onsubmit = (event) => {
    event.preventDefault();
    onenter(box.value.trim());
  };
  const code = (text) => h("code", {}, text);
  const title = again
    ? "The token of this dashboard has changed"
    : "This dashboard needs its token";
  showAbove(
    root,
    again,
    h("h2", {}, title),
    h(
      "p",
      {},
      "Open the whole address that ",
      code("bitrain dash"),
      again ? " printed when it was started again" : " printed",
      ", or paste the part after ",
      code("#token="),
      ".",
    ),
    h("form", { onsubmit }, box, h("button", { class: "main", type: "submit" }, "Open")),
  );
  box.focus();
}

/** Reports that the run does not exist, or was removed. shown: the page displays numbers of the run. */
export function showGone(root, run, shown, error) {
  const title = shown ? `The run ${run} was removed or has another name now` : error.message;
  const note = shown ? "The page shows its last known values." : error.hint;
  showAbove(
    root,
    shown,
    h("h2", {}, title),
    h("p", { class: "note" }, note),
    h("a", { href: "#/runs" }, "all runs"),
  );
}

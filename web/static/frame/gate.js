// gate.js - what stands in place of a page: the question for the token, or why there is nothing to
// show.
import { h } from "../base/dom.js";

/** onenter gets the token that was typed. */
export function showGate(root, onenter) {
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
  root.replaceChildren(
    h(
      "section",
      { class: "card gate" },
      h("h2", {}, "This dashboard asks for its token"),
      h(
        "p",
        {},
        "Open the whole address that ",
        code("bitrain dash"),
        " printed, or paste the part after ",
        code("#token="),
        ".",
      ),
      h("form", { onsubmit }, box, h("button", { class: "main", type: "submit" }, "Open")),
    ),
  );
  box.focus();
}

export function showNotFound(root, error) {
  root.replaceChildren(
    h(
      "section",
      { class: "card gate" },
      h("h2", {}, error.message),
      h("p", { class: "note" }, error.hint),
      h("a", { href: "#/runs" }, "all runs"),
    ),
  );
}

// controls.js - input elements: buttons, switches, lists.
import { h } from "./dom.js";

export function button(label, onclick, props) {
  return h("button", { ...props, type: "button", onclick }, label);
}

/** A list with a label beside it. options: [value, text] pairs; onchange receives the value. */
export function select(label, options, value, onchange) {
  const box = h(
    "select",
    { "aria-label": label, onchange: () => onchange(box.value) },
    options.map(([key, text]) => h("option", { value: key }, text)),
  );
  box.value = value;
  return h("label", { class: "pick" }, h("span", {}, label), box);
}

/** A button that is on or off; onchange receives true or false. */
export function toggle(label, on, onchange) {
  const flip = () => {
    on = !on;
    box.setAttribute("aria-pressed", String(on));
    onchange(on);
  };
  const box = button(label, flip, { class: "chip", "aria-pressed": String(on) });
  return box;
}

/** A check box with its label; onchange receives true or false. */
export function checkbox(label, on, onchange) {
  const box = h("input", { type: "checkbox", checked: on, onchange: () => onchange(box.checked) });
  return h("label", {}, box, label);
}

/** A text box with its label; onchange receives the text after Enter or when the box loses the focus. */
export function textBox(label, onchange) {
  const box = h("input", {
    type: "search",
    "aria-label": label,
    placeholder: label,
    onchange: () => onchange(box.value.trim()),
  });
  return box;
}

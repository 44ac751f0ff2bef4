// ask.js - dialogs of the page: a question with fields, and the action on its answer.
import { statement } from "./api.js";
import { button } from "./controls.js";
import { h, say } from "./dom.js";

/** Opens a dialog. Returns a promise of the fields' values by name; null: cancelled. spec: {title, text,
 * action, danger, fields: [{name, label, type, value, note, options, maxlength}], tell, alert}. A field of
 * type "checkbox" has the value true or false, one of type "lines" may contain several lines; options is a
 * list of [value, text]. tell(values) returns the text below the fields, updated when they change; alert:
 * error of the previous attempt. */
export function ask({ title, text, action, danger, fields = [], tell, alert }) {
  if (document.querySelector("dialog")) return Promise.resolve(null);
  const boxes = fields.map((field) => [field.name, boxOf(field)]);
  const valueOf = (box) => (box.type === "checkbox" ? box.checked : box.value.trim());
  const values = () => Object.fromEntries(boxes.map(([name, box]) => [name, valueOf(box)]));
  return new Promise((resolve) => {
    let answer = null;
    const end = () => {
      box.remove();
      resolve(answer);
    };
    const told = h("p", { class: "note", "aria-live": "polite" });
    const retell = () => tell && say(told, tell(values()));
    const accept = (event) => {
      event.preventDefault();
      answer = values();
      box.close();
    };
    const submit = { class: danger ? "danger" : "main", type: "submit" };
    const box = h(
      "dialog",
      { class: "help ask", "aria-label": title, onclose: end },
      h("h3", {}, title),
      text ? h("p", { class: "note" }, text) : null,
      h(
        "form",
        { onsubmit: accept, oninput: retell },
        fields.map((field, i) => labelOf(field, boxes[i][1])),
        tell ? told : null,
        alert ? h("p", { class: "level-error", role: "alert" }, alert) : null,
        h(
          "p",
          { class: "end" },
          button("Cancel", () => box.close()),
          h("button", submit, action),
        ),
      ),
    );
    retell();
    document.body.append(box);
    box.showModal();
  });
}

/** Repeats the dialog until act(answer) succeeds. If act throws, the dialog reopens with its values and the error.
 * Returns a promise of the answer; null: cancelled. */
export async function askUntil(spec, act) {
  let { fields } = spec;
  for (let alert = ""; ;) {
    const answer = await ask({ ...spec, fields, alert });
    if (!answer) return null;
    try {
      await act(answer);
      return answer;
    } catch (error) {
      alert = statement(error);
      fields = fields.map((field) => ({ ...field, value: answer[field.name] }));
    }
  }
}

function boxOf({ type = "text", value = "", options, label, maxlength }) {
  if (options)
    return h(
      "select",
      { "aria-label": label },
      options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)),
    );
  if (type === "checkbox") return h("input", { type, checked: Boolean(value) });
  if (type === "lines")
    return h("textarea", { rows: 4, maxlength, value: String(value), "aria-label": label });
  const step = type === "number" ? "any" : null;
  const text = String(value);
  return h("input", {
    type,
    step,
    value: text,
    maxlength,
    "aria-label": label,
    autocomplete: "off",
  });
}

function labelOf({ label, note, type }, box) {
  const help = note ? h("small", { class: "note" }, note) : null;
  if (type === "checkbox") return h("label", { class: "tick" }, box, " ", label, help);
  return h("label", {}, h("span", {}, label), box, help);
}

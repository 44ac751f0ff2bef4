// control_bar.js - the buttons that steer a live run, one a verb that has a label (verbs.def); the
// server allows them with --control.
import { control } from "../base/api.js";
import { button } from "../base/controls.js";
import { h, toast } from "../base/dom.js";
import { verbs } from "../base/vocabulary.js";

/** The buttons, hidden, and offer(head), which shows those that the run may be asked for now. */
export function controlBar(run) {
  const send = async (verb, value) => {
    try {
      const answer = await control(run, verb, value);
      toast(answer.reply || `${verb}: asked`);
    } catch (error) {
      toast(error.message);
    }
  };
  const rate = h("input", {
    type: "number",
    step: "any",
    min: "0",
    placeholder: "learning rate",
    "aria-label": "learning rate",
  });
  const setRate = () => {
    if (rate.value && confirm(`Set the learning rate of ${run} to ${rate.value}?`))
      send("set", `lr=${rate.value}`);
  };
  const stop = () => {
    if (confirm(`Stop ${run}? It writes a checkpoint first.`)) send("stop");
  };
  const buttonOf = ({ verb, label, help }) =>
    verb === "stop"
      ? button(label, stop, { class: "danger", title: help })
      : button(label, () => send(verb), { title: help });
  const labelled = verbs.filter((row) => row.label);
  const buttons = labelled.map(buttonOf);
  const tools = [rate, button("Set", setRate)];
  const bar = h("div", { class: "bar-tools verbs", hidden: true }, tools, buttons);
  const offer = ({ live, state }) => {
    const offered = (verb) => verbs.some((row) => row.verb === verb && row.states.includes(state));
    bar.hidden = !live;
    buttons.forEach((one, i) => (one.hidden = !offered(labelled[i].verb)));
    tools.forEach((one) => (one.hidden = !offered("set")));
  };
  return { bar, offer };
}

// control_bar.js - the buttons that steer a live run; the server allows them with --control.
import { control } from "../base/api.js";
import { button } from "../base/controls.js";
import { h, toast } from "../base/dom.js";

/** The buttons, hidden. */
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
  return h(
    "div",
    { class: "bar-tools verbs", hidden: true },
    button("Pause", () => send("pause")),
    button("Resume", () => send("resume")),
    button("Checkpoint", () => send("checkpoint")),
    rate,
    button("Set", setRate),
    button("Stop", stop, { class: "danger" }),
  );
}

// start_run.js - the dialog that starts a run on the server's machine: it shows the effect of the values, and
// opens the run once it has begun.
import { get, post, statement } from "../base/api.js";
import { ask } from "../base/ask.js";
import { toast } from "../base/dom.js";

const lookMs = 500;
const looksMost = 60;

function fieldOf({ name, choices, help }, values) {
  const options = choices ? choices.split("|").map((one) => [one, one]) : undefined;
  return { name, label: name, value: values[name], note: help, options, maxlength: 500 };
}

function quoted(word) {
  return /^[\w./:+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** Describes the effect in words, and as the equivalent command. */
function whatItDoes(fields, values) {
  const on = values.data || "the built-in text";
  const steps = values.steps ? `${values.steps} steps` : "the number of steps of the preset";
  const name = values.name ? `as ${values.name}` : "with a generated name";
  const given = fields.filter((field) => values[field.name]);
  const words = given.map((field) => ` ${field.option} ${quoted(values[field.name])}`).join("");
  const command = `bitrain train${words}${values.name ? ` --name ${values.name}` : ""}`;
  return `Trains ${values.preset} on ${on}, ${steps}, on the server's machine, ${name}: ${command}`;
}

/** Waits until the database contains the run, then opens its page, which also shows an early failure. */
async function openWhenBegun(run) {
  for (let i = 0; i < looksMost; i++) {
    try {
      await get(`runs/${run}/head`);
      location.hash = `#/run/${run}/overview`;
      return;
    } catch (error) {
      if (error.status !== 404) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, lookMs));
  }
  toast(`${run} has not begun within ${(looksMost * lookMs) / 1000} s`);
}

/** fields: those of GET server. Errors are shown in the dialog, which keeps its values. */
export async function startRun(fields) {
  let values = Object.fromEntries(fields.map(({ name, first }) => [name, first]));
  for (let alert = ""; ;) {
    values = await ask({
      title: "Start a run",
      action: "Start",
      alert,
      tell: (now) => whatItDoes(fields, now),
      fields: [
        ...fields.map((field) => fieldOf(field, values)),
        {
          name: "name",
          label: "name",
          value: values.name,
          note: "empty: a generated name",
          maxlength: 64,
        },
      ],
    });
    if (!values) return;
    const { name, ...settings } = values;
    try {
      const { run, reply } = await post("start", { name, settings });
      toast(reply);
      await openWhenBegun(run);
      return;
    } catch (error) {
      alert = statement(error);
    }
  }
}

// control_bar.js - controls of a run: the verbs that its state permits (verbs.def), its learning rate, a
// sample after a prompt, its name, tags, note and notes at steps, and its removal.
import { control, get, statement } from "../base/api.js";
import { button } from "../base/controls.js";
import { h, say, toast } from "../base/dom.js";
import { digits, nth } from "../base/format.js";
import { storedTag, tagsOf } from "../base/tags.js";
import { verbs } from "../base/vocabulary.js";
import { ask, askUntil } from "../base/ask.js";

/** Kind of event that reports the outcome of a verb; "": the response contains the outcome. */
const outcomeOf = (verb) => verbs.find((row) => row.verb === verb)?.outcome;

/** a peak rate above this multiple of the configured one needs a confirmation (monitor/job/requests.c) */
const rateFactorAsked = 10;

export function readOnlyNote() {
  const text = "read-only: start it with ";
  const command = h("code", {}, "bitrain dash --control");
  return h("p", { class: "note read-only" }, text, command, " to steer runs from here");
}

class ControlBar {
  constructor(run) {
    this.run = run;
    this.head = null;
    this.waiting = null; // {verb, seq} of a request whose outcome is pending
    const labelled = verbs.filter((row) => row.label);
    this.buttons = labelled.map((row) => [row.verb, this.verbButton(row)]);
    this.rate = button("Learning rate", () => this.setRate(), {
      title: "the present and the peak",
    });
    this.sample = button("Sample", () => this.askSample(), {
      title: "a sample from a prompt",
    });
    this.resume = button("Resume", () => this.send("resume"), {
      title: "start it again from its newest checkpoint",
    });
    const words = [
      button("Note here", () => this.annotate(), { title: "a note at the newest step" }),
      button("Name, tags, note", () => this.describe(), { title: "what the table of runs shows" }),
    ];
    this.removeButton = button("Remove", () => this.remove(), { class: "danger" });
    this.said = h("span", { class: "note", role: "status" });
    this.bar = h(
      "div",
      { class: "bar-tools verbs", hidden: true },
      this.buttons.map(([, one]) => one),
      this.rate,
      this.sample,
      this.resume,
      words,
      this.removeButton,
      this.said,
    );
  }

  verbButton({ verb, label, help }) {
    const props = { title: help, class: verb === "stop" ? "danger" : null };
    return button(label, () => (verb === "stop" ? this.stop() : this.send(verb)), props);
  }

  /** Shows the verbs that the run's state permits, and the outcome of the last one. */
  offer(head) {
    const { live, state } = head;
    const offered = (verb) => verbs.some((row) => row.verb === verb && row.states.includes(state));
    this.head = head;
    this.bar.hidden = false;
    for (const [verb, one] of this.buttons) one.hidden = !live || !offered(verb);
    this.rate.hidden = !live || !offered("set");
    this.sample.hidden = !live || !offered("sample");
    this.resume.hidden = live || !head.trouble?.resumes;
    this.removeButton.hidden = live;
    say(this.rate, head.lr === null ? "Learning rate" : `Learning rate ${digits(head.lr, 3)}`);
    if (this.waiting) this.lookForOutcome();
  }

  async trySend(verb, value, more) {
    const since = await this.newestEvent();
    const answer = await control(this.run, verb, value, more);
    say(this.said, answer.reply || `${verb}: asked`);
    toast(answer.reply || `${verb}: asked`);
    this.waiting = outcomeOf(verb) && this.head.live ? { verb, since } : null;
  }

  async send(verb, value, more) {
    try {
      await this.trySend(verb, value, more);
    } catch (error) {
      this.waiting = null;
      say(this.said, "");
      toast(statement(error));
    }
  }

  async newestEvent() {
    const { events } = await get(`runs/${this.run}/events`, { limit: 1 });
    return events.rows[0]?.seq ?? 0;
  }

  async lookForOutcome() {
    const { verb, since } = this.waiting;
    const { events } = await get(`runs/${this.run}/events`, { limit: 20 });
    // a scheduled sample is not the requested one
    const isScheduled = ({ kind, title }) => kind === "sample" && title.startsWith("sample:");
    const outcome = events.rows.find(
      (row) =>
        row.seq > since &&
        (row.kind === outcomeOf(verb) || row.kind === "refused") &&
        !isScheduled(row),
    );
    if (!outcome || this.waiting?.verb !== verb) return;
    this.waiting = null;
    say(this.said, outcome.title);
    toast(outcome.title);
  }

  async stop() {
    const text = "It writes a checkpoint first, and can be resumed.";
    const spec = { title: `Stop ${this.run}?`, text, action: "Stop", danger: true };
    await askUntil(spec, () => this.trySend("stop"));
  }

  /** Sets the peak of the schedule; the current rate is a fraction of it. */
  async setRate() {
    const info = await get(`runs/${this.run}`);
    const began = Number(info.config?.["optim.lr"]?.value ?? NaN);
    const now = this.head.lr === null ? "not known" : digits(this.head.lr, 4);
    const spec = {
      title: `Learning rate of ${this.run}`,
      text: `At step ${nth(this.head.newest_step)} the rate is ${now}. The schedule is scaled by its peak.`,
      action: "Set",
      fields: [
        {
          name: "peak",
          label: "peak learning rate",
          note: `the run began with ${Number.isFinite(began) ? began : "an unknown peak"}`,
          value: Number.isFinite(began) ? began : "",
        },
      ],
    };
    await askUntil(spec, ({ peak }) => this.setPeak(peak, began));
  }

  async setPeak(peak, began) {
    if (!(Number(peak) > 0))
      throw new Error(`'${peak}' is not a learning rate: enter a number above 0`);
    const times = Number(peak) / began;
    if (!(times > rateFactorAsked)) return this.trySend("set", `lr=${peak}`);
    const sure = await ask({
      title: `Set the peak to ${peak}?`,
      text: `${digits(times, 3)} times the configured ${began}: that usually destroys a run.`,
      action: "Set it anyway",
      danger: true,
    });
    if (sure) await this.trySend("set", `lr=${peak},force`);
  }

  async askSample() {
    const spec = {
      title: `A sample of ${this.run}`,
      text: "Training waits at the end of a step while the model continues this text.",
      action: "Write",
      fields: [{ name: "prompt", label: "prompt", type: "lines", maxlength: 512 }],
    };
    await askUntil(spec, ({ prompt }) => prompt && this.trySend("sample", prompt));
  }

  async annotate() {
    const step = this.head.newest_step;
    const spec = {
      title: `Note at step ${nth(step)} of ${this.run}`,
      text: "Charts mark the note, and the timeline lists it.",
      action: "Note",
      fields: [{ name: "text", label: "note" }],
    };
    await askUntil(spec, ({ text }) => text && this.trySend("annotate", text, { step }));
  }

  async describe() {
    const row = await get(`runs/${this.run}`);
    const kept = { tags: tagsOf(row), note: row.note || "" };
    const name = { name: "name", label: "name", value: this.run, maxlength: 64 };
    const spec = {
      title: `Name, tags and note of ${this.run}`,
      action: "Keep",
      fields: [
        ...(this.head.live ? [] : [name]),
        {
          name: "tags",
          label: "tags",
          type: "lines",
          value: kept.tags.join("\n"),
          note: "one in each line",
        },
        { name: "note", label: "note", value: kept.note, maxlength: 500 },
      ],
    };
    await askUntil(spec, (answer) => this.keepDescription(kept, answer));
  }

  /** Sends the fields that differ from `kept`, and updates `kept` with those that the server accepted, so
   * that a second attempt sends only the rest. Throws the server's refusal. */
  async keepDescription(kept, { tags: lines, note, name }) {
    const tags = lines
      .split("\n")
      .map((line) => line.trim())
      .filter(Boolean);
    const gone = kept.tags.filter((tag) => !tags.includes(tag)).map((tag) => `-${tag}`);
    const added = tags.filter((tag) => !kept.tags.includes(tag)).map((tag) => `+${tag}`);
    if (gone.length + added.length) {
      await this.trySend("tag", [...gone, ...added].map(storedTag).join(" "));
      kept.tags = tags;
    }
    if (note !== kept.note) {
      await this.trySend("note", note);
      kept.note = note;
    }
    if (name && name !== this.run) await this.rename(name);
  }

  async rename(name) {
    const { reply } = await control(this.run, "rename", name);
    toast(reply);
    location.hash = `#/run/${name}/overview`;
  }

  async remove() {
    const { checkpoints } = await get(`runs/${this.run}`);
    const steps = nth(this.head.newest_step);
    const spec = {
      title: `Remove ${this.run} for good?`,
      text: `This deletes its records of ${steps} steps (curves, events, settings). They cannot be restored.`,
      action: "Remove",
      danger: true,
      fields: [
        {
          name: "checkpoints",
          label: `its checkpoints, too (${checkpoints.length} were recorded)`,
          type: "checkbox",
        },
      ],
    };
    await askUntil(spec, (answer) => this.removeRecords(answer.checkpoints));
  }

  async removeRecords(checkpoints) {
    const what = checkpoints ? "records and checkpoints" : "records";
    const { reply } = await control(this.run, "remove", what);
    toast(reply);
    location.hash = "#/runs";
  }
}

export function controlBar(run) {
  return new ControlBar(run);
}

// trouble_box.js - the problem of a run that is not training or was restarted: event, time, cause, and the
// remedy with its command, in the server's sentences.
import { control } from "../base/api.js";
import { ask } from "../base/ask.js";
import { button } from "../base/controls.js";
import { h, say, toast } from "../base/dom.js";
import { date, seconds } from "../base/format.js";

/** Copies a text. If the browser permits no clipboard (plain HTTP), the text is selected instead. */
async function copy(text, from) {
  try {
    await navigator.clipboard.writeText(text);
    toast("copied");
  } catch {
    getSelection().selectAllChildren(from);
    toast("selected: copy it with Ctrl-C");
  }
}

function whenText({ when_s: when, age_s: age }) {
  if (when === null) return "";
  return `${date(when, true)} UTC, ${seconds(Math.floor(age))} ago`;
}

/** Returns the label of the button; "": this server does not permit the action. */
function actionText(trouble, server) {
  if (trouble.resumes) return server.resume ? "Resume" : "";
  if (!trouble.verb || !server.control) return "";
  return trouble.verb === "stop" ? "Stop" : "Resume";
}

/** Creates the box, which is hidden while it is empty. ctx: the View of the run. */
export function troubleBox(ctx) {
  const parts = {
    what: h("h2"),
    when: h("p", { class: "note" }),
    why: h("p"),
    advice: h("p"),
    command: h("code", { tabindex: "0" }),
  };
  let trouble = null;
  const act = async () => {
    const verb = trouble.resumes ? "resume" : trouble.verb;
    const action = actionText(trouble, ctx.server);
    const answer = await ask({ title: `${action} ${ctx.run}?`, text: trouble.advice, action });
    if (!answer) return;
    try {
      const answer = await control(ctx.run, verb);
      toast(answer.reply || `${verb}: asked`);
    } catch (error) {
      toast(error.message);
    }
  };
  const copyButton = button("Copy", () => copy(trouble.command, parts.command));
  const actButton = button("", act, { class: "main" });
  const line = h("div", { class: "command" }, parts.command, copyButton, actButton);
  const box = h(
    "section",
    { class: "trouble", role: "status", hidden: true },
    parts.what,
    parts.when,
    parts.why,
    parts.advice,
    line,
  );
  ctx.onHead((head) => {
    trouble = head.trouble;
    box.hidden = !trouble;
    if (!trouble) return;
    const action = actionText(trouble, ctx.server);
    box.className = `trouble is-${trouble.level}`;
    say(parts.what, trouble.what);
    say(parts.when, whenText(trouble));
    say(parts.why, trouble.why);
    say(parts.advice, trouble.advice);
    say(parts.command, trouble.command || "");
    say(actButton, action);
    line.hidden = !trouble.command;
    actButton.hidden = !action;
  });
  return box;
}

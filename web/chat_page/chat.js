// chat.js - the page of `bitrain serve`: a conversation over /v1/chat/completions with streamed replies. All
// text is inserted as text nodes.

const at = (id) => document.getElementById(id);
const messages = []; // {role, content}
let running = null; // the AbortController of the reply that is being generated

// ---- exchanges the token in the address for a cookie

async function logIn() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return;
  history.replaceState(null, "", location.pathname);
  await fetch("/api/v1/login", { headers: { Authorization: `Bearer ${token}` } });
}

async function errorOf(response) {
  const body = await response.json().catch(() => ({}));
  return new Error(body.error?.message || `the server answered ${response.status}`);
}

// ---- display

function element(tag, kind, text) {
  const el = document.createElement(tag);
  el.className = kind;
  el.textContent = text;
  return el;
}

function show(role, text) {
  const names = { user: "You", assistant: "Model", failed: "Error" };
  const box = element("article", `message ${role}`, "");
  const words = element("div", "words", text);
  box.append(element("div", "who", names[role]), words);
  at("log").append(box);
  box.scrollIntoView({ block: "end" });
  return { box, words };
}

function setRunning(controller) {
  running = controller;
  at("send").textContent = controller ? "Stop" : "Send";
}

// ---- replies

/** Yields the data of server-sent events as they arrive. */
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    const parts = held.split("\n\n");
    held = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) yield part.slice(6);
  }
}

function request() {
  const system = at("system").value.trim();
  return {
    messages: [...(system ? [{ role: "system", content: system }] : []), ...messages],
    stream: true,
    stream_options: { include_usage: true },
    temperature: Number(at("temperature").value),
    top_p: Number(at("top_p").value),
    repetition_penalty: Number(at("penalty").value),
    max_tokens: Number(at("most").value),
  };
}

/** Returns the streamed response. If the conversation exceeds the context, its oldest question is removed. */
async function post() {
  for (;;) {
    const response = await fetch("/v1/chat/completions", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(request()),
      signal: running.signal,
    });
    if (response.ok) return response;
    const error = await errorOf(response);
    if (!error.message.includes("context") || messages.length < 3) throw error;
    messages.splice(0, 2);
  }
}

async function write(shown, answer) {
  const response = await post();
  let began = 0;
  for await (const data of events(response)) {
    if (data === "[DONE]") break;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    began ||= performance.now();
    const choice = chunk.choices[0];
    answer.content += choice?.delta?.content ?? "";
    shown.words.textContent = answer.content;
    if (choice?.finish_reason === "length")
      shown.box.append(element("div", "note", "cut off: the limit of tokens"));
    if (chunk.usage) showSpeed(chunk.usage.completion_tokens, performance.now() - began);
    shown.box.scrollIntoView({ block: "end" });
  }
}

function showSpeed(tokens, ms) {
  at("speed").textContent = tokens > 1 && ms > 0 ? `${((1e3 * tokens) / ms).toFixed(1)} tokens/s` : "";
}

async function answer() {
  setRunning(new AbortController());
  const shown = show("assistant", "");
  const text = { role: "assistant", content: "" };
  try {
    await write(shown, text);
  } catch (error) {
    if (error.name !== "AbortError") show("failed", error.message);
    if (!text.content) shown.box.remove();
  }
  setRunning(null);
  if (text.content) messages.push(text);
  else messages.pop(); // the user may send the message again
}

function ask(event) {
  event.preventDefault();
  if (running) {
    running.abort();
    return;
  }
  const question = at("question").value.trim();
  if (!question) return;
  at("question").value = "";
  messages.push({ role: "user", content: question });
  show("user", question);
  answer();
}

function begin() {
  running?.abort();
  messages.length = 0;
  at("log").replaceChildren();
  at("speed").textContent = "";
  at("question").focus();
}

async function start() {
  at("ask").addEventListener("submit", ask);
  at("new").addEventListener("click", begin);
  at("question").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!running) ask(event);
  });
  await logIn();
  const response = await fetch("/v1/models");
  if (!response.ok) {
    show("failed", (await errorOf(response)).message);
    return;
  }
  const model = (await response.json()).data[0];
  at("most").value = Math.min(256, Math.ceil(model.max_model_len / 4));
  at("model").textContent = model.id;
  at("model").title = `context ${model.max_model_len} tokens, chat template ${model.chat_template}`;
  document.title = `${model.id} · bitrain`;
}

start();

// ask_model.mjs - sends the requests of `bitrain serve`'s clients and checks the responses.
//         node ask_model.mjs JSON_OF_SERVE PID
import { readFileSync } from "node:fs";

const server = JSON.parse(process.argv[2]);
const pid = process.argv[3];
let faults = 0;

function check(ok, what) {
  if (ok) return;
  console.log(`FAULT: ${what}`);
  faults++;
}

const headers = { Authorization: `Bearer ${server.token}`, "Content-Type": "application/json" };

const post = (path, body, more = {}) =>
  fetch(`${server.base_url}${path}`, { method: "POST", headers, body: JSON.stringify(body), ...more });

async function ask(path, body) {
  const response = await post(path, body);
  const text = await response.text();
  return { status: response.status, body: JSON.parse(text) };
}

const complete = async (body) => (await ask("/v1/completions", body)).body;

/** Returns the objects of a stream; the last must be [DONE]. */
async function stream(path, body) {
  const response = await post(path, { ...body, stream: true });
  check(response.headers.get("content-type") === "text/event-stream", "a stream has another type");
  const parts = (await response.text()).split("\n\n");
  check(parts.pop() === "" && parts.pop() === "data: [DONE]", "a stream does not end with [DONE]");
  return parts.map((part) => JSON.parse(part.slice("data: ".length)));
}


const greedy = JSON.parse(process.env.WANT_GREEDY);
const seeded = JSON.parse(process.env.WANT_SEED);
const plain = { prompt: "abc", max_tokens: 12, temperature: 0 };
const random = { prompt: "abc", max_tokens: 12, temperature: 0.9, seed: 5 };

async function equalsGenerate() {
  const a = await complete(plain);
  check(a.choices[0].text === greedy.text, `greedy: '${a.choices[0].text}', not '${greedy.text}'`);
  check(a.object === "text_completion" && a.choices[0].finish_reason === "length", "not a completion");
  check(a.usage.prompt_tokens === 3 && a.usage.completion_tokens === 12, "usage is wrong");
  const b = await complete(random);
  check(b.choices[0].text === seeded.text, `seed 5: '${b.choices[0].text}', not '${seeded.text}'`);
  const two = await complete({ ...random, prompt: ["abc", "abc"], n: 2 });
  check(two.choices.length === 4 && two.choices[3].index === 3, "two prompts and n 2 are not four");
  check(two.choices[0].text === seeded.text && two.choices[2].text === seeded.text, "the same prompt and seed differ");
  check(two.choices[1].text !== seeded.text, "several answers to a prompt are one");
  const text = (await stream("/v1/completions", plain)).map((c) => c.choices[0].text).join("");
  check(text === greedy.text, `streamed: '${text}'`);
}


async function scoresPrompts() {
  const prompts = [[97, 98, 99], [120, 121], [97, 98, 99, 100, 101]];
  const a = await complete({ prompt: prompts, max_tokens: 1, temperature: 0, logprobs: 1, echo: true, seed: 1234 });
  check(a.choices.length === 3, "three prompts have not three choices");
  for (const [i, prompt] of prompts.entries()) {
    const { index, logprobs, text } = a.choices[i];
    const n = prompt.length + 1;
    check(index === i, "choices are out of order");
    for (const key of ["tokens", "token_logprobs", "top_logprobs", "text_offset"])
      check(logprobs[key].length === n, `${key} has ${logprobs[key].length} entries, not ${n}`);
    check(logprobs.token_logprobs[0] === null && logprobs.top_logprobs[0] === null, "the first entry is not null");
    check(text.startsWith(String.fromCharCode(...prompt)), `the prompt is not repeated: '${text}'`);
    const last = n - 1;
    check(logprobs.token_logprobs[last] === Math.max(...Object.values(logprobs.top_logprobs[last])), "the greedy token is not the likeliest");
    for (let k = 1; k < n; k++) {
      const lp = logprobs.token_logprobs[k];
      check(lp <= 0 && Number.isFinite(lp), `log probability ${lp}`);
      check(lp <= Math.max(...Object.values(logprobs.top_logprobs[k])), "a token is likelier than the likeliest");
    }
  }
  const alone = await complete({ prompt: [97, 98, 99], max_tokens: 1, temperature: 0, logprobs: 5, echo: true });
  check(JSON.stringify(alone.choices[0].logprobs.tokens) === JSON.stringify(a.choices[0].logprobs.tokens), "a list of ids is another prompt");
  check(Object.keys(alone.choices[0].logprobs.top_logprobs[1]).length >= 5, "logprobs 5 are not five");
  const echo = await complete({ prompt: "abc", max_tokens: 0, echo: true, logprobs: 1 });
  check(echo.choices[0].text === "abc" && echo.choices[0].logprobs.tokens.length === 3, "echo of no token");
  const offsets = async (body) => (await complete({ max_tokens: 0, echo: true, logprobs: 1, ...body })).choices[0].logprobs.text_offset.join();
  check((await offsets({ prompt: "a€😀b" })) === "0,1,1,1,2,2,2,2,3", "offsets are not those of the text that was sent");
  check((await offsets({ prompt: [0x61, 0xff, 0xe2, 0x62] })) === "0,1,2,2", "offsets of bytes that are no UTF-8");
  const stop = await complete({ ...plain, stop: [greedy.text.slice(3, 5), "never"] });
  const cut = greedy.text.slice(0, greedy.text.indexOf(greedy.text.slice(3, 5)));
  check(stop.choices[0].text === cut && stop.choices[0].finish_reason === "stop", `stop: '${stop.choices[0].text}', not '${cut}'`);
}


async function converses() {
  const messages = [{ role: "system", content: "S" }, { role: "user", content: [{ type: "text", text: "Hi" }] }];
  const { body } = await ask("/v1/chat/completions", { messages, max_tokens: 5, temperature: 0, logprobs: true, top_logprobs: 2 });
  check(body.object === "chat.completion" && body.choices[0].message.role === "assistant", "not a chat completion");
  check(body.choices[0].logprobs.content.length === 5, "not five log probabilities");
  check(body.choices[0].logprobs.content[0].top_logprobs.length === 2, "not two likeliest tokens");
  const chunks = await stream("/v1/chat/completions", { messages, max_tokens: 5, temperature: 0, stream_options: { include_usage: true } });
  const usage = chunks.pop();
  check(usage.choices.length === 0 && usage.usage.completion_tokens === 5, "no usage at the end");
  check(chunks[0].choices[0].delta.role === "assistant", "the first chunk names no role");
  check(chunks.at(-1).choices[0].finish_reason === "length", "the last chunk has no reason");
  const text = chunks.map((c) => c.choices[0].delta.content ?? "").join("");
  check(text === body.choices[0].message.content, `streamed '${text}', whole '${body.choices[0].message.content}'`);
  const models = await (await fetch(`${server.base_url}/v1/models`, { headers })).json();
  check(models.object === "list" && models.data[0].id === server.model, "the list of models");
  check((await fetch(`${server.base_url}/v1/models/${server.model}`, { headers })).ok, "one model");
}


async function acceptsWhatRequestsNothing() {
  const nothing = { user: "u", metadata: { a: "b" }, store: false, logit_bias: {}, presence_penalty: 0, suffix: null, tempreature: null, mirostat: 0, typical_p: 1 };
  const same = await complete({ ...plain, ...nothing, model: server.model });
  check(same.choices?.[0].text === greedy.text, `harmless keys: ${JSON.stringify(same).slice(0, 200)}`);
  const zero = await complete({ ...plain, temperature: 5, top_p: 0 });
  check(zero.choices[0].text === greedy.text, `top_p 0 is not greedy: '${zero.choices[0].text}'`);
  check((await complete({ ...plain, max_tokens: undefined, n_predict: 12 })).choices[0].text === greedy.text, "n_predict is not max_tokens");
  check((await complete({ prompt: "a\u0000b", max_tokens: 1 })).usage.prompt_tokens === 3, "a NUL in a prompt is no token");
  const user = { role: "user", content: "Hi", name: "N" };
  const whole = (await ask("/v1/chat/completions", { messages: [user], max_tokens: 6, temperature: 0 })).body.choices[0].message.content;
  const begun = await ask("/v1/chat/completions", { messages: [user, { role: "assistant", content: whole.slice(0, 2) }], max_tokens: 4, temperature: 0 });
  check(begun.body.choices?.[0].message.content === whole.slice(2), `an answer that was begun: ${JSON.stringify(begun.body).slice(0, 200)}, not '${whole.slice(2)}'`);
}


async function measures() {
  const { body } = await ask("/tokenize", { content: "a€" });
  check(body.tokens.join() === "97,226,130,172" && body.count === 4 && body.max_model_len === 512, `/tokenize: ${JSON.stringify(body)}`);
  check((await ask("/detokenize", { tokens: body.tokens })).body.content === "a€", "/detokenize is not the text");
  const a = await post("/v1/completions", plain);
  const id = a.headers.get("x-request-id");
  const { id: answer, system_fingerprint: fingerprint } = await a.json();
  check(/^[0-9a-f]{16}$/.test(id) && answer === `cmpl-${id}` && fingerprint.startsWith("bitrain-"), `ids: ${id} ${answer} ${fingerprint}`);
  check((await (await fetch(`${server.base_url}/health`)).json()).status === "ok", "/health");
  const metrics = await (await fetch(`${server.base_url}/metrics`, { headers })).text();
  const value = (name) => Number(metrics.split("\n").find((line) => line.startsWith(`bitrain_serve_${name} `))?.split(" ")[1] ?? NaN);
  check(value("requests_total{status=\"200\"}") > 10 && value("requests_total{status=\"400\"}") > 10, "requests are not counted");
  check(value("generated_tokens_total") > 50 && value("texts_running") === 0, "tokens are not counted");
  check(value("time_to_first_token_seconds_count") > 5 && value("request_duration_seconds_bucket{le=\"+Inf\"}") === value("request_duration_seconds_count"), "latencies are not counted");
}


async function servesListedPages() {
  const origin = "http://pages.example:3000";
  const preflight = await fetch(`${server.base_url}/v1/completions`, { method: "OPTIONS", headers: { Origin: origin, "Access-Control-Request-Headers": "authorization" } });
  check(preflight.status === 204 && preflight.headers.get("access-control-allow-origin") === origin && preflight.headers.get("access-control-allow-headers") === "authorization", `preflight: ${preflight.status}`);
  const listed = await fetch(`${server.base_url}/v1/models`, { headers: { ...headers, Origin: origin } });
  check(listed.ok && listed.headers.get("access-control-allow-origin") === origin, `a listed page: ${listed.status}`);
  const other = await fetch(`${server.base_url}/v1/models`, { headers: { ...headers, Origin: "http://pages.example" } });
  check(other.status === 403, `another page: ${other.status}`);
  const key = await fetch(`${server.base_url}/v1/models`, { headers: { "api-key": server.token } });
  check(key.ok, "the header api-key is not taken");
}


async function refuses() {
  const bad = [
    ["/v1/completions", {}, 400, "'prompt' must be"],
    ["/v1/completions", { prompt: [[1, 999999]] }, 400, "outside the model's vocabulary"],
    ["/v1/completions", { prompt: [-1] }, 400, "no token id"],
    ["/v1/completions", { prompt: ["a", 7] }, 400, "prompt 1 is neither"],
    ["/v1/completions", { prompt: "a".repeat(513) }, 400, "maximum context length is 512", "context_length_exceeded", "prompt"],
    ["/v1/chat/completions", { messages: [{ role: "user", content: "a".repeat(600) }] }, 400, "maximum context length is 512", "context_length_exceeded", "messages"],
    ["/v1/completions", { prompt: "a", model: "gpt-4" }, 404, "no model 'gpt-4'", "model_not_found", "model"],
    ["/v1/completions", { prompt: "a", tempreature: 0 }, 400, "did you mean 'temperature'", "unknown_parameter", "tempreature"],
    ["/v1/completions", { prompt: "a", do_sample: false }, 400, "unknown parameter", "unknown_parameter", "do_sample"],
    ["/v1/completions", { prompt: "a", stream_options: { include: true } }, 400, "unknown parameter", "unknown_parameter", "include"],
    ["/v1/completions", { prompt: "a", stop: "a\u0000b" }, 400, "without NUL", "invalid_value", "stop"],
    ...["grammar", "guided_json", "min_tokens", "ignore_eos", "stop_token_ids", "prompt_logprobs", "n_probs", "typical_p", "mirostat"].map((key) => ["/v1/completions", { prompt: "a", [key]: key === "typical_p" ? 0.5 : 2 }, 400, `'${key}' is not supported`, "unsupported_parameter", key]),
    ["/v1/chat/completions", { messages: [{ role: "user", content: "x", reasoning_content: "y" }] }, 400, "not supported", "unsupported_parameter", "reasoning_content"],
    ["/v1/chat/completions", { messages: [{ role: "user", content: "x" }, { role: "assistant", content: null, tool_calls: [{}] }] }, 400, "'tool_calls' is not supported", "unsupported_parameter", "tool_calls"],
    ["/v1/chat/completions", { messages: [{ role: "user", content: "x" }], continue_final_message: true }, 400, "must be false", "invalid_value", "continue_final_message"],
    ["/tokenize", { text: "a" }, 400, "unknown parameter 'text'", "unknown_parameter", "text"],
    ["/detokenize", { tokens: [-1] }, 400, "is not a token id", "invalid_value", "tokens"],
    ["/v1/completions", { prompt: "a", temperature: "hot" }, 400, "'temperature' must be"],
    ["/v1/completions", { prompt: "a", max_tokens: -1 }, 400, "'max_tokens' must be"],
    ["/v1/completions", { prompt: "a", logprobs: 21 }, 400, "'logprobs' must be"],
    ["/v1/completions", { prompt: "a", suffix: "b" }, 400, "'suffix' is not supported"],
    ["/v1/completions", { prompt: "a", presence_penalty: 1 }, 400, "use repetition_penalty"],
    ["/v1/completions", { prompt: "a", stop: [1] }, 400, "'stop' must be"],
    ["/v1/completions", { prompt: Array(2000).fill("a") }, 400, "at most 1024 texts"],
    ["/v1/chat/completions", { messages: [] }, 400, "at least one message"],
    ["/v1/chat/completions", { messages: [{ role: "tool", content: "x" }] }, 400, "the role must be"],
    ["/v1/chat/completions", { messages: [{ role: "user", content: 3 }] }, 400, "'content' must be"],
    ["/v1/chat/completions", { messages: [{ role: "assistant", content: "x" }] }, 400, "a user's must precede it"],
    ["/v1/chat/completions", { messages: [{ role: "user", content: "x" }], tools: [{}] }, 400, "'tools' is not supported"],
    ["/v1/embeddings", { input: "x" }, 404, "no such route"],
    ["/v1/models", {}, 405, "takes GET", "method_not_allowed"],
  ];
  for (const [path, body, status, says, code, param] of bad) {
    const answer = await ask(path, body);
    if (code) check(answer.body.error?.code === code && answer.body.error?.param === (param ?? null), `${path} ${JSON.stringify(body).slice(0, 60)}: code and param ${JSON.stringify(answer.body.error)}`);
    check(answer.status === status && answer.body.error?.message.includes(says), `${path} ${JSON.stringify(body).slice(0, 60)}: ${answer.status} ${JSON.stringify(answer.body)}`);
  }
  const nested = await post("/v1/completions", null, { body: "[".repeat(100000) });
  check(nested.status === 400, `nested JSON: ${nested.status}`);
  const torn = await post("/v1/completions", null, { body: '{"prompt": "a' });
  check(torn.status === 400, `torn JSON: ${torn.status}`);
  const stranger = await fetch(`${server.base_url}/v1/models`);
  check(stranger.status === 401 && (await stranger.json()).error.code === "invalid_api_key", `without the token: ${stranger.status}`);
  check((await fetch(`${server.base_url}/healthz`)).ok, "healthz wants a token");
}


const resident = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]) / 1024;

async function one(i) {
  if (i % 16 === 7) {
    const gone = new AbortController();
    const answer = post("/v1/completions", { prompt: "abc", max_tokens: 250, stream: true }, { signal: gone.signal });
    setTimeout(() => gone.abort(), i % 5);
    await answer.then((r) => r.text()).catch(() => {});
  } else if (i % 4 === 1) {
    const chunks = await stream("/v1/completions", plain);
    check(chunks.map((c) => c.choices[0].text).join("") === greedy.text, "a stream in company says something else");
  } else {
    const a = await complete(i % 2 ? plain : random);
    check(a.choices?.[0].text === (i % 2 ? greedy : seeded).text, `in company: ${JSON.stringify(a).slice(0, 200)}`);
  }
}

async function many(requests, clients) {
  let next = 0;
  const client = async () => {
    while (next < requests) await one(next++);
  };
  await Promise.all(Array.from({ length: clients }, client));
}

await equalsGenerate();
await scoresPrompts();
await converses();
await acceptsWhatRequestsNothing();
await refuses();
await measures();
await servesListedPages();
await many(600, 64);
const before = resident();
await many(Number(process.env.REQUESTS || 3000), 64);
const grown = resident() - before;
check(grown < 8, `${grown.toFixed(1)} MiB more after further requests`);
console.log(`resident ${before.toFixed(1)} MiB, ${grown.toFixed(1)} MiB more after ${process.env.REQUESTS || 3000} requests`);
process.exit(faults ? 1 : 0);

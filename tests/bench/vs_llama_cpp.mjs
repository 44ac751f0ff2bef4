// vs_llama_cpp.mjs - tokens per second of `bitrain generate` and llama.cpp, on one GGUF file and
// with equal numbers of threads: see vs_llama_cpp.sh.
//     node vs_llama_cpp.mjs BITRAIN THREADS ROUNDS FILE...
// The order is A B A B: bitrain is started for each round, llama.cpp remains loaded and idle
// meanwhile. Both read the same prompt and generate equally many likeliest tokens. llama.cpp runs
// as node-llama-cpp configures it: its fastest kernels for this processor, its defaults for cache
// and attention. The cost of calling it from JavaScript is measured per token with a model of two
// tiny layers, and subtracted.
import {execFileSync} from "child_process";
import {getLlama} from "node-llama-cpp";

const [bitrain, threads, rounds, tiny, ...files] = process.argv.slice(2);
const WRITE = 96;
const prompt = "And God said, Let there be light: and there was light. And God saw the light, that it was good. ".repeat(8);
const llama = await getLlama({gpu: false, build: "never", progressLogs: false, logLevel: "error", maxThreads: +threads});
const median = x => x.toSorted((a, b) => a - b)[x.length >> 1];
const seconds = async what => {
  const began = process.hrtime.bigint();
  await what();
  return Number(process.hrtime.bigint() - began) / 1e9;
};

async function open(file) {
  const model = await llama.loadModel({modelPath: file});
  const context = await model.createContext({contextSize: 1024, batchSize: 512, threads: +threads});
  const sequence = context.getSequence();
  const ids = model.tokenize(prompt).slice(0, 500);
  // Returns seconds per token: of the prompt without its last token, and of generated text.
  const ask = async () => {
    await sequence.clearHistory();
    const read = await seconds(() => sequence.evaluateWithoutGeneratingNewTokens(ids.slice(0, -1)));
    let n = 0, began;
    for await (const token of sequence.evaluate(ids.slice(-1), {temperature: 0, yieldEogToken: true})) {
      if (n === 0) began = process.hrtime.bigint();
      if (n++ === WRITE || token === null) break;
    }
    return {read: read / (ids.length - 1), write: Number(process.hrtime.bigint() - began) / 1e9 / (n - 1), n: ids.length};
  };
  return {ask, close: async () => { await context.dispose(); await model.dispose(); }};
}

function ours(file) {
  const answer = JSON.parse(execFileSync(bitrain, ["generate", file, "--prompt", prompt, "--tokens", String(WRITE), "--temperature", "0", "--threads", threads, "--json"],
    {maxBuffer: 1 << 26}));
  if (answer.tokens !== WRITE) throw new Error(`${file}: ${answer.tokens} tokens, not ${WRITE}`);
  // The last token is not read again.
  return {read: 1 / answer.prompt_tokens_per_s, write: WRITE / (WRITE - 1) / answer.tokens_per_s, n: answer.prompt_tokens};
}

const small = await open(tiny);
const calls = [];
for (let i = 0; i < 5; i++) calls.push((await small.ask()).write);
await small.close();
const call = median(calls);
console.log(`${threads} thread${threads === "1" ? "" : "s"}; a call of llama.cpp from JavaScript takes at most ${(call * 1e6).toFixed(0)} us a token, taken off\n`);
console.log("| file | prompt: bitrain | llama.cpp | ratio | decode: bitrain | llama.cpp | ratio |\n|---|---|---|---|---|---|---|");
for (const file of files) {
  const theirs = await open(file);
  const a = [], b = [];
  for (let i = 0; i < +rounds; i++) {
    a.push(ours(file));
    b.push(await theirs.ask());
  }
  await theirs.close();
  const [read, write, their_read, their_write] = [a.map(x => x.read), a.map(x => x.write), b.map(x => x.read), b.map(x => x.write - call)].map(median);
  console.log(`| ${file.split("/").pop()} | ${(1 / read).toFixed(1)} | ${(1 / their_read).toFixed(1)} | ${(their_read / read).toFixed(2)} | ` +
    `${(1 / write).toFixed(1)} | ${(1 / their_write).toFixed(1)} | ${(their_write / write).toFixed(2)} |`);
}
process.exit(0);

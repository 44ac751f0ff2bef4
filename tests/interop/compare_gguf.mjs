// compare_gguf.mjs - compares outputs of llama.cpp and our reader on the same GGUF files; prints rows
// of a table.
//     node compare_gguf.mjs LOG_PROBS TEXTS BOUND FILE...
// LOG_PROBS: the program tests/interop/log_probs; TEXTS: hostile_tokens.json. Needs node-llama-cpp.
// Its key-value cache is F32 and flash attention is off: with the defaults F32 files differ by 1e-3
// to 7e-3. It reads 16 tokens at a time: in batches of 64 its product of q8_0 rows of 32 elements
// gives other logits (off by 3 to 5), which does not happen with batches of 16. BOUND: largest
// difference of log probabilities; 0.5 if ternary layers round activations in another way, 1e-4 for
// f32 files of dense models.
import {getLlama} from "node-llama-cpp";
import {execFileSync} from "child_process";
import {readFileSync} from "fs";
const [program, hostile, bound, ...files] = process.argv.slice(2);
const llama = await getLlama({gpu: false, build: "never", progressLogs: false, logLevel: "error"});
const texts = JSON.parse(readFileSync(hostile, "utf8")).texts;
let failed = false, seed = 1;
const random = n => (seed = (seed * 1103515245 + 12345) % 2147483648, Math.floor(seed / 65536) % n);
const ours = (file, input, ...how) => execFileSync(program, [file, ...how], {input, maxBuffer: 1 << 26}).toString().trim();
for (const file of files) {
  const model = await llama.loadModel({modelPath: file});
  const ctx = await model.createContext({contextSize: 128, flashAttention: false, experimentalKvCacheKeyType: "F32", experimentalKvCacheValueType: "F32", threads: 1, batchSize: 16});
  const seq = ctx.getSequence();
  const worst = [];
  for (const n of [1, 3, 17, 64]) {
    const ids = Array.from({length: n}, () => random(256));
    const said = JSON.parse(ours(file, ids.join(" "))).log_probs;
    await seq.clearHistory();
    const r = await seq.controlledEvaluate(ids.map((t, i) => i === n - 1 ? [t, {generateNext: {probabilities: true}}] : t));
    let w = 0;
    for (const [t, q] of r[n - 1].next.probabilities) if (q > 1e-30) w = Math.max(w, Math.abs(Math.log(q) - said[t]));
    worst.push(w);
  }
  const lines = ours(file, texts.join("\0"), "--encode").split("\n");
  const same = texts.filter((t, i) => JSON.stringify(model.tokenize(t)) === JSON.stringify(JSON.parse(lines[i]))).length;
  const ok = Math.max(...worst) < +bound && same === texts.length;
  console.log(`| ${file.split("/").slice(-1)[0]} | llama.cpp | ${Math.max(...worst).toPrecision(2)} | ${bound} | ${same} of ${texts.length} | ${ok ? "yes" : "NO"} |`);
  failed ||= !ok;
  await ctx.dispose(); await model.dispose();
}
process.exit(failed ? 1 : 0);

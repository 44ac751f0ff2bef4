// judge_gguf.mjs - GGUF files in llama.cpp against what our reader says of the same file.
//
//     node judge_gguf.mjs LOG_PROBS BOUND FILE...      LOG_PROBS: the program tests/interop/log_probs
//
// Needs node-llama-cpp. Its key-value cache is F32 and flash attention is off: with the defaults F32 files differ by 1e-3 to 7e-3.
// BOUND: largest difference of log probabilities; 0.5 where ternary layers see activations rounded in another way, 1e-4 for f32 files of dense models.
import {getLlama} from "node-llama-cpp";
import {execFileSync} from "child_process";
const [program, bound, ...files] = process.argv.slice(2);
const llama = await getLlama({gpu: false, build: "never", progressLogs: false, logLevel: "error"});
const texts = ["In the beginning God created the heaven and the earth.", "don't  stop\n\n 1234 \u00e9\u4e2d\u6587 \u{1f600} x\u0301", "  "];
let failed = false, seed = 1;
const random = n => (seed = (seed * 1103515245 + 12345) % 2147483648, Math.floor(seed / 65536) % n);
for (const file of files) {
  const model = await llama.loadModel({modelPath: file});
  const ctx = await model.createContext({contextSize: 128, flashAttention: false, experimentalKvCacheKeyType: "F32", experimentalKvCacheValueType: "F32", threads: 1});
  const seq = ctx.getSequence();
  const worst = [];
  for (const n of [1, 3, 17, 64]) {
    const ids = Array.from({length: n}, () => random(256));
    const ours = JSON.parse(execFileSync(program, [file], {input: ids.join(" ")}).toString()).log_probs;
    await seq.clearHistory();
    const r = await seq.controlledEvaluate(ids.map((t, i) => i === n - 1 ? [t, {generateNext: {probabilities: true}}] : t));
    let w = 0;
    for (const [t, q] of r[n - 1].next.probabilities) if (q > 1e-30) w = Math.max(w, Math.abs(Math.log(q) - ours[t]));
    worst.push(w);
  }
  const same = texts.every(t => JSON.stringify(model.tokenize(t)) === JSON.stringify(JSON.parse(execFileSync(program, [file, "--encode"], {input: t}).toString())));
  console.log(`${file}: log probabilities differ by ${worst.map(w => w.toPrecision(2)).join(" ")}, tokens ${same ? "the same" : "DIFFER"}`);
  failed ||= !(Math.max(...worst) < +bound && same);
  await ctx.dispose(); await model.dispose();
}
process.exit(failed ? 1 : 0);

// page.mjs - seeded mutants of the page's modules, each tested by tests/web/modules/run_page.sh;
// page.sh documents its use. A mutant changes one place of the code, never a comment; mutants that
// are not JavaScript, or differ only in white space, are skipped.
import { spawnSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const source = process.env.BT_SRC;
const page = join(source, "web/static");
const known = ["base/format", "base/kept_answers", "figures/chart_lines", "figures/envelope"];
known.push("figures/plane", "pages/run_filter", "pages/run_means");

// Replacements for the matches of a pattern; each distinct text is one mutant.
const rules = [
  [
    /(?<![<>=!-])(<=|>=|<|>)(?![<>=])/g,
    (found) => ["<", "<=", ">", ">="].filter((o) => o !== found),
  ],
  [/===|!==/g, (found) => [found === "===" ? "!==" : "==="]],
  [/&&|\|\||\?\?/g, (found) => ["&&", "||", "??"].filter((o) => o !== found)],
  [
    /(?<=[\w)\]] )[-+*/%](?= [\w([`-])/g,
    (found) => ["+", "-", "*", "/"].filter((o) => o !== found),
  ],
  [/\+\+|--/g, (found) => [found === "++" ? "--" : "++"]],
  [
    /(?<![\w.])\d+(\.\d+)?(?![\w.])/g,
    (found) => [String(Number(found) + 1), found === "0" ? "-1" : "0"],
  ],
  [/\b(true|false)\b/g, (found) => [found === "true" ? "false" : "true"]],
  [/\bnull\b|\bundefined\b/g, () => ["0"]],
  [
    /\bMath\.(min|max|floor|ceil|round|abs)\b/g,
    (found) => [
      found.endsWith("min") ? "Math.max" : found.endsWith("max") ? "Math.min" : "Math.trunc",
    ],
  ],
  [
    /\b(filter|some|every|find)\(/g,
    (found) => [
      { "filter(": "map(", "some(": "every(", "every(": "some(", "find(": "findLast(" }[found],
    ],
  ],
  [/!(?=[\w(])/g, () => [""]],
  [/"(?:[^"\\\n]|\\.)*"/g, () => ['""', '"x"']],
  [/(?<=\b(if|while) )\((?=.*\) (\w|\{))/g, () => ["(!", "(true || ", "(false && "]],
  [/\breturn [^;{]+;/g, () => ["return undefined;"]],
  [/(?<=\n\s*)[\w.[\]]+(\([^\n]*\)| [-+*]?= [^\n]+|\+\+);(?=\n)/g, () => [";"]],
  [/(?<=\n\s*)(continue|break);/g, () => [";"]],
];

/** Returns numbers in [0, 1), the same for the same text. */
function dice(text) {
  let a = 2166136261;
  for (const c of text) a = Math.imul(a ^ c.codePointAt(0), 16777619);
  return () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const squeeze = (text) => text.split(/\s+/).filter(Boolean).join(" ");

/** Returns every mutant of a text: {line, old, now, text}. */
function mutantsOf(text) {
  const code = text.replace(/\/\*[^]*?\*\/|(?<=^|\s)\/\/[^\n]*/g, (comment) =>
    comment.replace(/[^\n]/g, " "),
  );
  const all = [];
  for (const [pattern, instead] of rules)
    for (const found of code.matchAll(pattern)) {
      const { index } = found;
      if (/^(import|export [^f])/.test(code.slice(code.lastIndexOf("\n", index) + 1, index + 8)))
        continue;
      for (const other of instead(found[0])) {
        const changed = text.slice(0, index) + other + text.slice(index + found[0].length);
        const line = text.slice(0, index).split("\n").length;
        const lineOf = (one) => squeeze(one.split("\n")[line - 1]);
        all.push({ line, old: lineOf(text), now: lineOf(changed), text: changed });
      }
    }
  return all;
}

const folder = mkdtempSync(join(tmpdir(), "bitrain-page-"));
const copy = join(folder, "static");
cpSync(page, copy, { recursive: true });

function passes() {
  const env = { ...process.env, BT_PAGE: copy, TMPDIR: folder };
  const test = join(source, "tests/web/modules/run_page.sh");
  return spawnSync("bash", [test], { env, stdio: "ignore", timeout: 20000 }).status === 0;
}

function parses(text) {
  const file = join(folder, "parsed.mjs");
  writeFileSync(file, text);
  return spawnSync(process.execPath, ["--check", file], { stdio: "ignore" }).status === 0;
}

function testMutants(name, count, seed, isTold) {
  const file = `${name}.js`;
  const path = join(copy, file);
  const text = readFileSync(path, "utf8");
  const random = dice(`${seed}:${file}`);
  const drawn = mutantsOf(text)
    .map((one) => [random(), one])
    .sort((a, b) => a[0] - b[0])
    .map((one) => one[1]);
  const sum = { killed: 0, survived: 0, same: 0 };
  for (const one of drawn) {
    if (sum.killed + sum.survived >= count) break;
    if (equivalent.has(`web/static/${file} | ${one.now}`)) {
      sum.same++;
      continue;
    }
    if (!parses(one.text)) continue;
    writeFileSync(path, one.text);
    const survived = passes();
    sum[survived ? "survived" : "killed"]++;
    const verdict = survived ? "SURVIVED" : "killed";
    if (survived || isTold)
      console.log(`${verdict} web/static/${file}:${one.line}: ${one.old}  ->  ${one.now}`);
  }
  writeFileSync(path, text);
  const tested = sum.killed + sum.survived;
  console.log(
    `web/static/${file}: ${sum.killed} of ${tested} killed, ${sum.same} known to be equivalent`,
  );
  return sum;
}

const args = process.argv.slice(2);
const valueOf = (flag, otherwise) =>
  args.includes(flag) ? args.splice(args.indexOf(flag), 2)[1] : otherwise;
const count = Number(valueOf("-n", "12"));
const seed = valueOf("-s", "1");
const isTold = args.includes("-v");
const names = args
  .filter((one) => one !== "-v")
  .map((one) => one.replace(/^.*web\/static\//, "").replace(/\.js$/, ""));
const list = readFileSync(join(source, "tests/mutation/page_equivalent.txt"), "utf8").split("\n");
const equivalent = new Set(
  list.filter((one) => one.includes(" | ")).map((one) => one.split(" | ").slice(0, 2).join(" | ")),
);
let status = 1;
if (!passes()) console.log("the test fails without a mutation: it is not used");
else {
  const sums = (names.length ? names : known).map((name) => testMutants(name, count, seed, isTold));
  const total = (key) => sums.reduce((sum, one) => sum + one[key], 0);
  const all = total("killed") + total("survived");
  console.log(
    `seed ${seed}: killed ${total("killed")} of ${all}  ${((100 * total("killed")) / all).toFixed(1)} %`,
  );
  status = total("survived") ? 1 : 0;
}
rmSync(folder, { recursive: true });
process.exit(status);

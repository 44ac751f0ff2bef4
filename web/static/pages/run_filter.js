// run_filter.js - the filter of the table of runs: words, key:text, and key<number (also <=, =, >=, >). A key
// that is not a field of a run is the end of a setting's name: lr<3e-4 means optim.lr. All words must match.
import { readableTags } from "../base/tags.js";

const typed = /^([a-z][a-z0-9_.]*)(:|<=|>=|=|<|>)(.+)$/;

// quotation marks enclose a word with blanks: tags:"to be cited"
function wordsOf(filter) {
  const words = filter.toLowerCase().match(/(?:[^\s"]|"[^"]*"?)+/g) || [""];
  return words.map((word) => word.replaceAll('"', ""));
}

function settingNamed(key, names) {
  return names.find((name) => name === key) || names.find((name) => name.endsWith(`.${key}`));
}

/** Returns the settings used by a filter; row: any run, for the names of its fields. */
export function settingsIn(filter, row, names) {
  if (!row) return [];
  return wordsOf(filter)
    .map((word) => typed.exec(word))
    .filter((match) => match && !(match[1] in row))
    .map((match) => settingNamed(match[1], names))
    .filter(Boolean);
}

/** True if a run matches a filter. names: all settings; settingOf(row, name) returns the value or null. */
export function matches(row, filter, names, settingOf) {
  return wordsOf(filter).every((word) => {
    const match = typed.exec(word);
    if (!match) return hasWord(row, word);
    const [, key, operator, wanted] = match;
    if (key in row) return compare(row[key], operator, wanted);
    const setting = settingNamed(key, names);
    return setting ? compare(settingOf(row, setting), operator, wanted) : hasWord(row, word);
  });
}

function hasWord({ run, state, host, tags, note }, word) {
  return `${run} ${state} ${host} ${readableTags(tags)} ${note}`.toLowerCase().includes(word);
}

function compare(value, operator, wanted) {
  const text = readableTags(String(value)).toLowerCase();
  const n = Number(wanted);
  if (operator === ":") return text.includes(wanted);
  if (value === null) return false;
  switch (operator) {
    case "=":
      return text === wanted || value === n;
    case "<":
      return value < n;
    case ">":
      return value > n;
    case "<=":
      return value <= n;
  }
  return value >= n;
}

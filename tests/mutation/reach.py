"""Which tests run which lines of a file, counted by gcov: the mutated files are compiled with --coverage, linked before the
libraries into each test program, and the test is run once. The counts are kept until the file or the test program changes.

A process ended by a signal writes no counts: a line that only such processes run counts as one that no test runs. A process
that ends in exec or _exit, as between fork and exec, writes none either: mutants of a line in such a function are given to all
tests that run the file.
"""
import hashlib
import json
import re
import subprocess
import threading

ENDS_UNCOUNTED = re.compile(r"\b(_exit|exec[lv]\w*) ?\(")


def ranges(lines):
    """{1, 2, 3, 7} -> "1-3,7"."""
    out = []
    for line in sorted(lines):
        if out and out[-1][1] == line - 1:
            out[-1][1] = line
        else:
            out.append([line, line])
    return ",".join(f"{a}-{b}" if a != b else str(a) for a, b in out)


def lines_of(text):
    """"1-3,7" -> {1, 2, 3, 7}."""
    found = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def counted(prefix, sources):
    """Of each source whose counts a test left under prefix: its instrumented lines, its functions, and the lines that ran.
    sources: the .gcno of each source's object, whose name is like no other one's."""
    found = {}
    data = []
    for source, notes in sources.items():
        for file in prefix.rglob(notes.with_suffix(".gcda").name):
            file.with_suffix(".gcno").symlink_to(notes)
            data.append((source, file))
    if not data:
        return found
    out = subprocess.run(["gcov", "--json-format", "--stdout", *(str(file) for _, file in data)], cwd=prefix, capture_output=True, text=True)
    for (source, _), told in zip(data, map(json.loads, out.stdout.splitlines()), strict=True):
        known, functions, ran = found.setdefault(source, (set(), set(), set()))
        for row in told["files"]:
            if row["file"].endswith("/" + source.rsplit("/", 1)[-1]):
                known.update(line["line_number"] for line in row["lines"])
                ran.update(line["line_number"] for line in row["lines"] if line["count"] > 0)
                functions.update((f["start_line"], f["end_line"]) for f in row["functions"])
    return found


class Reach:
    def __init__(self, path):
        self.path, self.lock = path, threading.Lock()
        self.files = json.loads(path.read_text()) if path.exists() else {}

    def row(self, file, text):
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        row = self.files.setdefault(file, {})
        if row.get("hash") != digest:
            row.clear()
            row.update(hash=digest, lines="", functions=[], tests={})
        return row

    def knows(self, file, text, test, stamp):
        return self.row(file, text)["tests"].get(test, {}).get("stamp") == stamp

    def add(self, texts, test, stamp, found):
        """What counted() found of files with these texts when the test ran."""
        with self.lock:
            for file, (lines, functions, ran) in found.items():
                row = self.row(file, texts[file])
                row["lines"] = ranges(lines_of(row["lines"]) | lines)
                row["functions"] = sorted({tuple(f) for f in row["functions"]} | functions)
                row["tests"][test] = {"stamp": stamp, "ran": ranges(ran)}
            self.path.write_text(json.dumps(self.files))

    def tests(self, file, text, line):
        """The tests that run this line; of a line outside functions (a table, a macro): that run anything of the file."""
        row = self.row(file, text)
        lines = lines_of(row["lines"])
        inside = [f for f in row["functions"] if f[0] <= line <= f[1]]
        # a statement of several lines may be counted at its first one
        at = line if line in lines else max((x for x in lines if inside and inside[0][0] <= x <= line), default=0)
        found = {t for t, x in row["tests"].items() if (at in lines_of(x["ran"]) if inside else x["ran"])}
        if inside and not found and ENDS_UNCOUNTED.search("\n".join(text.splitlines()[inside[0][0] - 1:inside[0][1]])):
            return {t for t, x in row["tests"].items() if x["ran"]}
        return found

#!/usr/bin/env python3
"""Runs the tests of tests.txt on seeded mutants of C sources; run.sh prepares the environment and documents its use.

A mutant is compiled alone, with its file's own command and without debugging information. If its object equals that of the
unchanged file, or that of an earlier mutant, it behaves the same and is skipped. The object is then linked before the
libraries into each test program in turn, so neither the tree nor the build folder changes, until a test kills it. In unit
tests the file is compiled as with the preset asan: accesses beyond an allocation, undefined behaviour and leaks count as
failures.

A test kills a mutant only by an output: a wrong value, text, exit code or file, a crash, or a timeout. If all its failed
assertions are inside functions with which the test replaces those of the program (arguments and order of internal calls), the
mutant is given to the next test, and the report of a survivor states that such a test failed.

A file's tests are those of its row in tests.txt; reach.py counts once which of them run which lines, and a mutant is given to
those that run its line, in the order of the columns, those named like the file first, then the quickest. A test is timed and
counted when it is first needed. A budget of seconds limits the time for a mutant: the report of a survivor states how many tests
were left out, and whether no test runs its line at all. A mutant known to be equivalent is not tested.
"""
import argparse
import json
import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from reach import Reach, counted

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')|/\*.*?\*/|//[^\n]*', re.S)
TEXT = re.compile(r'"(?:\\.|[^"\\\n])*"')
SAYS = re.compile(r"\b(bt_fail|bt_fail_errno|bt_sql_fail|bt_log|bt_run_note|tell|note|say)\s*\(")
SKIPPED = 77
CHECKED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-w"]
# what is optimised away is not counted: a line that is passed by a jump around it seemed not to be run
COUNTED = ["--coverage", "-O0", "-U_FORTIFY_SOURCE", "-w"]
# a loop that steps by one from 0 ends where it ended; two factors of a size, or two texts that are compared, change places;
# a text's buffer has a byte more, an array an element; a call that returns 0 or -1, or 0 or the number of an error, fails
ARGUMENTS = r"\((?:[^()]|\([^()]*\))*\)"
CALL = r"(\b(?:bind|listen|connect|unlink|rename|stat|fstat|lstat|mkdir|chmod|ftruncate|fsync|close|fclose)" + ARGUMENTS + ")"
THREAD = r"(\bpthread_\w+" + ARGUMENTS + ")"
SAME = ((re.compile(CALL + r" (?:<|!=) 0\b"), r"\1 != 0"), (re.compile(CALL + r" (?:>=|==) 0\b"), r"\1 == 0"),
        (re.compile(THREAD + r" (?:>|!=) 0\b"), r"\1 != 0"), (re.compile(THREAD + r" (?:<=|==) 0\b"), r"\1 == 0"),
        (re.compile(r"(\bchar [^;=]*\w)\[\((\d+)\+1\)\]"), r"\1[\2]"),
        (re.compile(r"(for \(\w+ (\w+) = 0; \2) (?:<|!=) (\w[^;&|]*(?: && [^;|]*)?; \2\+\+\))"), r"\1 < \3"),
        (re.compile(r"\bcalloc\(\(1\+1\),"), "calloc(1,"),
        (re.compile(r"(calloc)\s*\(\s*([^,()]+?)\s*,\s*([^,()]+?)\s*\)"), lambda m: f"calloc({sorted((m[2], m[3]))})"),
        (re.compile(r"\b(strn?(?:case)?cmp|memcmp)\s*\(\s*([^,()]+?)\s*,\s*([^,()]+?)\s*((?:,[^,()]+)?)\)(?= [=!]= 0)"),
         lambda m: f"{m[1]}({sorted((m[2], m[3]))}{squeeze(m[4])})"))


def squeeze(text):
    return " ".join(text.split())


def plainly(line):
    """The line with equivalent forms written in one way."""
    for pattern, form in SAME:
        line = pattern.sub(form, line)
    return squeeze(line)


FAILED_AT = re.compile(r"^\[\s*LINE\s*\] --- (.+):(\d+): error", re.M)
REPLACED = re.compile(r"^(?!static\b)[\w *]+?\(?\b((?:bt|ckpt|MPI)_\w+)\)?\(")


def replaced_lines(text):
    """The lines of a test's source inside functions that replace those of the program or of MPI."""
    found, inside = set(), False
    for number, line in enumerate(text.splitlines(), 1):
        if not inside and REPLACED.match(line) and not line.rstrip().endswith(";"):
            inside = True
        if inside:
            found.add(number)
            inside = not (line.startswith("}") or re.search(r"\{.*\}\s*$", line))
    return found


def only_internal_calls(output, read=lambda path: Path(path).read_text()):
    """Whether a test failed, and only by assertions inside functions that replace those of the program."""
    failed = FAILED_AT.findall(output)
    try:
        return bool(failed) and all(int(line) in replaced_lines(read(path)) for path, line in failed)
    except OSError:
        return False


def without_comments(text):
    return "".join(COMMENT.sub(lambda m: m.group(1) or " ", text).split())


class Build:
    """Commands of the build folder that compile a file, link a program and run a test."""

    def __init__(self, folder):
        self.folder = folder
        self.compile = {}
        for row in json.loads((folder / "compile_commands.json").read_text()):
            self.compile.setdefault(row["file"], shlex.split(row["command"]))   # the first: that of the library
        shown = subprocess.run(["ctest", "--show-only=json-v1"], cwd=folder, capture_output=True, text=True, check=True)
        self.tests = {}
        for test in json.loads(shown.stdout)["tests"]:
            if "command" not in test:
                sys.exit(f"{test['name']} is not built yet: cmake --build {folder}")
            values = {p["name"]: p["value"] for p in test.get("properties", [])}
            self.tests[test["name"]] = {"command": test["command"], "env": values.get("ENVIRONMENT", []),
                                        "cwd": values["WORKING_DIRECTORY"], "limit": values.get("TIMEOUT", 120)}
        self.links = {}
        self.symbols = {}
        self.lock = threading.Lock()

    def program(self, test):
        """The program of a test, which is also the target that builds it: its own, or bitrain for a script."""
        for word in self.tests[test]["command"]:
            if Path(word).name.startswith("t.") and str(self.folder) in word:
                return Path(word)
        return self.folder / "bitrain"

    def link(self, target):
        with self.lock:
            if target not in self.links:
                out = subprocess.run(["ninja", "-t", "commands", target], cwd=self.folder, capture_output=True, text=True)
                line = out.stdout.strip().splitlines()[-1]
                words = shlex.split(line)
                self.links[target] = words[words.index(":") + 2:len(words) - 2] if words[0] == ":" else words
            return self.links[target]

    def defined(self, file):
        """Names of the external functions that an object or a program defines; in a program they may be local."""
        with self.lock:
            if file not in self.symbols:
                kind = ["-g"] if file.endswith(".o") else []
                out = subprocess.run(["nm", "--defined-only", *kind, file], cwd=self.folder, capture_output=True, text=True).stdout
                self.symbols[file] = {line.split()[-1] for line in out.splitlines() if line}
            return self.symbols[file]


class Judge:
    def __init__(self, build, work):
        self.build, self.work = build, work
        self.baseline_file = work / "baseline.json"
        self.baseline = json.loads(self.baseline_file.read_text()) if self.baseline_file.exists() else {}
        self.count = 0
        self.lock = threading.Lock()

    def folder(self):
        with self.lock:
            self.count += 1
            name = self.work / f"m{os.getpid()}.{self.count}"
        name.mkdir(parents=True)
        return name

    def run(self, test, program, folder, limit, more={}):
        """Exit status of a test that uses `program`; None when it ran longer than `limit` seconds. more: of the environment."""
        row = self.build.tests[test]
        own = str(self.build.program(test))
        command = [str(program) if word == own else word for word in row["command"]]
        env = dict(os.environ, **dict(pair.split("=", 1) for pair in row["env"]))
        mark = f"{folder.name}.{test}"
        env.update(BITRAIN=str(program) if own.endswith("/bitrain") else env.get("BITRAIN", ""), BT_MUTANT=mark)
        scratch = Path("/tmp") / f"{folder.name}"
        scratch.mkdir(exist_ok=True)
        env.update(more, TMPDIR=str(scratch))

        def limits():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        with open(folder / "output", "wb") as output:
            child = subprocess.Popen(command, cwd=row["cwd"], env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                     start_new_session=True, preexec_fn=limits)
        try:
            return child.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()
            self.end_left_over(mark)
            shutil.rmtree(scratch, ignore_errors=True)

    @staticmethod
    def end_left_over(mark):
        """Ends processes that the test started and did not reap; they have the mark in their environment."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if f"BT_MUTANT={mark}\0".encode() in (entry / "environ").read_bytes() + b"\0":
                        os.kill(int(entry.name), signal.SIGKILL)
                except OSError:
                    pass

    def seconds(self, test):
        """Seconds of the test without a mutation, None if it fails. Measured once for a build of its program."""
        program = self.build.program(test)
        stamp = program.stat().st_mtime
        known = self.baseline.get(test)
        if not known or known["stamp"] != stamp:
            folder = self.folder()
            begin = time.monotonic()
            status = self.run(test, program, folder, self.build.tests[test]["limit"] * 2)
            known = {"stamp": stamp, "seconds": time.monotonic() - begin if status == 0 else None}
            shutil.rmtree(folder)
            if status not in (0, SKIPPED):
                print(f"{test} fails without a mutation (status {status}): it is not used", flush=True)
            with self.lock:
                self.baseline[test] = known
                self.baseline_file.write_text(json.dumps(self.baseline))
        return known["seconds"]

    def is_unit(self, test):
        """Whether the test is a program of its own without ranks, which can run under sanitizers."""
        return self.build.program(test).name.startswith("t.") and "mpirun" not in self.build.tests[test]["command"][0]

    def order(self, file, tier, before, object_file):
        """The tests of a column, except those of columns `before`, in the order of execution."""
        words = set(re.split(r"[_.]", Path(file).stem))
        names = [t for t in self.build.tests if re.search(tier, t) and t not in before]
        targets = sorted({self.build.program(t).name for t in names})
        if targets:
            made = subprocess.run(["cmake", "--build", self.build.folder, "--target", *targets], capture_output=True, text=True)
            if made.returncode:
                sys.exit(made.stdout[-2000:])
        own = self.build.defined(object_file)
        names = [t for t in names if self.build.defined(str(self.build.program(t))) & own]
        timed = [(t, self.seconds(t)) for t in names]
        near = lambda t: -len(words & set(re.split(r"[_.]", t)))
        return [t for t, s in sorted((x for x in timed if x[1] is not None), key=lambda x: (x[1] > 1, near(x[0]), x[1]))]

    def linked(self, test, objects, folder, more=()):
        """The program of a test with replaced objects, linked once in this folder; None: it does not link.
        objects: path of the program's own object, and of its replacement."""
        program = self.build.program(test)
        mutated = folder / program.name
        if mutated.exists():
            return mutated
        words = list(self.build.link(program.name))
        at = words.index("-o")
        words[at + 1] = str(mutated)
        for own, other in objects.items():
            if own in words:
                words[words.index(own)] = str(other)
            else:
                words.insert(at + 2, str(other))
        words += more
        return mutated if subprocess.run(words, cwd=self.build.folder, capture_output=True).returncode == 0 else None


class Suite:
    """The tests of a file, prepared on demand."""

    def __init__(self, tiers, order, runs):
        self.tiers, self.order, self.runs = list(tiers), order, runs   # runs(test, line): does it run this line?
        self.ready, self.lock = [], threading.Lock()

    def tests(self):
        at = 0
        while True:
            with self.lock:
                while at >= len(self.ready) and self.tiers:
                    self.ready += self.order(self.tiers.pop(0), self.ready)
                if at >= len(self.ready):
                    return
            yield self.ready[at]
            at += 1


def ends_its_turn(lines, number, new):
    """Whether a line differs by a `continue` behind the last statement of a loop's body, which has no effect."""
    old = lines[number - 1]
    if squeeze(new) != squeeze(old) + " continue;" or number >= len(lines) or lines[number].strip() != "}":
        return False
    depth = len(lines[number]) - len(lines[number].lstrip())
    for line in reversed(lines[:number - 1]):
        if line.strip() and len(line) - len(line.lstrip()) == depth:
            return bool(re.match(r"\s*(for|while) \(.*\{\s*$", line))
    return False


def statement_begin(lines, number):
    """Index of the first line of the statement with line `number`, including its `if`."""
    begin = number - 1
    while begin > 0 and not re.search(r"[;{}]\s*(/\*.*\*/\s*)?$", lines[begin - 1]):
        begin -= 1
    return begin


def jumps(old, new):
    """Whether a line differs by a `break` or `continue` at its end, which is not reached after a return."""
    return squeeze(new) in (squeeze(old) + " break;", squeeze(old) + " continue;")


def possible(file, seed):
    """All changes of one line of a file, in the order of the seed: the line's number and its new text."""
    from universalmutator import mutator
    quiet, sys.stdout = sys.stdout, open(os.devnull, "w")
    try:
        lines = (ROOT / file).read_text().splitlines(keepends=True)
        rows = mutator.mutants_regexp(lines, ["universal.rules", "c_like.rules", "c.rules"], ignorePatterns=[])
    finally:
        sys.stdout.close()
        sys.stdout = quiet
    seen, found = set(), []
    for row in rows:
        number, new = row[0], row[1]
        old = lines[number - 1]
        if plainly(new) == plainly(old) or ends_its_turn(lines, number, new):
            continue
        if (number, squeeze(new)) in seen or "#include" in old or "_Static_assert" in old:
            continue
        seen.add((number, squeeze(new)))
        statement = "".join(lines[statement_begin(lines, number):number])
        if TEXT.sub('""', new) == TEXT.sub('""', old) and SAYS.search(statement):
            continue   # only the text of an error or a report differs
        found.append((number, new))
    random.Random(f"{seed}:{file}").shuffle(found)
    return found


def candidates(file, seed):
    """All mutants of a file that may behave differently, in the order of the seed: the line, the line whose tests are run,
    the old and the new text of the line, and the text of the file."""
    text = (ROOT / file).read_text()
    lines = text.splitlines(keepends=True)
    plain = without_comments(text)
    for number, new in possible(file, seed):
        begin = statement_begin(lines, number)
        if lines[begin].lstrip().startswith("bt_log(") and not jumps(lines[number - 1], new):
            continue   # another line of the log, or none
        changed = "".join(lines[:number - 1]) + new + "".join(lines[number:])
        if without_comments(changed) != plain:
            asked = begin + 1 if jumps(lines[number - 1], new) else number
            if jumps(lines[number - 1], new) and lines[number - 1].strip() == "}":
                asked = number + 1   # it is reached like the code behind the block
            yield number, asked, lines[number - 1], new, changed


def compiled_files(room, build):
    """The sources of a folder that this build compiles; substitutes for missing libraries may be excluded."""
    files = subprocess.run(["git", "ls-files", f"{room.rstrip('/')}/*.c"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    return [f for f in files if str(ROOT / f) in build.compile]


def sample_files(build, room, count, seed):
    """`count` files of a folder, long ones more likely; tables and comments do not count."""
    files = compiled_files(room, build)
    dice = random.Random(f"{seed}:{room}")
    weight = {f: len(re.findall(r"\b(if|for|while|switch|return)\b|\?|&&|\|\|", (ROOT / f).read_text())) for f in files}
    return sorted(sorted((f for f in files if weight[f]), key=lambda f: dice.random() ** (1 / weight[f]), reverse=True)[:count])


def sample_mutants(build, room, count, seed):
    """Number of the `count` mutants in each file of a folder if all of the folder's mutants are equally likely."""
    files = compiled_files(room, build)
    each = {f: len(possible(f, seed)) for f in files}
    drawn = random.Random(f"{seed}:{room}").sample(sorted(each), count, counts=[each[f] for f in sorted(each)])
    return {f: drawn.count(f) for f in sorted(set(drawn))}


def main():
    args = argparse.ArgumentParser()
    args.add_argument("-a", type=int, default=0)
    args.add_argument("-n", type=int, default=8)
    args.add_argument("-f", type=int, default=3)
    args.add_argument("-s", default="1")
    args.add_argument("-j", type=int, default=1)
    args.add_argument("-t", type=int, default=99)
    args.add_argument("-b", type=float, default=120)
    args.add_argument("-r", type=Path)
    args.add_argument("-v", action="store_true")
    args.add_argument("paths", nargs="*")
    o = args.parse_args()
    work = Path(os.environ["BT_MUTATION"])
    build = Build(Path(os.environ["BT_BIN"]))
    judge = Judge(build, work)
    rows = [line.split() for line in (HERE / "tests.txt").read_text().splitlines() if line.strip() and line[0] != "#"]
    # the line may have an or of its own; the reason has none
    equivalent = {line.rsplit(" | ", 1)[0] for line in (HERE / "equivalent.txt").read_text().splitlines() if " | " in line}
    reach = Reach(work / "reached.json")
    again = set()
    if o.r:
        for line in o.r.read_text().splitlines():
            told = re.match(r"SURVIVED (\S+?):\d+: (.*?)  ->  (.*?)(?:   \[.*\])?$", line)
            if told:
                again.add(told.groups())
        o.paths = sorted({file for file, _, _ in again})
        o.n = 1 << 30
    files = {}
    for path in o.paths:
        path = os.path.relpath(ROOT / path, ROOT)
        if not (ROOT / path).is_dir():
            files[path] = o.n
        elif o.a:
            files.update(sample_mutants(build, path, o.a, o.s))
        else:
            files.update(dict.fromkeys(sample_files(build, path, o.f, o.s), o.n))
    texts = {file: (ROOT / file).read_text() for file in files}
    totals = {}

    def object_of(file):
        command = build.compile[str(ROOT / file)]
        return command[command.index("-o") + 1]

    def compile_to(file, text, folder, more=(), name="mutant.o"):
        source, result = folder / Path(file).name, folder / name
        source.write_text(text)
        words = list(build.compile[str(ROOT / file)])
        words[words.index("-o") + 1], words[-1] = str(result), str(source)
        made = subprocess.run([w for w in words if w != "-g"] + ["-g0", *more], cwd=build.folder, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
        return result.read_bytes() if made.returncode == 0 else None

    passing = {}

    def passes_checked(file, test):
        """Whether a unit test passes with the unchanged file under sanitizers; mutants are then tested in the same way."""
        if (file, test) not in passing:
            folder = judge.folder()
            program = None
            if judge.is_unit(test) and compile_to(file, texts[file], folder, CHECKED, "checked.o"):
                program = judge.linked(test, {object_of(file): folder / "checked.o"}, folder, CHECKED)
            passing[file, test] = bool(program) and judge.run(test, program, folder, 60 + 20 * judge.seconds(test)) == 0
            shutil.rmtree(folder)
        return passing[file, test]

    def judge_mutant(file, text, tests, folder):
        """(the test that killed it, how many tests were left out, how many ran, how many failed by internal calls only);
        (None, ...) for a survivor."""
        spent = asked = left_out = internal = 0
        for test in tests:
            seconds = judge.seconds(test)
            if asked and spent + seconds > o.b:
                left_out += 1
                continue
            spent, asked = spent + seconds, asked + 1
            checked = passes_checked(file, test)
            if checked and not (folder / "checked.o").exists():
                checked = compile_to(file, text, folder, CHECKED, "checked.o") is not None
            made = folder / ("checked.o" if checked else "mutant.o")
            mutated = judge.linked(test, {object_of(file): made}, folder, CHECKED if checked else ())
            if not mutated:   # the build may have changed meanwhile, which kills no mutant
                asked -= 1
                continue
            status = judge.run(test, mutated, folder, 60 + (20 if checked else 10) * seconds)
            if status in (0, SKIPPED):
                continue
            output = (folder / "output").read_text(errors="replace")
            if status is not None and only_internal_calls(output, lambda path: (build.folder / path).read_text()):
                internal += 1
                continue
            return f"{test}{' (time)' if status is None else ''}", 0, asked, internal
        return None, left_out, asked, internal

    counting = threading.Lock()
    instrumented = {}

    def instrument():
        """Compiles all files of this run with instrumentation, once, so that a test is run once for all of them."""
        folder = judge.folder()
        for file, text in texts.items():
            name = file.replace("/", "+")
            if compile_to(file, text, folder, COUNTED, f"{name}.o") is not None:
                instrumented[file] = folder / f"{name}.o"

    def count(file, test):
        """Runs a test that was not counted yet with the instrumented files of this run that it uses."""
        with counting:
            stamp = build.program(test).stat().st_mtime
            if reach.knows(file, texts[file], test, stamp):
                return
            if not instrumented:
                instrument()
            has = build.defined(str(build.program(test)))
            used = [f for f in instrumented if build.defined(object_of(f)) & has]
            for some in (used, [f for f in used if f == file]):   # the file alone if a program with all of them does not link
                folder = judge.folder()
                prefix = folder / "counted"
                prefix.mkdir()
                program = judge.linked(test, {object_of(f): instrumented[f] for f in some}, folder, ["--coverage"])
                limit = 60 + 10 * judge.seconds(test)
                # a test that fails on a busy machine may not have reached all of its lines
                passed = program and judge.run(test, program, folder, limit, {"GCOV_PREFIX": str(prefix)}) in (0, SKIPPED)
                if passed:
                    notes = {f: instrumented[f].with_suffix(".gcno") for f in some}
                    reach.add(texts, test, stamp, counted(prefix, notes))
                shutil.rmtree(folder)
                if passed:
                    return

    for file, wanted in files.items():
        row = next((r for r in rows if file.startswith(r[0])), None)
        if not row:
            print(f"{file}: no row in tests.txt")
            continue
        object_file = object_of(file)
        library = subprocess.run(["cmake", "--build", build.folder, "--target", object_file], capture_output=True, text=True)
        if library.returncode:
            sys.exit(library.stdout[-2000:])
        plain = texts[file]

        def runs(test, line):
            if judge.seconds(test) > o.b:
                return True
            count(file, test)
            known = reach.knows(file, plain, test, build.program(test).stat().st_mtime)
            return not known or test in reach.tests(file, plain, line)

        suite = Suite(row[1:1 + o.t], lambda tier, before: judge.order(file, tier, before, object_file), runs)
        first = next(suite.tests(), None)
        if not first:
            print(f"{file}: none of the tests in its row uses it")
            continue
        folder = judge.folder()
        objects = {compile_to(file, plain, folder)}
        if judge_mutant(file, plain, [first], folder)[0]:
            sys.exit(f"{file}: {first} fails with the unchanged file linked as mutants are: nothing can be judged")
        shutil.rmtree(folder)

        def judged_of(line, new, text, folder):
            if f"{file} | {new}" in equivalent:
                return None, 0, 0, 0
            return judge_mutant(file, text, (t for t in suite.tests() if suite.runs(t, line)), folder)

        same = broken = 0
        drawn = []
        for number, asked_line, old, new, text in candidates(file, o.s):
            if len(drawn) == wanted:
                break
            if o.r and (file, squeeze(old), squeeze(new)) not in again:
                continue
            folder = judge.folder()
            made = compile_to(file, text, folder)
            # a program lacks a removed function only if the library's object is not linked for another one
            if made is None or not build.defined(object_file) <= build.defined(str(folder / "mutant.o")):
                broken += 1
                shutil.rmtree(folder)
                continue
            if made in objects:
                same += 1
                shutil.rmtree(folder)
                continue
            objects.add(made)
            drawn.append((number, asked_line, squeeze(old), squeeze(new), text, folder))
        killed = known = survived = 0
        begin = time.monotonic()
        with ThreadPoolExecutor(o.j) as pool:
            judged = pool.map(lambda d: judged_of(d[1], *d[3:]), drawn)
            for (number, _, old, new, _, folder), (by, left_out, asked, internal) in zip(drawn, judged):
                shutil.rmtree(folder)
                if by:
                    killed += 1
                elif f"{file} | {new}" in equivalent:
                    known += 1
                else:
                    survived += 1
                verdict = f"killed by {by}" if by else "known" if f"{file} | {new}" in equivalent else "SURVIVED"
                why = "" if verdict != "SURVIVED" else "   [no test runs this line]" if not asked else (
                    f"   [{left_out} tests were not run]" if left_out else "")
                why += f"   [{internal} tests failed by internal calls only]" if internal and verdict == "SURVIVED" else ""
                if verdict == "SURVIVED" or o.v:
                    print(f"{verdict} {file}:{number}: {old}  ->  {new}{why}", flush=True)
        print(f"{file}: {killed} of {killed + survived} killed, {known} known to be equivalent; passed over: {same} with the same object, "
              f"{broken} that do not compile; {len(suite.ready)} tests, {time.monotonic() - begin:.0f} s", flush=True)
        sums = totals.setdefault(row[0], [0, 0, 0])
        sums[0], sums[1], sums[2] = sums[0] + killed, sums[1] + survived, sums[2] + known
    print(f"seed {o.s}:")
    for room, (killed, survived, known) in sorted(totals.items()) + [("all", [sum(t[i] for t in totals.values()) for i in range(3)])]:
        if killed + survived:
            print(f"  {room:24} killed {killed:3} of {killed + survived:3}  {100 * killed / (killed + survived):5.1f} %  (besides {known} known)")
    for object_file in instrumented.values():
        shutil.rmtree(object_file.parent, ignore_errors=True)
    return 1 if any(t[1] for t in totals.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""tensorboard_read.py - exports a run and reads it back with TensorBoard's own reader: every point, against the database.

    python3 -m venv /tmp/tb && /tmp/tb/bin/pip install tensorboard 'setuptools<81'
    /tmp/tb/bin/python tests/store/tensorboard_read.py build                # makes a run of its own: 4 ranks, a failure, statistics
    /tmp/tb/bin/python tests/store/tensorboard_read.py build FILE RUN       # any run

Compares, as 32-bit floats: tags, steps, values and wall times of all steps, layers, ranks' means and ranks; the other way round, that
nothing else is in the files; and that TensorBoard's record reader finds every checksum right and misses a flipped bit not. Not in CI: it
needs Python and TensorBoard. The files' bytes are checked without them by store.export.tensorboard.
"""
import json, math, os, struct, subprocess, sys, tempfile
from tensorboard import version
from tensorboard.backend.event_processing import event_accumulator, event_file_loader


def query(program, store, sql):
    return json.loads(subprocess.run([program, "query", "--json", "--store", store, sql], check=True, capture_output=True, text=True).stdout)


def rows(program, store, sql):
    """in pages: a query gives at most 10 000 rows"""
    got, page = [], 2000
    while True:
        part = query(program, store, "%s LIMIT %d OFFSET %d" % (sql, page, len(got)))
        got += part
        if len(part) < page:
            return got


def f32(v):
    return struct.unpack("<f", struct.pack("<f", v))[0]


def expected(program, store, run):
    """{folder: {tag: [(step, value, wall)]}} as the database has it"""
    started, = [r["started_s"] for r in query(program, store, "SELECT started_s FROM runs WHERE run = '%s'" % run)]
    panels = {(m["view"], m["key"]): m["panel"] for m in query(program, store, "SELECT view, key, panel FROM metrics")}
    want = {}

    def put(folder, tag, step, time_s, value):
        if value is not None:
            want.setdefault(folder, {}).setdefault(tag, []).append((step + 1, f32(value), started + time_s))

    time_of = {}
    for r in rows(program, store, "SELECT * FROM steps WHERE run = '%s' ORDER BY step" % run):
        time_of[r["step"]] = r["time_s"]
        for (view, key), panel in panels.items():
            if view == "steps":
                put("", "%s/%s" % (panel, key), r["step"], r["time_s"], r[key])
    for r in rows(program, store, "SELECT * FROM layers WHERE run = '%s' ORDER BY step, layer, tensor" % run):
        for (view, key), _ in panels.items():
            if view == "layers" and r["step"] in time_of:
                put("", "ternary/%s/layer%d.%s" % (key, r["layer"], r["tensor"]), r["step"], time_of[r["step"]], r[key])
    ranks = {}
    for r in rows(program, store, "SELECT * FROM rank_steps WHERE run = '%s' ORDER BY step, rank" % run):
        ranks.setdefault(r["step"], []).append(r)
    for step, at in sorted(ranks.items()):
        for (view, key), panel in panels.items():
            if view != "rank_steps":
                continue
            known = [r[key] for r in at if r[key] is not None]
            put("", "%s/mean_%s" % (panel, key), step, time_of[step], sum(known) / len(known) if known else None)
            for r in at:
                put("rank%d" % r["rank"], "%s/%s" % (panel, key), step, time_of[step], r[key])
    return want


def compare(folder, tags):
    reader = event_accumulator.EventAccumulator(folder, size_guidance={event_accumulator.SCALARS: 0, event_accumulator.TENSORS: 0})
    reader.Reload()
    found = reader.Tags()
    seen = sorted(found["scalars"] + found["tensors"])
    assert seen == sorted(tags), "tags differ: only read %s, only wanted %s" % (set(seen) - set(tags), set(tags) - set(seen))
    n = 0
    for tag, want in tags.items():
        got = [(e.step, e.value, e.wall_time) for e in reader.Scalars(tag)] if tag in found["scalars"] else \
              [(e.step, e.tensor_proto.float_val[0], e.wall_time) for e in reader.Tensors(tag)]
        assert len(got) == len(want), "%s: %d points read, %d wanted" % (tag, len(got), len(want))
        for g, w in zip(sorted(got), sorted(want)):
            same = g[0] == w[0] and abs(g[2] - w[2]) < 1e-3 and (g[1] == w[1] or math.isclose(g[1], w[1], rel_tol=2e-7))
            assert same, "%s: read %r, wanted %r" % (tag, g, w)
        n += len(got)
    return n


def can_fail(path):
    """the reader must notice a flipped bit in a record, or it has checked nothing"""
    data = bytearray(open(path, "rb").read())
    whole = len(list(event_file_loader.LegacyEventFileLoader(path).Load()))
    data[len(data) // 2] ^= 1
    bad = path + ".flipped"
    open(bad, "wb").write(data)
    try:
        read = len(list(event_file_loader.LegacyEventFileLoader(bad).Load()))
    except Exception:
        read = -1
    os.remove(bad)
    assert read < whole, "a flipped bit went unnoticed"


def main():
    build = os.path.abspath(sys.argv[1])
    program = os.path.join(build, "bitrain")
    with tempfile.TemporaryDirectory() as d:
        store, run = (sys.argv[2], sys.argv[3]) if len(sys.argv) > 3 else (d + "/m.db", "synth")
        if len(sys.argv) <= 3:
            subprocess.run([os.path.join(build, "tests/t.store.synth_runs"), store, run, "ranks=4", "straggler=2", "excess=1", "fail_at=120", "resume_from=100", "down_s=4"], check=True)
        subprocess.run([program, "export", run, "--store", store, "--format", "tensorboard", "--out", d + "/tb", "--per-rank"], check=True, capture_output=True)
        folders = {os.path.relpath(p, d + "/tb/" + run): p for p, _, f in os.walk(d + "/tb/" + run) if f}
        want = expected(program, store, run)
        assert set(folders) == {f or "." for f in want}, "folders %s, wanted %s" % (sorted(folders), sorted(want))
        total = 0
        for folder, tags in sorted(want.items()):
            path = folders[folder or "."]
            n = compare(path, tags)
            files = os.listdir(path)
            can_fail(os.path.join(path, [f for f in files if "tfevents" in f][0]))
            print("%-6s %4d tags %7d points" % (folder or "run", len(tags), n))
            total += n
        print("TensorBoard %s read %d points of run '%s' and all are those of the database" % (version.VERSION, total, run))


main()

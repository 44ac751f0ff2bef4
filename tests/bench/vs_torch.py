#!/usr/bin/env python3
"""vs_torch.py: bitrain beside PyTorch on the same work, interleaved A B A B, medians; prints the table of README.

  tests/bench/vs_torch.py --bitrain build/bitrain --python python3 [--workloads nano,small] [--shapes 1,2,2x1] [--rounds 3]

The work: peer_torch.py's BitNet model (pre-norm, tied embedding, AdamW) at 4096 tokens a step on its synthetic chain.
base runs in bf16 alone, two steps a round (a step takes ten seconds), and PyTorch takes its step in four micro-batches (whole, it
needs 1.7 times the memory). A shape is THREADS, or RANKSxTHREADS. Each round runs every contender once, one after another, so that a
busy moment of the machine meets all of them; the ratio is that of the medians. --json FILE keeps every single figure, --readme FILE
puts the table between its marks in README (before "## Use" the first time). Run it on a quiet machine only.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

# what a workload asks for beyond the options: most steps, dtypes, words for peer_torch.py
WORKS = {"base": dict(steps=2, dtypes=["bf16"], peer=["--accum", "4"])}

HERE = os.path.dirname(os.path.abspath(__file__))


def parse():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--bitrain", default="build/bitrain")
    p.add_argument("--python", default=sys.executable, help="a Python that has torch and numpy")
    p.add_argument("--workloads", default="nano,small", help="of nano, small, base")
    p.add_argument("--shapes", default="1,2,2x1", help="threads, or ranks x threads")
    p.add_argument("--dtypes", default="fp32,bf16", help="of both programs")
    p.add_argument("--peer-dtypes", default="", help="of PyTorch, where they differ: capped to AVX2 it has bf16 in software only")
    p.add_argument("--compile", action="store_true", help="PyTorch with torch.compile as well")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--grads", default="float,int8", help="of bitrain with bf16; fp32 runs with float gradients")
    p.add_argument("--isa", default="auto", help="cap of bitrain's kernels; PyTorch is capped alike")
    p.add_argument("--json", default="")
    p.add_argument("--readme", default="", help="README.md to put the table into")
    return p.parse_args()


def work(a, workload):
    w = WORKS.get(workload, {})
    return min(a.steps, w.get("steps", a.steps)), [d for d in a.dtypes.split(",") if d in w.get("dtypes", [d])], w.get("peer", [])


def ranks_threads(shape):
    return (int(shape.split("x")[0]), int(shape.split("x")[1])) if "x" in shape else (1, int(shape))


def ours(a, workload, dtype, shape, grad):
    ranks, threads = ranks_threads(shape)
    env = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    cmd = [a.bitrain, "bench", "train", "--preset", workload, "--ranks", str(ranks), "--threads", str(threads), "--data", "synth:chain",
           "--set", "model.norm=pre", "--precision", dtype, "--grad", grad, "--isa", a.isa, "--steps", str(work(a, workload)[0]), "--json"]
    out = subprocess.run(cmd, env=env, capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"{' '.join(cmd)}: {out.stderr.strip()}")
    r = json.loads(out.stdout.strip().splitlines()[-1])
    return dict(tok=r["tokens_per_s"], rss=r["memory_mib"], mfu=r["mfu"])


def torch(a, workload, dtype, shape, compiled):
    ranks, threads = ranks_threads(shape)
    steps, _, words = work(a, workload)
    if ranks > 1 and "--accum" in words:        # a rank's share of the micro-batches
        words = ["--accum", str(int(words[1]) // ranks)]
    env = dict(os.environ)
    env.pop("OPENBLAS_CORETYPE", None)
    if a.isa.startswith("avx2"):
        env.update(ATEN_CPU_CAPABILITY="avx2", DNNL_MAX_CPU_ISA="AVX2", ONEDNN_MAX_CPU_ISA="AVX2", MKL_ENABLE_INSTRUCTIONS="AVX2", OPENBLAS_CORETYPE="HASWELL")
    with tempfile.NamedTemporaryFile("r", suffix=".json") as f:
        cmd = [a.python, os.path.join(HERE, "peer_torch.py"), "--workload", workload, "--dtype", dtype, "--threads", str(threads),
               "--steps", str(steps), "--max-seconds", "120", "--json", f.name] + words + (["--ddp", str(ranks)] if ranks > 1 else []) + (["--compile"] if compiled else [])
        out = subprocess.run(cmd, env=env, capture_output=True, text=True)
        line = f.read().strip()
        if out.returncode or not line:
            sys.exit(f"{' '.join(cmd)}: {out.stderr.strip()[-2000:]}")
        r = json.loads(line.splitlines()[-1])
    return dict(tok=r["tok_s"], rss=r["rss_mb"])


def machine(a):
    """What the table was measured on, in one line: the head of `bitrain bench train`."""
    env = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    out = subprocess.run([a.bitrain, "bench", "train", "--steps", "1", "--isa", a.isa, "--threads", "1"], env=env, capture_output=True, text=True)
    head = out.stdout.splitlines()[0].split(", ")
    version = subprocess.run([a.python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True).stdout.strip()
    return f"{head[-1]}, {head[-2]}; PyTorch {version}; medians of {a.rounds} interleaved rounds"


def put_into_readme(path, lines, note):
    begin, end = "<!-- figure: speed -->", "<!-- end figure: speed -->"
    block = "\n".join([begin, f"Training speed beside PyTorch on the same work (`tests/bench/vs_torch.py`; {note}):", ""] + lines + [end])
    with open(path) as f:
        text = f.read()
    if begin in text:
        text = text[:text.index(begin)] + block + text[text.index(end) + len(end):]
    else:
        text = text.replace("## Use\n", block + "\n\n## Use\n", 1)
    with open(path, "w") as f:
        f.write(text)


def main():
    a = parse()
    everything = []
    lines = ["| work | shape | | tokens/s | peak MiB | x PyTorch | x its memory |", "|---|---|---|---|---|---|---|"]
    print("\n".join(lines))
    for workload in a.workloads.split(","):
        for shape in a.shapes.split(","):
            dtypes = work(a, workload)[1]
            theirs = a.peer_dtypes.split(",") if a.peer_dtypes else dtypes
            contenders = [("bitrain", d, lambda d=d: ours(a, workload, d, shape, "float")) for d in dtypes if d == "fp32" or "float" in a.grads]
            if "int8" in a.grads and "bf16" in dtypes:
                contenders += [("bitrain", "bf16, int8 gradients", lambda: ours(a, workload, "bf16", shape, "int8"))]
            contenders += [("PyTorch", d, lambda d=d: torch(a, workload, d, shape, False)) for d in theirs]
            if a.compile:
                contenders += [("PyTorch compiled", d, lambda d=d: torch(a, workload, d, shape, True)) for d in theirs]
            got = {(who, d): [] for who, d, _ in contenders}
            for _ in range(a.rounds):
                for who, d, fn in contenders:
                    got[who, d].append(fn())
            med = {k: (statistics.median(x["tok"] for x in v), statistics.median(x["rss"] for x in v)) for k, v in got.items()}
            best = max(v[0] for k, v in med.items() if k[0] != "bitrain")
            for (who, d), (tok, rss) in med.items():
                peer = med.get(("PyTorch", d.split(",")[0])) or med["PyTorch", theirs[0]]
                ratio = f"{tok / peer[0]:.2f} ({tok / best:.2f} of its best)" if who == "bitrain" else ""
                memory = f"{rss / peer[1]:.2f}" if who == "bitrain" else ""
                lines.append(f"| {workload} | {shape} | {who} {d} | {tok:,.0f} | {rss:,.0f} | {ratio} | {memory} |")
                print(lines[-1], flush=True)
            everything.append(dict(workload=workload, shape=shape, runs={f"{k[0]} {k[1]}": v for k, v in got.items()}))
    if a.readme:
        put_into_readme(a.readme, lines, machine(a))
    if a.json:
        with open(a.json, "w") as f:
            json.dump(everything, f, indent=1)


main()

#!/usr/bin/env python3
"""minutes_to.py: minutes until a validation loss, bitrain's recipes beside the PyTorch twin in its best form.

  tests/bench/minutes_to.py --bitrain build/bitrain --python python3 --goal 1.88 --corpus kjv=cache/builtin-kjv.txt --corpus perl=perl.txt \\
      --recipe 'default:' --recipe 'muon: optim.name=muon optim.embed_lr=3' --lrs 1e-3,2e-3,4e-3 --steps 1500 --peer-steps 1000 --json minutes.json

A corpus is one file of text; both programs validate on its last twentieth, in stretches of 256 tokens. The twin's tokens are bytes, or,
with --twin-tokens N, those of a tokenizer that `bitrain tokenizer train` makes of the rest. bitrain learns one by itself, unless a recipe
has data.tokenizer=bytes. bitrain's side is
`bitrain bench learn` on --threads threads (or --ranks ranks of one thread each); the twin is peer_torch.py's model, quantisers and AdamW
with warm-up and cosine to a tenth, `pre` or `subln`, eager or compiled, with each of --peer-batch tokens a step, each horizon of --peer-steps
and each of --lrs. Its recipe is chosen by the first seed (the earliest at the goal, else the lowest loss at the end), and the other seeds run
with it; a run that takes longer than the earliest so far ends. Minutes are those of training
steps alone; the goal is crossed on the straight line between two validations. Each figure is a mean over seeds with its standard error.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
VAL, T = 0.05, 256


def parse():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--bitrain", default="build/bitrain")
    p.add_argument("--python", default=sys.executable, help="a Python that has torch and numpy")
    p.add_argument("--corpus", action="append", default=[], help="NAME=FILE")
    p.add_argument("--recipe", action="append", default=[], help="of bitrain: 'NAME: key=value ...'")
    p.add_argument("--workload", default="nano", choices=["nano"], help="shape of the model")
    p.add_argument("--goal", type=float, default=1.88)
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--ranks", type=int, default=1, help="of bitrain, with --threads 1")
    p.add_argument("--steps", type=int, default=1500, help="of bitrain: the schedule's horizon")
    p.add_argument("--peer-steps", default="1500", help="of the twin: the same of its schedule, several with commas")
    p.add_argument("--peer-batch", default="", help="of the twin: tokens a step, several with commas (empty: those of the workload)")
    p.add_argument("--every", type=int, default=50, help="steps between validations")
    p.add_argument("--eval-tokens", type=int, default=65536)
    p.add_argument("--lrs", default="1e-3,2e-3,4e-3")
    p.add_argument("--forms", default="subln,pre", help="of the twin: norms")
    p.add_argument("--twin-tokens", type=int, default=0, help="of the twin: vocabulary learned from the corpus (0: bytes)")
    p.add_argument("--compile", action="store_true", help="the twin under torch.compile as well")
    p.add_argument("--dtype", default="bf16", choices=["fp32", "bf16"])
    p.add_argument("--json", default="", help="keeps every curve")
    p.add_argument("--curves", default="", help="the same as a table, which `bitrain plot --curves FILE` draws")
    p.add_argument("--twin", default="", help=argparse.SUPPRESS)    # internal: one run of the twin, its settings as JSON
    return p.parse_args()


# ---- the twin's tokens -----------------------------------------------------------------------------
def tokens_of(o):
    """Ids of both parts, and bytes a token of the one that is validated on."""
    import numpy as np
    data = open(o["file"], "rb").read()
    cut = int(len(data) * (1 - VAL))
    with tempfile.TemporaryDirectory() as folder:
        text, vocabulary = os.path.join(folder, "train.txt"), os.path.join(folder, "tokens.json")
        with open(text, "wb") as f:
            f.write(data[:cut])
        subprocess.run([o["bitrain"], "tokenizer", "train", text, "--vocab", str(o["tokens"]), "--out", vocabulary, "--quiet"],
                       check=True, stdout=subprocess.DEVNULL)
        parts = [np.array(subprocess.run([o["bitrain"], "tokenizer", "encode", vocabulary], input=part, check=True,
                                         stdout=subprocess.PIPE).stdout.split(), dtype=np.int64) for part in (data[:cut], data[cut:])]
    return parts[0], parts[1], len(data[cut:]) / len(parts[1])


# ---- one run of the twin, in a process of its own --------------------------------------------------
def twin(o):
    sys.argv = ["peer_torch.py", "--workload", o["workload"], "--dtype", o["dtype"], "--threads", str(o["threads"])] + \
        (["--subln"] if o["form"] == "subln" else [])
    sys.path.insert(0, HERE)
    import peer_torch as P
    import numpy as np
    import torch
    torch.set_num_threads(o["threads"])
    torch.set_flush_denormal(True)
    torch.manual_seed(o["seed"])
    c = P.WORKLOADS[o["workload"]]
    c["batch"] = o["batch"] or c["batch"]
    if o["tokens"]:
        c["V"] = o["tokens"]
        train, val, bytes_per_token = tokens_of(o)
    else:
        data = np.fromfile(o["file"], dtype=np.uint8).astype(np.int64)
        cut = int(len(data) * (1 - VAL))
        train, val, bytes_per_token = data[:cut], data[cut:], 1
    train, val = torch.from_numpy(train), torch.from_numpy(val)
    if len(val) <= T:
        sys.exit("%s is shorter than one validation sequence" % o["file"])
    B = c["batch"] // T
    rows = (len(train) - 1) // T
    order = np.random.default_rng(o["seed"])
    at = np.empty(0, dtype=np.int64)
    net = P.Model(c, P.ARGS)
    model = torch.compile(net) if o["compile"] else net
    opt = P.make_optimizer(net, o["lr"])
    n_val = min((len(val) - 1) // T, o["eval_tokens"] // T)

    def batch(x, starts):
        return torch.stack([x[s * T:s * T + T] for s in starts]), torch.stack([x[s * T + 1:s * T + T + 1] for s in starts])

    def validate():
        nats = 0.0
        with torch.no_grad(), P.autocast(o["dtype"] == "bf16"):
            for i in range(0, n_val, B):
                some = range(i, min(i + B, n_val))
                if len(some) < B:               # one shape for a compiled model
                    break
                nats += float(model(*batch(val, some)))
        return nats / (n_val // B) / math.log(2) / bytes_per_token

    curve, seconds, warm = [], 0.0, max(1, min(100, o["steps"] // 10))
    for s in range(o["steps"]):
        if len(at) < B:
            at = order.permutation(rows)
        x, y = batch(train, at[:B])
        at = at[B:]
        t0 = time.perf_counter()
        done = (s + 1 - warm) / max(1, o["steps"] - warm)
        rate = o["lr"] * ((s + 1) / warm if s + 1 < warm else 0.1 + 0.45 * (1 + math.cos(math.pi * min(1.0, max(0.0, done)))))
        for g in opt.param_groups:
            g["lr"] = rate
        with P.autocast(o["dtype"] == "bf16"):
            loss = model(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        opt.zero_grad(set_to_none=True)
        seconds += time.perf_counter() - t0
        if (s + 1) % o["every"] == 0 or s + 1 == o["steps"]:
            curve.append(dict(minutes=seconds / 60, tokens=(s + 1) * c["batch"], bits_per_byte=validate()))
            if curve[-1]["bits_per_byte"] <= o["goal"] or seconds / 60 > o["longest"]:
                break
    print(json.dumps(curve))


# ---- both sides -------------------------------------------------------------------------------------
def crossing(curve, goal):
    for i, b in enumerate(curve):
        if b["bits_per_byte"] <= goal:
            a = curve[i - 1] if i else b
            fall = a["bits_per_byte"] - b["bits_per_byte"]
            return a["minutes"] + (b["minutes"] - a["minutes"]) * ((a["bits_per_byte"] - goal) / fall if fall > 0 else 1)
    return math.inf


def run_twin(a, path, seed, recipe, longest=1e9):
    """One curve of the twin, until the goal, the horizon, or `longest` minutes."""
    o = dict(recipe, bitrain=os.path.abspath(a.bitrain), tokens=a.twin_tokens, workload=a.workload, dtype=a.dtype, threads=a.threads * a.ranks,
             seed=seed, file=path, every=a.every, eval_tokens=a.eval_tokens, goal=a.goal, longest=longest)
    out = subprocess.run([a.python, os.path.abspath(__file__), "--twin", json.dumps(o)], capture_output=True, text=True)
    if out.returncode:
        sys.exit("the twin failed: " + out.stderr.strip()[-2000:])
    return json.loads(out.stdout.strip().splitlines()[-1])


def words_of(recipe):
    batch = f"{recipe['batch']} tokens x " if recipe["batch"] else ""
    return f"{recipe['form']}{', compiled' if recipe['compile'] else ''}, {batch}{recipe['steps']} steps, lr {recipe['lr']:g}"


def best_twin(a, path):
    """The recipe that the first seed is best with, and every seed's curve with it."""
    batches = [int(x) for x in a.peer_batch.split(",")] if a.peer_batch else [0]
    recipes = [dict(form=form, compile=compiled, batch=batch, steps=int(steps), lr=float(lr))
               for form in a.forms.split(",") for compiled in ([False, True] if a.compile else [False])
               for batch in batches for steps in a.peer_steps.split(",") for lr in a.lrs.split(",")]
    tried, longest = [], 1e9
    for recipe in recipes:
        curve = run_twin(a, path, 1, recipe, longest)
        tried.append((crossing(curve, a.goal), curve[-1]["bits_per_byte"], recipe, curve))
        longest = min(longest, tried[-1][0])
        print(f"  PyTorch {words_of(recipe)}: {tried[-1][1]:.4f} bits after {curve[-1]['minutes']:.2f} min and {curve[-1]['tokens']} tokens, "
              f"goal after {tried[-1][0]:.2f} min", file=sys.stderr, flush=True)
    _, _, recipe, first = min(tried, key=lambda x: x[:2])
    return dict(recipe=recipe, curves=[first] + [run_twin(a, path, s, recipe) for s in range(2, a.seeds + 1)])


def ours(a):
    cmd = [a.bitrain, "bench", "learn", "--json", "--goal", str(a.goal), "--seeds", str(a.seeds), "--recipe"] + (a.recipe or ["default:"]) + ["--corpus"] + a.corpus
    cmd += ["--with", f"model.preset={a.workload}", f"train.steps={a.steps}", f"train.eval_every={a.every}", f"train.eval_tokens={a.eval_tokens}",
            f"launch.ranks={a.ranks}", f"launch.threads={a.threads}"]
    out = subprocess.run(cmd, capture_output=True, text=True)
    if out.returncode:
        sys.exit("bitrain failed: " + out.stderr.strip()[-2000:])
    return json.loads(out.stdout)


def write_curves(a, mine, everything):
    with open(a.curves, "w") as f:
        f.write(f"# minutes_to.py: bits per byte of validation over minutes of training steps, {a.workload}, {a.ranks} ranks x {a.threads} threads\n")
        for corpus in everything:
            f.write(f"# pytorch on {corpus['corpus']}: {words_of(corpus['peer']['recipe'])}, " +
                    (f"{a.twin_tokens} learned tokens\n" if a.twin_tokens else "bytes\n"))
        for s in mine["summary"]:
            if s["corpus"] == mine["summary"][0]["corpus"]:
                f.write(f"# {s['recipe']}:{s['settings']}\n")
        f.write("recipe\tcorpus\tseed\tminutes\ttokens\tbits_per_byte\n")
        rows = [(r["recipe"], r["corpus"], r["seed"], r["curve"]) for r in mine["runs"]]
        rows += [("pytorch", c["corpus"], seed, curve) for c in everything for seed, curve in enumerate(c["peer"]["curves"], 1)]
        for recipe, corpus, seed, curve in rows:
            for at in curve:
                f.write(f"{recipe}\t{corpus}\t{seed}\t{at['minutes']:.4f}\t{at['tokens']}\t{at['bits_per_byte']:.4f}\n")


def told(minutes):
    if any(math.isinf(m) for m in minutes):
        return math.inf, f"{sum(math.isfinite(m) for m in minutes)} of {len(minutes)} runs"
    mean = statistics.mean(minutes)
    return mean, f"{mean:.2f}" + (f" +- {statistics.stdev(minutes) / math.sqrt(len(minutes)):.2f}" if len(minutes) > 1 else "")


def main():
    a = parse()
    if a.twin:
        twin(json.loads(a.twin))
        return
    if not a.corpus or any("=" not in c for c in a.corpus):
        sys.exit("--corpus NAME=FILE, once for each corpus")
    mine, everything = ours(a), []
    print(f"| corpus | recipe | minutes to {a.goal} bits per byte | x PyTorch |\n|---|---|---|---|")
    for corpus in a.corpus:
        name, path = corpus.split("=", 1)
        peer = best_twin(a, path)
        theirs, words = told([crossing(c, a.goal) for c in peer["curves"]])
        print(f"| {name} | PyTorch, {words_of(peer['recipe'])} | {words} | |", flush=True)
        for s in (s for s in mine["summary"] if s["corpus"] == name):
            runs = [r for r in mine["runs"] if r["corpus"] == name and r["recipe"] == s["recipe"]]
            mean, words = told([crossing(r["curve"], a.goal) for r in runs])
            print(f"| {name} | bitrain, {s['recipe']} | {words} | {theirs / mean:.1f} |" if math.isfinite(mean) and math.isfinite(theirs) else
                  f"| {name} | bitrain, {s['recipe']} | {words} | - |", flush=True)
        everything.append(dict(corpus=name, peer=peer))
    if a.curves:
        write_curves(a, mine, everything)
    if a.json:
        with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(os.path.abspath(a.json)), delete=False) as f:
            json.dump(dict(goal=a.goal, bitrain=mine, peers=everything), f, indent=1)
        os.replace(f.name, a.json)


main()

#!/usr/bin/env python3
"""tune_2b4t.py: low-rank adapters beside a base of the shape of BitNet b1.58 2B4T (or a dense Qwen3-0.6B): memory of the whole job, speed, and
where a step goes.

  tests/bench/tune_2b4t.py --bitrain build/bitrain [--shape 2b4t|base|qwen3-0.6b] [--micro-batch 4] [--steps 3] [--ranks 1] [--threads 2]
                           [--layers N] [--keep FOLDER] [--text chat|plain] [--profile] [--json] [-- WORDS OF bitrain train]

  tests/bench/tune_2b4t.py --shape qwen3-0.6b                                  a dense base, bf16 as the products read it
  tests/bench/tune_2b4t.py --shape qwen3-0.6b -- --set tune.base_type=q8       the same in int8
  tests/bench/tune_2b4t.py --ranks 2 --threads 1                               two ranks, which have one copy of the base

The base has random weights (random_bitnet.py; 4.8 GB in FOLDER, a temporary one unless given, which is made once). A step is one
micro-batch of --micro-batch sequences of 512 tokens, adapters of rank 16 beside all layers, lean, full recompute. Printed:
  memory    of every process that the command starts (supervisor, launcher, ranks): VmHWM, and the largest sum of PSS at one time (shared
            pages count once) with the sum of RSS at that time (they count as often as they are mapped), sampled every 0.2 s; beside it
            what --dry-run plans
  speed     tokens a second of the best and the median step after the first
  profile   with --profile, of a second run: what the best steps spend, by operation, beside the processor's peak (train.profile, which
            takes some 190 MiB to measure that peak: not while memory is watched)
Quiet machine for the speed; memory does not depend on it.
"""
import argparse
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def chat(path, plain):
    words = "sun moon star river stone cloud tree wind fire snow leaf sand rain hill lake".split()
    with open(path, "w", encoding="utf-8") as f:
        for i in range(4000):
            w = [words[(i * k + k * k) % len(words)] for k in range(1, 9)]
            ask, say = "say again: " + " ".join(w[:6]), " ".join(reversed(w))
            f.write(json.dumps({"text": ask + " " + say} if plain else {"messages": [{"role": "user", "content": ask}, {"role": "assistant", "content": say}]}) + "\n")


def children(pid):
    found, left = [], [pid]
    while left:
        p = left.pop()
        found.append(p)
        try:
            for task in os.listdir(f"/proc/{p}/task"):
                with open(f"/proc/{p}/task/{task}/children", encoding="ascii") as f:
                    left += [int(x) for x in f.read().split()]
        except OSError:
            pass
    return found


def number(path, key):
    """KiB behind a key; 0: it is not there any more"""
    try:
        with open(path, encoding="utf-8") as f:
            for line in f:
                if line.startswith(key):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0


def watch(run):
    """largest sum of PSS in MiB, with the sum of RSS at that time; VmHWM in MiB by process"""
    largest, resident, own = 0, 0, {}
    while run.poll() is None:
        total, mapped = 0, 0
        for pid in children(run.pid):
            total += number(f"/proc/{pid}/smaps_rollup", "Pss:")
            mapped += number(f"/proc/{pid}/smaps_rollup", "Rss:")
            high = number(f"/proc/{pid}/status", "VmHWM:")
            if high:
                try:
                    with open(f"/proc/{pid}/cmdline", "rb") as f:
                        name = b" ".join(f.read().split(b"\0")[:2]).decode()
                except OSError:
                    continue
                own[pid] = (os.path.basename(name.split(" ")[0]) + " " + (name.split(" ") + [""])[1][:12], high / 1024)
        if total / 1024 > largest:
            largest, resident = total / 1024, mapped / 1024
        time.sleep(0.2)
    return largest, resident, own


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--bitrain", default="build/bitrain")
    p.add_argument("--micro-batch", type=int, default=4)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--ranks", type=int, default=1)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--shape", choices=("2b4t", "base", "qwen3-0.6b"), default="2b4t")
    p.add_argument("--layers", type=int, help="default: the shape's")
    p.add_argument("--keep", help="folder of the base")
    p.add_argument("--text", choices=("chat", "plain"), default="chat", help="loss on answers, or on every token")
    p.add_argument("--profile", action="store_true")
    p.add_argument("--json", action="store_true")
    p.add_argument("words", nargs="*", help="of bitrain train")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base = os.path.join(a.keep or folder, f"base-{a.shape}-{a.layers or 'all'}")
        os.makedirs(os.path.dirname(base), exist_ok=True)
        if not os.path.exists(os.path.join(base, "config.json")):
            subprocess.run([sys.executable, os.path.join(HERE, "random_bitnet.py"), base, "--shape", a.shape, *(["--layers", str(a.layers)] if a.layers else [])], check=True, stdout=sys.stderr)
        data, db = os.path.join(folder, "chat.jsonl"), os.path.join(folder, "t.db")
        chat(data, a.text == "plain")
        tokens = a.micro_batch * 512 * a.ranks
        cmd = [os.path.abspath(a.bitrain), "train", "--init-from", base, "--tune", "lora", "--data", data, "--form", "completion" if a.text == "plain" else "messages",
               "--seq-len", "512", "--micro-batch", str(a.micro_batch), "--batch-tokens", str(tokens), "--recompute", "full", "--ranks", str(a.ranks),
               "--threads", str(a.threads), "--steps", str(a.steps), "--eval-every", "1000000", "--set", "data.val_frac=0", "--set", "tune.lean=true",
               "--set", "ckpt.async=false", "--set", "ckpt.memory=off", "--set", "ckpt.final=false", "--set", "train.distributions=0", *a.words]
        plan = subprocess.run([*cmd, "--dry-run", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder)
        if plan.returncode != 0:
            sys.exit(f"{' '.join(cmd)} --dry-run: {plan.stderr.strip()}")
        planned = json.loads(plan.stdout.strip().splitlines()[-1])
        with open(os.path.join(folder, "said"), "w+", encoding="utf-8") as said:
            start = time.time()
            run = subprocess.Popen([*cmd, "--name", "t", "--store", db, "--quiet"], stdout=said, stderr=subprocess.STDOUT, cwd=folder)
            largest, resident, own = watch(run)
            took = time.time() - start
            said.seek(0)
            text = said.read()
        if run.returncode != 0:
            sys.exit(f"{' '.join(cmd)}: exit {run.returncode}: {text[-2000:]}")
        if a.profile:
            subprocess.run([*cmd, "--profile", "--name", "p", "--store", db, "--quiet"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, cwd=folder)
        store = sqlite3.connect(db)
        steps = [r[0] / 1e3 for r in store.execute("SELECT step_ms FROM steps WHERE run = 't' ORDER BY step")][1:] or [float("nan")]
        counted = store.execute("SELECT avg(counted) FROM steps WHERE run = 't'").fetchone()[0]
        profile = [r[0] for r in store.execute("SELECT title FROM events WHERE kind = 'profile' ORDER BY seq")]
        ranks = planned["ranks"]
        out = {"pss_mib": largest, "rss_mib": resident, "vmhwm_mib": {f"{pid} {name}": mib for pid, (name, mib) in own.items()}, "planned_mib": [r["bytes"] / 2**20 for r in ranks],
               "tokens": tokens, "counted": counted, "step_s": steps, "tokens_per_s": tokens / min(steps), "tokens_per_s_median": tokens / statistics.median(steps),
               "whole_run_s": took, "profile": profile}
        if a.json:
            print(json.dumps(out))
            return
        print(f"memory: {largest:.0f} MiB of PSS at most, all processes (RSS {resident:.0f}); a rank is planned {max(out['planned_mib']):.0f}")
        for name, mib in out["vmhwm_mib"].items():
            print(f"  {mib:8.0f} MiB VmHWM  {name}")
        print(f"  {sum(out['vmhwm_mib'].values()):8.0f} MiB VmHWM  sum")
        print(f"speed: {out['tokens_per_s']:.1f} tokens/s best, {out['tokens_per_s_median']:.1f} median of {len(steps)} steps of {tokens} tokens, {counted or 0:.0f} of them counted")
        if a.profile:
            print("\n".join(profile) or text)


main()

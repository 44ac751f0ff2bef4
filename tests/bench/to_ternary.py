#!/usr/bin/env python3
"""to_ternary.py: held-out loss of a dense model of Qwen3's shape that becomes ternary in several ways: at once, by lambda, with the logits of the
dense model as a teacher, and with its logits and attention relations.

  tests/bench/to_ternary.py [--bitrain build/bitrain] [--seeds 3] [--base-steps 2000] [--steps 200] [--lr 1e-3] [--only REGEX] [--json]

Each seed has a dense base of its own: 3 layers, 64 wide, 4 heads and 2 kv heads with QK-norm, pre-norm, SiLU, tied embeddings, bytes, trained on
the built-in text. All conversions have equal steps of 2,048 tokens of that text at equal rates; the last tenth of the text is held out.
Printed: bits per byte of the held-out text at the end, mean and (each seed), and the mean difference from "at once". No value depends on time.
"""
import argparse
import json
import math
import re
import statistics
import sys
import tempfile

from tune_seeds import Trainings

SHAPE = ["--preset", "nano", "--set", "model.layers=3", "--set", "model.d_model=64", "--set", "model.heads=4", "--set", "model.kv_heads=2",
         "--set", "model.d_ff=192", "--set", "model.norm=pre", "--set", "model.act=silu", "--set", "model.qk_norm=true", "--set", "model.tied=true",
         "--tokenizer", "bytes", "--seq-len", "256"]
WORK = ["--data", "builtin", "--set", "data.val_frac=0.1", "--set", "train.eval_tokens=65536", "--batch-tokens", "2048", "--micro-batch", "8",
        "--ranks", "1", "--threads", "1", "--lr-schedule", "cosine", "--warmup", "10", "--eval-every", "1000000", "--set", "train.distributions=0",
        "--set", "ckpt.memory=off", "--quiet"]
LOGITS = ["--teacher", "{dense}", "--set", "tune.mix=0.9"]
HALF = ["--teacher", "{dense}", "--set", "tune.mix=0.5"]
RELATION = [*LOGITS, "--set", "tune.relation=1"]
LAMBDA = ["--set", "train.lambda_steps={tenth}"]
NORMS = ["--set", "model.norm=subln"]
WAYS = {
    "at once": [],
    "lambda, a tenth of the steps": LAMBDA,
    "lambda, half of the steps": ["--set", "train.lambda_steps={half}"],
    "logits": LOGITS,
    "logits, relations of layer 3": RELATION,
    "logits, relations of layer 2": [*RELATION, "--set", "tune.relation_layer=2"],
    "logits, lambda": [*LOGITS, *LAMBDA],
    "logits with mix 0.5, lambda": [*HALF, *LAMBDA],
    "logits with mix 0.5, relations of layer 2, lambda": [*HALF, "--set", "tune.relation=1", "--set", "tune.relation_layer=2", *LAMBDA],
    "sub-norms": NORMS,
    "sub-norms, logits, relations of layer 2": [*NORMS, *RELATION, "--set", "tune.relation_layer=2"],
}


class Bench(Trainings):
    def train(self, name, *words):
        """Returns the bits per byte of the held-out text at the end."""
        return super().train(name, *words) / math.log(2)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--bitrain", default="build/bitrain")
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--base-steps", type=int, default=2000)
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--lr", default="1e-3")
    p.add_argument("--only", default="", help="only ways whose name matches this regular expression")
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    found = {}

    def record(name, value):
        found.setdefault(name, []).append(value)
        print(f"{name}: {value:.4f}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        b = Bench(a.bitrain, folder, WORK)
        for seed in range(1, a.seeds + 1):
            own, dense = ["--seed", str(seed)], f"dense{seed}"
            record("the dense base", b.train(dense, *SHAPE, *own, "--set", "model.linear=dense", "--steps", str(a.base_steps), "--lr", "3e-3"))
            on = ["--init-from", dense, *own, "--steps", str(a.steps), "--lr", a.lr]
            if not a.only:
                record("the base, as many steps more", b.train(f"more{seed}", *on))
            for i, (name, words) in enumerate(WAYS.items()):
                words = [w.format(dense=dense, tenth=a.steps // 10, half=a.steps // 2) for w in words]
                if re.search(a.only, name):
                    record(name, b.train(f"way{i}-{seed}", *on, "--set", "model.linear=bitnet158", *words))
    if a.json:
        print(json.dumps(found))
        return
    print("| conversion | bits per byte, held out | from \"at once\" |\n|---|---|---|")
    for name, values in found.items():
        gap = [v - w for v, w in zip(values, found.get("at once", []))] if name in WAYS else []
        print(f"| {name} | {statistics.mean(values):.4f} ({', '.join(f'{v:.4f}' for v in values)}) | {f'{statistics.mean(gap):+.4f}' if gap else ''} |")


main()

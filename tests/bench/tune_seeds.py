#!/usr/bin/env python3
"""tune_seeds.py: what modes of fine-tuning end with, over several seeds: the way from 16 to 1.58 bits with lambda and without, supervised
fine-tuning of all weights and of adapters, and distillation beside the same run without a teacher.

  tests/bench/tune_seeds.py [--bitrain build/bitrain] [--seeds 3] [--steps 100] [--json]

Each seed has models of its own (2 layers, 64 wide, bytes): a dense one of 200 steps of chats, which is what is converted and the teacher, and a
ternary one of 100 steps of the built-in text, which is what is fine-tuned. Chats are made up (reversed, repeated, sorted words); a tenth is held
out. A step has 2,048 tokens; rates are 1e-3, of adapters 5e-3; cosine. Printed, in nats a learned token: the worst loss of the first ten
steps, and the loss held out at the end, mean and (each seed). Small runs: no clock in them, any load will do.
"""
import argparse
import json
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile

SHAPE = ["--set", "model.layers=2", "--set", "model.d_model=64", "--set", "model.heads=2", "--set", "model.kv_heads=2", "--set", "model.d_ff=192"]
WORK = ["--batch-tokens", "2048", "--micro-batch", "4", "--ranks", "1", "--threads", "1", "--lr-schedule", "cosine", "--warmup", "5", "--eval-every", "1000000",
        "--set", "train.distributions=0", "--set", "ckpt.memory=off", "--quiet"]
WORDS = "sun moon star river stone cloud tree wind fire snow leaf sand rain hill lake bird".split()


def chats(path):
    r = random.Random(1)
    how = [("reverse", lambda w: w[::-1]), ("repeat", lambda w: w), ("sort", sorted), ("first of", lambda w: w[:1]), ("last of", lambda w: w[-1:])]
    with open(path, "w", encoding="utf-8") as f:
        for _ in range(3000):
            words = r.sample(WORDS, r.randint(2, 4))
            name, do = r.choice(how)
            f.write(json.dumps({"messages": [{"role": "user", "content": name + " " + " ".join(words)}, {"role": "assistant", "content": " ".join(do(words))}]}) + "\n")


class Trainings:
    """Trainings in one folder, with one store."""

    def __init__(self, bitrain, folder, words):
        """words: options of every training"""
        self.bitrain, self.folder, self.words, self.db = os.path.abspath(bitrain), folder, words, os.path.join(folder, "s.db")

    def train(self, name, *words):
        """Runs a training to its end; returns its last validation loss in nats."""
        cmd = [self.bitrain, "train", *self.words, "--store", self.db, "--name", name, *words]
        run = subprocess.run(cmd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=self.folder)
        if run.returncode != 0:
            sys.exit(f"{' '.join(cmd)}: {run.stderr.strip()}")
        return self.number("SELECT val_loss FROM steps WHERE run = ? AND val_loss IS NOT NULL ORDER BY step DESC LIMIT 1", name)

    def number(self, query, name):
        return sqlite3.connect(self.db).execute(query, (name,)).fetchone()[0]


class Bench(Trainings):
    def train(self, name, *words):
        """Returns the largest of the first ten losses, and the last validation loss."""
        end = super().train(name, *words)
        return self.number("SELECT max(loss) FROM steps WHERE run = ? AND step < 10", name), end


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--bitrain", default="build/bitrain")
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--steps", type=int, default=100)
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        b = Bench(a.bitrain, folder, WORK)
        chats(os.path.join(folder, "chats.jsonl"))
        data = ["--data", "chats.jsonl", "--form", "messages", "--set", "data.val_frac=0.1"]
        for seed in range(1, a.seeds + 1):
            own = ["--seed", str(seed)]
            new = ["--preset", "nano", *SHAPE, "--seq-len", "256", "--tokenizer", "bytes", *own]
            dense, base = f"dense{seed}", f"base{seed}"
            b.train(dense, *new, *data, "--set", "model.linear=dense", "--steps", "200", "--lr", "3e-3")
            b.train(base, *new, "--steps", "100", "--lr", "3e-3", "--data", "builtin")
            on, steps = [*data, *own], ["--steps", str(a.steps)]
            convert = ["--init-from", dense, "--set", "model.linear=bitnet158", "--lr", "1e-3", *steps, *on]
            tune = ["--init-from", base, *steps, *on]
            for name, words in (("convert, at once", convert), ("convert, lambda_steps 10", [*convert, "--set", "train.lambda_steps=10"]),
                                ("convert, lambda_steps 50", [*convert, "--set", "train.lambda_steps=50"]), ("sft, all weights", [*tune, "--lr", "1e-3"]),
                                ("sft, adapters of rank 8", [*tune, "--tune", "lora", "--set", "tune.rank=8", "--lr", "5e-3"]),
                                ("distillation, mix 0.5", [*tune, "--lr", "1e-3", "--teacher", dense]),
                                ("distillation, mix 0.9", [*tune, "--lr", "1e-3", "--teacher", dense, "--set", "tune.mix=0.9"])):
                found.setdefault(name, []).append(b.train(f"{name.replace(', ', '-').replace(' ', '-').replace('_', '-')}-{seed}", *words))
    if a.json:
        print(json.dumps(found))
        return
    print("| | worst loss of the first ten steps | held out at the end |\n|---|---|---|")
    for name, rows in found.items():
        cells = [f"{statistics.mean(x):.3f} ({', '.join(f'{v:.3f}' for v in x)})" for x in zip(*rows)]
        print(f"| {name} | {cells[0]} | {cells[1]} |")


if __name__ == "__main__":
    main()

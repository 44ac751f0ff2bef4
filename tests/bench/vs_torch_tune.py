#!/usr/bin/env python3
"""vs_torch_tune.py: every mode of fine-tuning beside its PyTorch twin, from the same weights, over the same batches, in fp32.

  tests/bench/vs_torch_tune.py --python PYTHON [--dir FOLDER] [--steps 100] [--seeds 1] [MODE ...]

PYTHON has torch, numpy and safetensors. The twin (peer_tune.py) makes data and start weights, trains each mode and writes its losses;
bitrain reads the same files: rows in the order of the file, a constant learning rate, held out are the last eight rows. A line of the table
has the losses of steps 1 and 2, the worst relative difference of steps 3 to 10, the mean of the last five and the loss held out. Codes of
ternary layers turn at rounding noise, so that from step 3 on two summation orders part; `dense` has no rounding. With --seeds N both start
from N weights that differ by 1e-6 relative, and what is held out is the mean over them with its standard error: how far rounding alone
carries a run. A mode holds where steps 1 and 2 agree to 1e-5 relative (dense: all ten to 1e-4) and the end is within 2 %."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
MODES = ["dense", "sft", "lora", "dpo", "orpo", "simpo", "convert", "distil", "distil_topk", "classify"]
TWIN = dict(lora="lora_int8", dpo="dpo_int8", orpo="orpo_int8", simpo="simpo_int8")   # what our adapters read
LR = dict(lora=2e-3, dpo=5e-4, orpo=5e-4, simpo=5e-4)
PAIRS = ("dpo", "orpo", "simpo")
ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("modes", nargs="*", default=MODES)
ap.add_argument("--python", default=sys.executable)
ap.add_argument("--bitrain", default="build/bitrain")
ap.add_argument("--dir", default="", help="kept, and the twin's results in it are used again")
ap.add_argument("--steps", type=int, default=100)
ap.add_argument("--seeds", type=int, default=1)
ap.add_argument("--isa", default="auto")
OPT = ap.parse_args()


def folder_of(model, out):
    """A folder as Hugging Face has it of one of the twin's files."""
    path = os.path.join(out, "hf_" + model)
    os.makedirs(path, exist_ok=True)
    config = json.load(open(os.path.join(out, "config.json")))
    config["architectures"] = ["BitNetForCausalLM"]
    if model == "base":
        config["quantization_config"] = dict(quant_method="bitnet", linear_class="autobitlinear", quantization_mode="online")
    json.dump(config, open(os.path.join(path, "config.json"), "w"))
    target = os.path.join(path, "model.safetensors")
    if not os.path.exists(target):
        os.link(os.path.join(out, model + ".safetensors"), target)
    return path


def bitrain(out, *words, capture=False):
    env = dict(os.environ, BITRAIN_STORE=os.path.join(out, "runs.db"), XDG_DATA_HOME=os.path.join(out, "xdg"))
    p = subprocess.run([OPT.bitrain, *words], env=env, text=True, capture_output=True)
    if p.returncode:
        sys.exit("bitrain %s\n%s%s" % (" ".join(words), p.stdout[-2000:], p.stderr[-2000:]))
    return p.stdout


def query(out, sql):
    rows = bitrain(out, "query", "--csv", sql).splitlines()[1:]
    return [[float(x.strip('"')) if x.strip('"') not in ("", "null") else None for x in r.split(",")] for r in rows]


def ours(mode, out):
    data = "preference" if mode in PAIRS else "labels" if mode == "classify" else "messages"
    texts = 16 if mode == "classify" else 8
    name = "%s-%d" % (mode, os.getpid())
    words = ["train", "--name", name, "--ranks", "1", "--threads", "1", "--isa", OPT.isa, "--precision", "fp32", "--steps", str(OPT.steps),
             "--seq-len", "256", "--batch-tokens", str(256 * texts), "--micro-batch", str(texts), "--eval-every", str(OPT.steps),
             "--data", os.path.join(out, "train_%s.jsonl" % data), "--lr", str(LR.get(mode, 1e-3)), "--lr-schedule", "constant",
             "--warmup", "0", "--tokenizer", "bytes", "--init-from", folder_of("dense" if mode in ("dense", "convert") else "base", out)]
    keys = {"train.grad": "float", "data.val_path": os.path.join(out, "held_%s.jsonl" % data), "data.shuffle": "false",
            "train.eval_tokens": "2048", "train.stats_every": "1", "train.spike_limit": "0",
            "data.form": dict(preference="preference", labels="label", messages="messages")[data],
            "data.packing": "documents" if data == "messages" else "pad"}
    if mode in PAIRS:
        keys.update({"tune.preference": mode, "tune.beta": "2" if mode == "simpo" else "0.1", "tune.gamma": "0.5"})
    if mode == "lora" or mode in PAIRS:
        keys.update({"tune.mode": "lora", "tune.rank": "8", "tune.alpha": "16", "optim.weight_decay": "0", "tune.adapters": os.path.join(out, "adapters")})
    if mode == "convert":
        keys.update({"model.linear": "bitnet158", "train.lambda_steps": "10"})
    if mode.startswith("distil"):
        keys.update({"tune.temperature": "2", "tune.mix": "0.5"})
    if mode == "distil":
        keys["tune.teacher"] = folder_of("dense", out)
    if mode == "distil_topk":
        logits = os.path.join(out, "topk.btl")
        if not os.path.exists(logits):
            bitrain(out, "train", "--name", name + "-teacher", "--precision", "fp32", "--ranks", "1", "--threads", "1", "--steps", "1", "--lr", "1e-30", "--warmup", "0",
                    "--seq-len", "256", "--batch-tokens", "2048", "--data", os.path.join(out, "train_messages.jsonl"), "--set", "data.form=messages",
                    "--tokenizer", "bytes", "--init-from", folder_of("dense", out))     # a checkpoint of the same weights, with their tokenizer
            bitrain(out, "eval", name + "-teacher", "--data", os.path.join(out, "train_messages.jsonl"), "--form", "messages",
                    "--logits", logits, "--top-k", "16")
        keys["tune.logits"] = logits
    for k, v in keys.items():
        words += ["--set", "%s=%s" % (k, v)]
    bitrain(out, *words)
    losses = [r[1] for r in query(out, "SELECT step, printf('%%.9g', loss) FROM steps WHERE run='%s' ORDER BY step" % name)]
    held = query(out, "SELECT printf('%%.9g', val_loss) FROM steps WHERE run='%s' AND val_loss IS NOT NULL ORDER BY step DESC LIMIT 1" % name)
    return losses, held[0][0]


def theirs(mode, out):
    twin = TWIN.get(mode, mode)
    path = os.path.join(out, "losses.json")
    found = json.load(open(path)) if os.path.exists(path) else {}
    if twin not in found or found.get("options", {}).get("steps") != OPT.steps:
        subprocess.run([OPT.python, os.path.join(HERE, "peer_tune.py"), "--dir", out, "--steps", str(OPT.steps), twin], check=True,
                       stdout=subprocess.DEVNULL)
        found = json.load(open(path))
    r = found[twin]
    return r["first"], r["last5"], r["held_out"]


NUDGE = """import sys, torch
from safetensors.torch import load_file, save_file
torch.manual_seed(int(sys.argv[3]))
save_file({n: t * (1 + 1e-6 * torch.randn(t.shape)) for n, t in load_file(sys.argv[1]).items()}, sys.argv[2], metadata={"format": "pt"})
"""


def start(out, seed):
    """The folder of a seed: start weights of its own."""
    if not os.path.exists(os.path.join(out, "config.json")):
        subprocess.run([OPT.python, os.path.join(HERE, "peer_tune.py"), "--dir", out, "data"], check=True, stdout=subprocess.DEVNULL)
    if seed == 0:
        return out
    folder = os.path.join(out, "seed%d" % seed)
    os.makedirs(folder, exist_ok=True)
    for model in ("base", "dense"):
        path = os.path.join(folder, model + ".safetensors")
        if not os.path.exists(path):
            subprocess.run([OPT.python, "-c", NUDGE, os.path.join(out, model + ".safetensors"), path, str(seed)], check=True)
    return start(folder, 0)


def mean_of(x):
    return statistics.mean(x), statistics.stdev(x) / len(x) ** 0.5 if len(x) > 1 else 0


def main():
    out = os.path.abspath(OPT.dir) if OPT.dir else tempfile.mkdtemp()
    bad = 0
    print("%-12s %19s %19s %9s %17s %17s %8s" % ("mode", "step 1", "step 2", "3 to 10", "last five", "held out", "apart"))
    for mode in OPT.modes:
        runs = []
        for seed in range(OPT.seeds):
            folder = start(out, seed)
            runs.append((theirs(mode, folder), ours(mode, folder)))
        (first, last5, _), (a, _) = runs[0]
        far = [abs(x / y - 1) for x, y in zip(a, first)]
        held, error = mean_of([r[0][2] for r in runs])
        held_a, error_a = mean_of([r[1][1] for r in runs])
        apart = held_a / held - 1
        good = max(far[:2]) <= 1e-5 and abs(apart) <= 0.02 and (mode != "dense" or max(far[:10]) <= 1e-4)
        bad += not good
        print("%-12s %9.6f %9.6f %9.6f %9.6f %9.1e %8.4f %8.4f %8.4f %8.4f %+7.2f %%%s" % (
            mode, a[0], first[0], a[1], first[1], max(far[2:10]), statistics.mean(a[-5:]), last5, held_a, held, 100 * apart,
            (" (standard errors %.4f, %.4f)" % (error_a, error) if OPT.seeds > 1 else "") + ("" if good else "  OUTSIDE")),
            flush=True)
    print("ours, then the twin's; steps 1 and 2 to 1e-5, held out to 2 %%: %s" % ("all" if not bad else "%d outside" % bad))
    return bad > 0


sys.exit(main())

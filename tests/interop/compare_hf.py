"""compare_hf.py - compares outputs of transformers and our reader on the same Hugging Face folders; prints rows of a table.

    compare_hf.py LOG_PROBS TEXTS FOLDER...       LOG_PROBS: the program tests/interop/log_probs; TEXTS: hostile_tokens.json

Fails above the bound: 1e-4 where nothing is rounded, the median of the prompts where activations are rounded to int8 (a tie that falls the other way
costs up to 0.1).
"""
import json, os, random, shutil, statistics, subprocess, sys, tempfile
os.environ.setdefault("TORCH_COMPILE_DISABLE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TQDM_DISABLE", "1")
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.integrations.bitnet import BitLinear

BOUND = 1e-4

def ours(program, folder, text, *how):
    out = subprocess.run([program, folder, *how], input=text, capture_output=True, text=True)
    if out.returncode: sys.exit(out.stderr)
    return out.stdout.strip()

# The classes of packed weights compute in the type of the folder, whatever is asked for: a copy that says fp32.
def in_fp32(folder, copies):
    config = json.load(open(os.path.join(folder, "config.json")))
    if config.get("quantization_config", {}).get("quantization_mode", "offline" if "quantization_config" in config else "") != "offline": return folder
    copy = os.path.join(copies, os.path.basename(os.path.normpath(folder)))
    shutil.copytree(folder, copy)
    config["dtype"] = config["torch_dtype"] = "float32"
    os.unlink(os.path.join(copy, "config.json"))
    json.dump(config, open(os.path.join(copy, "config.json"), "w"))
    return copy

# Its classes have one weight_scale, by which they multiply or divide outputs: that of a row, if the folder has them.
def scales_of_rows(m, folder):
    stored = {}
    for f in os.listdir(folder):
        if f.endswith(".safetensors"): stored.update(load_file(os.path.join(folder, f)))
    for name, t in stored.items():
        if name.endswith(".weight_scale") and t.numel() > 1: m.get_submodule(name.removesuffix(".weight_scale")).weight_scale.data = t.float()

# Floats of which each row, or each group of 64 inputs, is ternary: a BitNet model, whose linear layers round their inputs as those of packed weights.
def round_inputs(m):
    layers = [l for name, l in m.named_modules() if name.endswith("_proj") and isinstance(l, torch.nn.Linear)]
    ternary = lambda w: ((w == 0) | (w == w.amax(1, keepdim=True))).all()
    for l in layers:
        w = l.weight.abs()
        if not ternary(w) and not (w.shape[1] % 64 == 0 and ternary(w.reshape(-1, 64))): return False
    quantised = lambda x: (lambda q, scale: (q / scale,))(*BitLinear.activation_quant(None, x))
    for l in layers: l.register_forward_pre_hook(lambda _, args: quantised(args[0]))
    return True

def compare(program, texts, folder):
    with tempfile.TemporaryDirectory() as copies:
        m = AutoModelForCausalLM.from_pretrained(in_fp32(folder, copies), dtype=torch.float32, attn_implementation="eager", ignore_mismatched_sizes=True).eval()
    for t in [*m.parameters(), *m.buffers()]:           # codes that were unpacked as bf16, where they are exact
        if t.dtype == torch.bfloat16: t.data = t.data.float()
    rounds = getattr(m.config, "quantization_config", None) is not None
    if rounds: scales_of_rows(m, folder)
    else: rounds = round_inputs(m)
    r, worst = random.Random(1), []
    for n in (1, 3, 17, 64):
        ids = [r.randrange(min(256, m.config.vocab_size)) for _ in range(n)]
        with torch.no_grad(): want = m(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
        said = torch.tensor(json.loads(ours(program, folder, " ".join(map(str, ids))))["log_probs"])
        worst.append(float((want - said).abs().max()))
    figure = statistics.median_low(worst) if rounds else max(worst)
    tokens, same = "no tokenizer", True
    if os.path.exists(os.path.join(folder, "tokenizer.json")):
        tok = AutoTokenizer.from_pretrained(folder)
        lines = ours(program, folder, "\0".join(texts), "--encode").split("\n")
        right = sum(tok(t, add_special_tokens=False)["input_ids"] == json.loads(line) for t, line in zip(texts, lines))
        tokens, same = f"{right} of {len(texts)}", right == len(texts)
    ok = figure < BOUND and same
    name = "/".join(os.path.normpath(folder).split("/")[-2:])
    print(f"| {name} | transformers, {type(m).__name__} | {figure:.2g}{' (median)' if rounds else ''} | {BOUND:g} | {tokens} | {'yes' if ok else 'NO'} |", flush=True)
    return ok

def main():
    program, hostile, folders, failed = sys.argv[1], sys.argv[2], sys.argv[3:], False
    texts = json.load(open(hostile))["texts"]
    for folder in folders:
        try:
            failed |= not compare(program, texts, folder)
        except Exception as e:                          # the remaining folders are still compared
            print(f"| {folder} | transformers | {str(e)[:80]} | {BOUND:g} | | NO |", flush=True)
            failed = True
    sys.exit(1 if failed else 0)

main()

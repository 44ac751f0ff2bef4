"""judge_hf.py - folders of Hugging Face in transformers against what our reader says of the same folder.

    judge_hf.py LOG_PROBS FOLDER...       LOG_PROBS: the program tests/interop/log_probs

Prints the largest difference of log probabilities per folder and fails above the bound: 1e-4 where nothing is rounded, the
median of the prompts where activations are rounded to int8 (a tie that falls the other way costs up to 0.1).
"""
import json, os, random, statistics, subprocess, sys
os.environ.setdefault("TORCH_COMPILE_DISABLE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

BOUND = 1e-4
TEXTS = ["In the beginning God created the heaven and the earth.", "don't  stop\n\n 1234 \u00e9\u4e2d\u6587 \U0001f600 x\u0301", "  "]

def ours(program, folder, ids):
    out = subprocess.run([program, folder], input=" ".join(map(str, ids)), capture_output=True, text=True)
    if out.returncode: sys.exit(out.stderr)
    return torch.tensor(json.loads(out.stdout)["log_probs"])

def main():
    program, folders, failed = sys.argv[1], sys.argv[2:], False
    for folder in folders:
        m = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        tok = AutoTokenizer.from_pretrained(folder)
        r, worst = random.Random(1), []
        for n in (1, 3, 17, 64):
            ids = [r.randrange(len(tok)) for _ in range(n)]
            with torch.no_grad(): want = m(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
            worst.append(float((want - ours(program, folder, ids)).abs().max()))
        rounds = getattr(m.config, "quantization_config", None) is not None
        figure = statistics.median_low(worst) if rounds else max(worst)
        same = all(tok(t, add_special_tokens=False)["input_ids"] == json.loads(subprocess.run(
            [program, folder, "--encode"], input=t, capture_output=True, text=True, check=True).stdout) for t in TEXTS)
        print(f"{folder}: {type(m).__name__}, log probabilities differ by {figure:.2g} ({' '.join(f'{w:.2g}' for w in worst)}), "
              f"tokens {'the same' if same else 'DIFFER'}")
        failed |= not (figure < BOUND and same)
    sys.exit(1 if failed else 0)

main()

#!/usr/bin/env python3
"""Tiny random models of the architectures that bitrain reads, as folders of Hugging Face with the logits of transformers.

    make_architectures.py OUT                 one folder OUT/NAME/hf for each row of MODELS (compare_models.sh)
    make_architectures.py --golden OUT        OUT/qwen2/hf and OUT/qwen2/variants.json for the unit tests (tests/engine/interop/golden)

Needs torch and transformers 5. variants.json: the logits of the last position of each prompt for each variant of config.json over the same weights.
"""
import copy, json, os, shutil, sys
os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
from transformers import AutoConfig, AutoModelForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENIZER = os.path.join(HERE, "../engine/interop/golden/tokenizer-320.json")
SIZES = dict(vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=256, bos_token_id=256, eos_token_id=256, tie_word_embeddings=False)
def rope(kind="default", theta=10000.0, **more): return dict(rope_type=kind, rope_theta=theta, **more)
LLAMA3 = rope("llama3", 500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
YARN = rope("yarn", factor=4.0, original_max_position_embeddings=32)
# contexts are short, so that prompts of 64 tokens are longer; judges of GGUF know the published context 8192
MODELS = {
    "llama-llama3": ("llama", dict(rope_parameters=dict(LLAMA3, original_max_position_embeddings=8192), max_position_embeddings=65536)),
    "llama-linear": ("llama", dict(rope_parameters=rope("linear", factor=3.0))),
    "llama-yarn": ("llama", dict(rope_parameters=YARN)),
    "qwen2": ("qwen2", dict(rope_parameters=rope())),
    "qwen2-tied": ("qwen2", dict(rope_parameters=rope(theta=1000000.0), tie_word_embeddings=True)),
    "qwen2-yarn": ("qwen2", dict(rope_parameters=YARN)),
    "qwen3-yarn": ("qwen3", dict(rope_parameters=YARN, head_dim=32)),
}
VARIANTS = {
    "plain": rope(), "linear": rope("linear", factor=3.0), "llama3": LLAMA3, "yarn": YARN,
    "yarn, all its settings": rope("yarn", 50000.0, factor=6.0, original_max_position_embeddings=24, beta_fast=16.0, beta_slow=2.0, attention_factor=0.7),
    "yarn of DeepSeek": rope("yarn", factor=8.0, original_max_position_embeddings=32, mscale=1.0, mscale_all_dim=0.5),
}

def make(kind, members, sizes, seed):
    torch.manual_seed(seed)
    m = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**sizes, **members})).float().eval()
    gen = torch.Generator().manual_seed(seed)
    for name, p in sorted(m.named_parameters()):
        if "norm" in name: p.data = torch.rand(p.shape, generator=gen) + 0.5
        elif p.ndim == 1: p.data = torch.randn(p.shape, generator=gen)                          # a bias
        else: p.data = torch.randn(p.shape, generator=gen) * (0.15 if "embed" in name or "head" in name else 1.5 / p.shape[1] ** 0.5)
    return m

# transformers reads the tokenizer of every Qwen2 folder by its own class, with this pattern and NFC
QWEN2_PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

def save(m, folder, tokenizer=True):
    shutil.rmtree(folder, ignore_errors=True)
    m.save_pretrained(folder)
    if not tokenizer: return
    tok = json.load(open(TOKENIZER))
    if m.config.model_type == "qwen2":
        tok["normalizer"] = {"type": "NFC"}
        tok["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": QWEN2_PATTERN}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}
    json.dump(tok, open(os.path.join(folder, "tokenizer.json"), "w"))
    json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>", "clean_up_tokenization_spaces": False},
              open(os.path.join(folder, "tokenizer_config.json"), "w"))

def prompts():
    gen = torch.Generator().manual_seed(3)
    return [torch.randint(0, 256, (n,), generator=gen).tolist() for n in (5, 64)]

def golden(out):
    small = {**SIZES, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "num_key_value_heads": 1}
    m = make("qwen2", dict(rope_parameters=rope()), small, 7)
    save(m, os.path.join(out, "qwen2/hf"), tokenizer=False)
    rows = []
    for name, scaling in VARIANTS.items():
        config = copy.deepcopy(m.config); config.rope_parameters = scaling
        v = AutoModelForCausalLM.from_config(config).float().eval()
        v.load_state_dict(m.state_dict())
        said = []
        for ids in prompts():
            with torch.no_grad(): y = v(torch.tensor([ids])).logits[0, -1]
            said.append({"ids": ids, "logits": [float(f"{x:.7g}") for x in y.tolist()]})
        rows.append({"name": name, "rope_parameters": scaling, "prompts": said})
    with open(os.path.join(out, "qwen2/variants.json"), "w") as f: json.dump(rows, f, separators=(",", ":"))

def main():
    if sys.argv[1] == "--golden": return golden(sys.argv[2])
    for seed, (name, (kind, members)) in enumerate(MODELS.items()):
        save(make(kind, members, SIZES, seed), os.path.join(sys.argv[1], name, "hf"))

if __name__ == "__main__":
    main()

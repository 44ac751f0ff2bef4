#!/usr/bin/env python3
"""Tiny random models of the architectures that bitrain reads, as folders of Hugging Face with the logits of transformers.

    make_architectures.py OUT                 one folder OUT/NAME/hf for each row of MODELS (compare_models.sh)
    make_architectures.py --golden OUT        OUT/NAME/hf and OUT/NAME/variants.json of qwen2, smollm3 and phi3 for the unit tests (tests/engine/interop/golden)

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
# heads wider than hidden_size / heads, tied
GEMMA = dict(head_dim=32, tie_word_embeddings=True, pad_token_id=None)
MODELS = {
    "llama-llama3": ("llama", dict(rope_parameters=dict(LLAMA3, original_max_position_embeddings=8192), max_position_embeddings=65536)),
    "llama-linear": ("llama", dict(rope_parameters=rope("linear", factor=3.0))),
    "llama-yarn": ("llama", dict(rope_parameters=YARN)),
    # ternary weights as floats, with a scale for each row, or for each group of 64 inputs; sizes of whole blocks of tq1_0 and tq2_0
    "llama-rows": ("llama", dict(rope_parameters=rope(), hidden_size=256, intermediate_size=512)),
    "qwen3-groups": ("qwen3", dict(rope_parameters=rope(), hidden_size=256, intermediate_size=512, head_dim=64)),
    "qwen2": ("qwen2", dict(rope_parameters=rope())),
    "qwen2-tied": ("qwen2", dict(rope_parameters=rope(theta=1000000.0), tie_word_embeddings=True)),
    "qwen2-yarn": ("qwen2", dict(rope_parameters=YARN)),
    "qwen3-yarn": ("qwen3", dict(rope_parameters=YARN, head_dim=32)),
    "smollm3": ("smollm3", dict(rope_parameters=rope(theta=2000000.0), num_hidden_layers=5, pad_token_id=None)),
    "phi": ("phi3", dict(rope_parameters=rope(), pad_token_id=None)), # llama.cpp requires tokens of Phi-3 in a file whose name has "phi3"
    "phi-partial": ("phi3", dict(rope_parameters=rope(partial_rotary_factor=0.75), pad_token_id=None)),
    "phi-longrope": ("phi3", dict(rope_parameters=rope("longrope", short_factor=[1 + 0.1 * i for i in range(8)], long_factor=[1.0 + i * i for i in
                                  range(8)]), original_max_position_embeddings=32, pad_token_id=None)),
    "mistral": ("mistral", dict(rope_parameters=rope(), sliding_window=None)),
    "mistral-window": ("mistral", dict(rope_parameters=rope(), sliding_window=12)),
    "gemma": ("gemma", dict(GEMMA, rope_parameters=rope(), num_key_value_heads=1)),
    "gemma2": ("gemma2", dict(GEMMA, rope_parameters=rope(), sliding_window=12, num_hidden_layers=4, query_pre_attn_scalar=32,
                              attn_logit_softcapping=4.0, final_logit_softcapping=6.0)),
    "gemma3": ("gemma3_text", dict(GEMMA, rope_parameters=dict(full_attention=rope("linear", 1000000.0, factor=4.0), sliding_attention=rope()),
                                   sliding_window=12, num_hidden_layers=7, query_pre_attn_scalar=32)),
    "gemma3-every2": ("gemma3_text", dict(GEMMA, rope_parameters=dict(full_attention=rope("linear", 1000000.0, factor=4.0), sliding_attention=
                      rope(theta=500.0)), sliding_window=12, num_hidden_layers=4, query_pre_attn_scalar=32, final_logit_softcapping=6.0,
                      layer_types=["sliding_attention", "full_attention"] * 2)),
}
VARIANTS = {
    "plain": rope(), "linear": rope("linear", factor=3.0), "llama3": LLAMA3, "yarn": YARN,
    "yarn, all its settings": rope("yarn", 50000.0, factor=6.0, original_max_position_embeddings=24, beta_fast=16.0, beta_slow=2.0, attention_factor=0.7),
    "yarn of DeepSeek": rope("yarn", factor=8.0, original_max_position_embeddings=32, mscale=1.0, mscale_all_dim=0.5),
}

def make(kind, members, sizes, seed):
    torch.manual_seed(seed)
    m = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**sizes, **members}), attn_implementation="eager").float().eval()
    gen = torch.Generator().manual_seed(seed)
    for name, p in sorted(m.named_parameters()):
        if "norm" in name: p.data = torch.rand(p.shape, generator=gen) + (-0.5 if "gemma" in kind else 0.5) # Gemma adds 1
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

# the joined tensors of Phi-3 in a GGUF of llama.cpp's own architecture; needs the package gguf
def write_phi3_gguf(m, path):
    import gguf
    c, w = m.config, gguf.GGUFWriter(path, "phi3")
    w.add_context_length(c.max_position_embeddings); w.add_embedding_length(c.hidden_size); w.add_block_count(c.num_hidden_layers)
    w.add_feed_forward_length(c.intermediate_size); w.add_head_count(c.num_attention_heads); w.add_head_count_kv(c.num_key_value_heads)
    w.add_layer_norm_rms_eps(c.rms_norm_eps); w.add_rope_dimension_count(c.hidden_size // c.num_attention_heads); w.add_rope_freq_base(10000.0)
    w.add_sliding_window(200)
    names = {"model.layers.": "blk.", "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "self_attn.o_proj":
             "attn_output", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "model.embed_tokens": "token_embd",
             "model.norm": "output_norm", "lm_head": "output"}
    for name, x in m.state_dict().items():
        for a, b in names.items(): name = name.replace(a, b)
        w.add_tensor(name, x.numpy())
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()

def predictions(m):
    said = []
    for ids in prompts():
        with torch.no_grad(): y = m(torch.tensor([ids])).logits[0, -1]
        said.append({"ids": ids, "logits": [float(f"{x:.7g}") for x in y.tolist()]})
    return said

# a model for the vocabulary of a tokenizer that marks spaces
def marked(m_type, sizes, folder, name):
    path = os.path.join(HERE, "../engine/data/tokenizer/hostile_%s.json" % name)
    vocab = json.load(open(path))["model"]["vocab"]
    m = make(m_type, dict(rope_parameters=rope(), vocab_size=len(vocab), bos_token_id=vocab["<s>"], eos_token_id=vocab["</s>"], tie_word_embeddings=True), sizes, 30)
    save(m.bfloat16(), folder, tokenizer=False)
    shutil.copy(path, os.path.join(folder, "tokenizer.json"))
    json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "clean_up_tokenization_spaces": False},
              open(os.path.join(folder, "tokenizer_config.json"), "w"))

def golden(out):
    tiny = {**SIZES, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    marked("llama", tiny, os.path.join(out, "marked/hf"), "llama2")
    small = {**SIZES, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "num_key_value_heads": 1}
    for seed, (name, more) in enumerate({"smollm3": dict(num_hidden_layers=4), "phi3": {}, "mistral": dict(sliding_window=12)}.items()):
        m = make(name, dict(rope_parameters=rope(), pad_token_id=None, **more), small, 20 + seed)
        save(m, os.path.join(out, name, "hf"), tokenizer=False)
        if name == "phi3": write_phi3_gguf(m, os.path.join(out, "phi3/phi3-f32.gguf"))
        rows = [{"name": name, "rope_parameters": rope(), "prompts": predictions(m)}]
        if name == "phi3":
            config = copy.deepcopy(m.config); config.rope_parameters = rope(partial_rotary_factor=0.75)
            v = AutoModelForCausalLM.from_config(config).float().eval()
            v.load_state_dict(m.state_dict())
            rows.append({"name": "phi3, heads that rotate in part", "rope_parameters": config.rope_parameters, "prompts": predictions(v)})
            for part, more in ((1.0, {}), (0.75, dict(attention_factor=0.8))): # the shorter prompt has the short factors
                pairs = int(16 * part) // 2
                members = dict(rope_parameters=rope("longrope", partial_rotary_factor=part, short_factor=[1 + 0.1 * i for i in range(pairs)],
                                                    long_factor=[1.0 + i * i for i in range(pairs)], **more), original_max_position_embeddings=32)
                config = type(m.config)(**{**m.config.to_dict(), **copy.deepcopy(members)})
                v = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
                v.load_state_dict(m.state_dict())
                rows.append({"name": "phi3, longrope, %g of a head" % part, "rope_parameters": members["rope_parameters"], "members": members,
                             "prompts": predictions(v)})
        with open(os.path.join(out, name, "variants.json"), "w") as f: json.dump(rows, f, separators=(",", ":"))
    # weights in bf16, to which the offset of the gains adds no rounding
    tiny = {**tiny, "num_key_value_heads": 1, "intermediate_size": 24}
    for seed, (name, kind, more) in enumerate((
            ("gemma2", "gemma2", dict(rope_parameters=rope(), sliding_window=12, num_hidden_layers=2, query_pre_attn_scalar=8,
                                      attn_logit_softcapping=3.0, final_logit_softcapping=5.0)),
            ("gemma3", "gemma3_text", dict(rope_parameters=dict(full_attention=rope("linear", 1000000.0, factor=4.0), sliding_attention=rope()),
                                           sliding_window=12, num_hidden_layers=3, query_pre_attn_scalar=8, layer_types=
                                           ["sliding_attention", "full_attention", "sliding_attention"])))):
        m = make(kind, dict(GEMMA, head_dim=8, **more), tiny, 40 + seed)
        for p in m.parameters(): p.data = p.data.bfloat16().float()
        rows = [{"name": name, "rope_parameters": more["rope_parameters"], "prompts": predictions(m)}]
        save(m.bfloat16(), os.path.join(out, name, "hf"))
        with open(os.path.join(out, name, "variants.json"), "w") as f: json.dump(rows, f, separators=(",", ":"))
    m = make("qwen2", dict(rope_parameters=rope()), small, 7)
    save(m, os.path.join(out, "qwen2/hf"), tokenizer=False)
    rows = []
    for name, scaling in VARIANTS.items():
        config = copy.deepcopy(m.config); config.rope_parameters = scaling
        v = AutoModelForCausalLM.from_config(config).float().eval()
        v.load_state_dict(m.state_dict())
        rows.append({"name": name, "rope_parameters": scaling, "prompts": predictions(v)})
    with open(os.path.join(out, "qwen2/variants.json"), "w") as f: json.dump(rows, f, separators=(",", ":"))

def make_ternary(m, inputs=None): # inputs: of a row with one scale
    for name, p in m.named_parameters():
        if not name.endswith("_proj.weight"): continue
        w = p.reshape(-1, inputs or p.shape[1])
        scale = w.abs().mean(-1, keepdim=True)
        p.data = ((w / scale).round().clamp(-1, 1) * scale).reshape(p.shape)
    return m

def main():
    if sys.argv[1] == "--golden": return golden(sys.argv[2])
    for seed, (name, (kind, members)) in enumerate(MODELS.items()):
        m = make(kind, members, SIZES, seed)
        save(make_ternary(m) if name.endswith("rows") else make_ternary(m, 64) if name.endswith("groups") else m, os.path.join(sys.argv[1], name, "hf"))
    for name in ("llama2", "mistral", "gemma"): marked("llama", SIZES, os.path.join(sys.argv[1], "spaces-" + name, "hf"), name)

if __name__ == "__main__":
    main()

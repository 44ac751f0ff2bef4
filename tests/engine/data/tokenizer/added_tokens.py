"""added_tokens.json: the ids that Hugging Face's `tokenizers` gives to texts with names of added tokens in them, as one hash a text.
Run: python3 added_tokens.py   (tokenizers 0.23). Each tokenizer is one of hostile_NAME.json with the members given here in place of its own.
`text`: names of special tokens are plain text (encode_special_tokens), nothing is put around the text. `prompt`: the library's defaults.
A hash is FNV-1a (64 bits) over the ids as little-endian int32."""
import json
import os

from tokenizers import Tokenizer

here = os.path.dirname(os.path.abspath(__file__))
data = os.path.dirname(here)
texts = json.load(open(os.path.join(data, "hostile_tokens.json"), encoding="utf8"))["texts"]


def read(name):
    return json.load(open(os.path.join(data, "hostile_%s.json" % name), encoding="utf8"))


def token(content, special=False, **flags):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": not special, "special": special, **flags}


def numbered(base, tokens):
    """behind the vocabulary, in order; those that it has keep their id"""
    vocab, out, n = base["model"]["vocab"], list(base["added_tokens"]), len(base["model"]["vocab"])
    for t in tokens:
        i = vocab.get(t["content"], n)
        n += i == n
        out.append({"id": i, **t})
    return sorted(out, key=lambda t: t["id"])


def template(base, before, behind):
    ids = {t["content"]: t["id"] for t in base["added_tokens"]}
    step = lambda s: {"SpecialToken": {"id": s, "type_id": 0}}
    return {"type": "TemplateProcessing", "single": [step(s) for s in before] + [{"Sequence": {"id": "A", "type_id": 0}}] + [step(s) for s in behind],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {s: {"id": s, "ids": [ids[s]], "tokens": [s]} for s in before + behind}}


def fnv(ids):
    h = 0xCBF29CE484222325
    for i in ids:
        for b in i.to_bytes(4, "little", signed=True):
            h = (h ^ b) * 0x100000001B3 & (1 << 64) - 1
    return "%016x" % h


def own_name(base):
    return base["added_tokens"][0]["content"]


cases = {}
for name in ("512", "gpt2", "llama3", "qwen2"):
    cases[name] = (name, {})
b = read("llama3")
b["added_tokens"] = numbered(b, [token("<|begin_of_text|>", True), token("<|eot_id|>", True)])
cases["bos"] = ("llama3", {"added_tokens": b["added_tokens"], "post_processor": template(b, ["<|begin_of_text|>"], [])})
cases["bos and eos"] = ("llama3", {"added_tokens": b["added_tokens"], "post_processor": {
    "type": "Sequence", "processors": [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
                                       template(b, ["<|begin_of_text|>"], ["<|eot_id|>"])]}})
b = read("512")
cases["not special"] = ("512", {"added_tokens": numbered(b, [token("<|im_start|>", True), token("<|im_end|>", True)] + [
    token(s, normalized=False) for s in ("<think>", "</think>", "<tool_call>", "<tool_call>x", "\n\n##")])})
b = read("qwen2")
cases["flags"] = ("qwen2", {"added_tokens": numbered(b, [
    token("<mask>", True, lstrip=True), token("<sep>", True, rstrip=True), token("<both>", lstrip=True, rstrip=True, normalized=False),
    token("word", single_word=True), token("the", single_word=True), token("A\u030a"), token("two words"), token("<n>", True, normalized=True)])})

names = ["<|endoftext|>", "<|begin_of_text|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "<tool_call>x",
         "\n\n##", "<mask>", "<sep>", "<both>", "word", "the", "A\u030a", "\u00c5", "two words", "<n>", "<|im_", "<both><both>", "<mask> <sep>"]
spaces = ["", " ", "\n", "  ", "\u00a0", "\t\n ", "x", "\u3000", "\u0301", "1", "_", "\u24b6"]
mixed = []
for i, s in enumerate(texts):
    k = len(s) // 2
    mixed.append(s[:k] + spaces[i % 12] + names[i % 22] + spaces[(i + i // 12) % 12] + s[k:] + names[(7 * i + 3) % 22])
everything = texts + mixed
golden = {"about": "made by added_tokens.py", "texts": mixed, "tokenizers": []}
for name, (base, members) in cases.items():
    root = {**read(base), **members}
    t = Tokenizer.from_str(json.dumps(root))
    row = {"name": name, "base": base, "members": members}
    t.encode_special_tokens = True
    row["text"] = [fnv(t.encode(s, add_special_tokens=False).ids) for s in everything]
    t.encode_special_tokens = False
    row["prompt"] = [fnv(t.encode(s).ids) for s in everything]
    golden["tokenizers"].append(row)
with open(os.path.join(here, "added_tokens.json"), "w") as f:
    json.dump(golden, f, separators=(",", ":"))
    f.write("\n")

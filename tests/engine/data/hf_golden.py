"""Small tokenizer.json files and the ids that Hugging Face's `tokenizers` gives for awkward texts, one per word pattern.
Run: python3 hf_golden.py   (writes hf_gpt2.json hf_llama3.json hf_qwen2.json hf_golden.h beside itself; tokenizers 0.23)"""
import json
import os
import random

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

here = os.path.dirname(os.path.abspath(__file__))
llama3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
qwen2 = llama3.replace("{1,3}", "")
text = ["In the beginning God created the heaven and the earth. And the earth was without form, and void; and darkness was upon the face of the deep.",
        "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want of a wife.",
        "for (int i = 0; i < n; i++) { sum += x[i] * y[i]; }\n\treturn sum;\n", "I'll say it's what they've got: 12345 67 8.9, don't you?",
        "Größe, déjà vu, naïve café; привет мир; 我想在apple工作; こんにちは世界 😁😀"] * 3
rng = random.Random(7)
pools = [range(0x20, 0x7f)] * 3 + [range(0xa0, 0x180), range(0x300, 0x340), range(0x391, 0x3c9), range(0x410, 0x450), range(0x660, 0x66a), range(0x4e00, 0x4e40),
         range(0x1f600, 0x1f620), [10, 13, 9, 32, 32, 32, 0x85, 0xa0, 0x2003, 0x3000], [0x27] * 3 + [ord(c) for c in "sStTrReEvVmMlLdD"], range(0x30, 0x3a)]
fuzz = "".join(chr(rng.choice(rng.choice(pools))) if rng.random() < .3 else "".join(chr(rng.choice(p)) for p in [rng.choice(pools)] for _ in range(4)) for _ in range(160))
tests = ["Hello, y'all! How are you 😁 ?我想在apple工作1314151天～ 3333 \n\n  x", "", " ", "   ", "\n", " \n \n  a", "it'S IT'LL we'Re 'x ''s", "a\r\n\r\n b\r\n", "1 12 123 1234 12345 ١٢٣٤",
         "e\u0301 \u00e9 A\u030a \u212b \u1e9b\u0323", "tab\there\u00a0nbsp\u3000wide\u180emvs", "the the the darkness universally acknowledged", "x" * 70, " " * 70 + "y", fuzz]

out = ["/* made by hf_golden.py */", "static const char *const golden_texts[] = {"]
out += ["    " + json.dumps("".join("\\x%02x" % b for b in t.encode()), ensure_ascii=True).replace("\\\\x", "\\x") + "," for t in tests] + ["};"]
for name, split, norm in (("gpt2", None, None), ("llama3", llama3, None), ("qwen2", qwen2, normalizers.NFC())):
    t = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
    if norm:
        t.normalizer = norm
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False) if split is None else pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(split), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(text, trainers.BpeTrainer(vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.add_special_tokens(["<|begin|>", "<|endoftext|>"])
    j = json.loads(t.to_str())
    if name == "llama3":                # as older files write merges
        j["model"]["merges"] = [" ".join(m) for m in j["model"]["merges"]]
    with open(os.path.join(here, "hf_%s.json" % name), "w", encoding="utf8") as f:
        json.dump(j, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
    t = Tokenizer.from_file(os.path.join(here, "hf_%s.json" % name))
    out.append("static const struct { int n; int ids[1000]; } golden_%s[] = {" % name)
    for s in tests:
        ids = t.encode(s, add_special_tokens=False).ids
        assert len(ids) <= 1000, len(ids)
        out.append("    {%d, {%s}}," % (len(ids), ", ".join(map(str, ids)) or "0"))
    out.append("};")
with open(os.path.join(here, "hf_golden.h"), "w") as f:
    f.write("\n".join(out) + "\n")

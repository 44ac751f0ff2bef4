"""hostile_NAME.json for tokenizers of SentencePiece's kind: spaces marked by U+2581, byte fallback. One vocabulary of 700 tokens, trained on pseudo-text
from the hostile texts, with the normalisers, pre-tokenisers and decoders of Llama 2 and TinyLlama (prepend), Mistral (metaspace) and Gemma.
Run: python3 hostile_marked.py, then python3 ../hostile_tokens.py   (tokenizers 0.23)"""
import json
import os
import random

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

here = os.path.dirname(os.path.abspath(__file__))
MARK = "\u2581"
rng = random.Random(6)
words = [w for line in json.load(open(os.path.join(here, "../hostile_tokens.json"), encoding="utf8"))["texts"] for w in line.split()]
text = [" ".join(rng.choice(words) + rng.choice(["", "", ".", "    x", "  "]) for _ in range(30)) for _ in range(400)]
SPECIAL = ["<unk>", "<s>", "</s>"]

t = Tokenizer(models.BPE())
t.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
t.pre_tokenizer = pre_tokenizers.Split(MARK, "merged_with_next")
t.train_from_iterator(text, trainers.BpeTrainer(vocab_size=440, limit_alphabet=60, show_progress=False))
learned = json.loads(t.to_str())["model"]
pieces = [p for p, _ in sorted(learned["vocab"].items(), key=lambda kv: kv[1])]
runs = [MARK * 2, MARK * 4, "a" + MARK] # runs of spaces are tokens, as in Llama 2; one token has a space after a letter
vocab = {p: i for i, p in enumerate(SPECIAL + ["<0x%02X>" % b for b in range(256)] + [p for p in pieces + runs if p not in SPECIAL])}
# transformers converts a SentencePiece file in this way: each pair of tokens that makes a token is a merge, ordered by
# the scores of the results
rank = {p: i for i, p in enumerate(dict.fromkeys([a + b for a, b in learned["merges"]] + runs))}
pairs = [(p[:k], p[k:]) for p in rank for k in range(1, len(p)) if p[:k] in vocab and p[k:] in vocab]
merges = sorted(pairs, key=lambda m: (rank[m[0] + m[1]], -len(m[0])))
REPLACE = normalizers.Replace(" ", MARK)
DECODE = [decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
STRIP = decoders.Strip(" ", 1, 0)
FORMS = {
    "llama2": (normalizers.Sequence([normalizers.Prepend(MARK), REPLACE]), None, DECODE + [STRIP]),
    "mistral": (None, pre_tokenizers.Metaspace(MARK, "first", False), DECODE + [STRIP]),
    "metaspace": (None, pre_tokenizers.Metaspace(MARK, "always", True), DECODE + [STRIP]),
    "gemma": (REPLACE, pre_tokenizers.Split(" ", "merged_with_previous"), DECODE),
}
for name, (normalizer, pre, decode) in FORMS.items():
    t = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if normalizer:
        t.normalizer = normalizer
    if pre:
        t.pre_tokenizer = pre
    t.decoder = decoders.Sequence(decode)
    t.add_special_tokens(SPECIAL)
    if name == "gemma":
        t.add_tokens([AddedToken(MARK * 2, normalized=False)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", vocab["<s>"])])
    with open(os.path.join(here, "hostile_%s.json" % name), "w", encoding="utf8") as f:
        json.dump(json.loads(t.to_str()), f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")

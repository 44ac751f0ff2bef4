"""hostile_NAME.json for tokenizers that cut words by several steps or by other patterns, trained on the hostile texts and on pseudo-text.
Run: python3 hostile_rules.py, then python3 ../hostile_tokens.py   (tokenizers 0.23)"""
import json
import os
import random

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

here = os.path.dirname(os.path.abspath(__file__))
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
def split(regex): return pre_tokenizers.Split(Regex(regex), "isolated")
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
STEPS = {
    "smollm": [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)],
    "deepseek": [split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"),
                 split(r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + REST), BYTES],
    "o200k": [split(r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+" + CONTRACTION + r"|[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*" + CONTRACTION +
                    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + REST), BYTES],
}
rng = random.Random(5)
words = [w for line in json.load(open(os.path.join(here, "../hostile_tokens.json"), encoding="utf8"))["texts"] for w in line.split()]
text = [" ".join(rng.choice(words) for _ in range(30)) for _ in range(400)]
for name, steps in STEPS.items():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence(steps)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(text, trainers.BpeTrainer(vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.add_special_tokens(["<|endoftext|>"])
    with open(os.path.join(here, "hostile_%s.json" % name), "w", encoding="utf8") as f:
        json.dump(json.loads(t.to_str()), f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")

#!/usr/bin/env bash
# ctest: timeout=60
# The Python reader on the page about the checkpoint format (engine/ckpt/format.md) works as printed: it is extracted
# from the page and run on checkpoints with one and with two data files, with weights in fp32 and bf16. Its values equal
# those that `bitrain convert` writes to safetensors.
. "$BT_SRC/tests/cli/train_lib.sh"

command -v python3 >/dev/null || skip "python3 is not installed"
page=$BT_SRC/engine/ckpt/format.md
sed -n '/^```python$/,/^```$/p' "$page" | sed '1d;$d' >reader.py
grep -q '^def tensors(folder' reader.py || { fault "$page contains no reader"; finish; }
cat >compare.py <<'END'
import json, struct, sys
sys.argv = ["reader.py", *sys.argv[1:]]
exec(open("reader.py").read())
mine = tensors(sys.argv[1])
data = open(sys.argv[2] + "/model.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:8 + size])
names = {"embed": "model.embed_tokens.weight", "layers.0.ffn_down": "model.layers.0.mlp.down_proj.weight"}
for name, theirs in names.items():
    row = head[theirs]
    assert row["dtype"] == "F32", row
    begin, end = row["data_offsets"]
    want = struct.unpack("<%df" % ((end - begin) // 4), data[8 + size + begin:8 + size + end])
    assert len(want) > 0 and tuple(mine[name]) == want, name
END
check() { # NAME FILES WORDS...
    local name=$1 files=$2 folder n
    shift 2
    ok train "${tiny[@]}" --name "$name" --steps 3 --out "$tmp/$name" "$@"
    folder=$(ls -d "$tmp/$name"/step-* | tail -n 1)
    n=$(ls "$folder"/data-* | wc -l)
    [ "$n" = "$files" ] || fault "$name has $n data files, not $files"
    ok convert "$folder" --to hf --type f32 -o "$name.hf"
    python3 compare.py "$folder" "$name.hf" >printed 2>failure || { fault "$name: $(tail -n 1 failure)"; return; }
    grep -q '^layers.0.attn_q [0-9]* \[' printed || fault "$name: the reader does not list the query weights"
}
check whole 1 --ranks 1
check parts 2 --zero 3
check halves 2 --zero 3 --set optim.weights=bf16 --precision bf16
finish

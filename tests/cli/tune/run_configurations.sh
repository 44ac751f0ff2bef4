#!/usr/bin/env bash
# ctest: timeout=200 labels=mpi
# Configuration files with the keys of axolotl, LLaMA-Factory and ms-swift: each gives a training, or one message about
# all of its keys. The first lines of a file state the outcome: "runs", or "runs except" with the keys for which the
# user must give an option; these options; and settings that its keys become.
. "$BT_SRC/tests/cli/train_lib.sh"
mkdir data
cp "$BT_SRC"/tests/examples/*.jsonl data/
cp data/chat.jsonl data/chat2.jsonl
rows() { python3 - "$@" <<'PY'
import json, sys
read = [json.loads(l) for l in open("data/instruct.jsonl")]
chat = [json.loads(l)["messages"] for l in open("data/chat.jsonl")]
json.dump(read, open("data/alpaca.json", "w")); json.dump(read, open("data/identity.json", "w"))
names = {"user": "human", "assistant": "gpt", "system": "system"}
json.dump([{"conversations": [{"from": names[m["role"]], "value": m["content"]} for m in c]} for c in chat], open("data/sharegpt.json", "w"))
with open("data/kto.jsonl", "w") as f:
    for i, c in enumerate(chat): f.write(json.dumps({"messages": c, "label": i % 2 == 0}) + "\n")
with open("data/text.jsonl", "w") as f:
    for r in read * 400: f.write(json.dumps({"body": r["instruction"] + r["output"], "text": r["instruction"] + r["output"]}) + "\n")
json.dump({"identity": {"file_name": "identity.json"}, "alpaca_en_demo": {"file_name": "alpaca.json"},
           "c4_demo": {"file_name": "text.jsonl", "columns": {"prompt": "text"}},
           "kto_en_demo": {"file_name": "kto.jsonl", "formatting": "sharegpt", "columns": {"messages": "messages", "kto_tag": "label"}},
           "glaive_toolcall_en_demo": {"file_name": "chat.jsonl", "formatting": "sharegpt", "columns": {"messages": "messages", "tools": "tools"}},
           "dpo_en_demo": {"file_name": "preference.jsonl", "ranking": True, "columns": {"prompt": "prompt", "chosen": "chosen", "rejected": "rejected"}}},
          open("data/dataset_info.json", "w"))
PY
}
rows || skip "no Python writes the data"
shape=(--preset nano --set model.layers=1 --set model.d_model=32 --set model.heads=2 --set model.kv_heads=2 --set model.d_ff=64 --seq-len 512
       --batch-tokens 512 --threads 1 --ranks 1 --data data/text.jsonl --steps 1 --quiet)
ok train "${shape[@]}" --name base
ok train "${shape[@]}" --name dense --set model.linear=dense

field() { sed -n "s/^# $2: *//p" "$1" | head -1; } # a field in the header of a file
each() { local IFS=';' item; set -f; for item in $1; do echo "${item# }"; done; set +f; }
is_set() { # FILE: the settings of its header are in `out`
    local want
    while read -r want; do
        [ -z "$want" ] || grep -qE "^(# )?${want%% *}: \"?${want##* }\"?( |\$)" out ||
            fault "$(basename "$1"): not $want: $(grep -F "${want%% *}:" out | head -2)"
    done < <(each "$(field "$1" settings)")
}
n=0
for file in "$BT_SRC"/tests/cli/tune/configurations/*.yaml; do
    name=$(basename "$file" .yaml)
    n=$((n + 1))
    asked=$(field "$file" 'runs except')
    answer=$(field "$file" 'answered by')
    cp "$file" x.yaml
    if [ -n "$asked" ]; then
        code 2 train x.yaml --ranks 1 --dry-run
        grep -q 'error: taken: ' err && grep -q 'to be answered: ' err || fault "$name: not three lists: $(cat err)"
        while read -r want; do grep -qF "$want" err || fault "$name: no message contains \"$want\": $(tail -3 err)"; done < <(each "$asked")
        count=$(sed -n '/to be answered/,$p' err | grep -c 'x.yaml:') expected=$(each "$asked" | wc -l)
        [ "$count" = "$expected" ] || fault "$name: $count keys are to be answered, not $expected: $(cat err)"
    fi
    [ -n "$asked" ] && [ -z "$answer" ] && continue
    ok train x.yaml --ranks 1 --threads 1 --dry-run $answer
    ok train x.yaml --ranks 1 --threads 1 --print-config $answer
    is_set "$file"
done
[ $n -ge 20 ] || fault "there are only $n files"

# Options on the command line, and keys of a file that remain wrong.
cp "$BT_SRC/tests/cli/tune/configurations/llamafactory-hub-sets.yaml" x.yaml
ok train x.yaml --ranks 1 --threads 1 --dry-run --data data/chat.jsonl --val-data data/chat2.jsonl --form messages
printf '[' >data/dataset_info.json
code 6 train "$BT_SRC/tests/cli/tune/configurations/llamafactory-qlora.yaml" --ranks 1 --dry-run
says "data/dataset_info.json"
# max_samples: this number of rows is read and reported.
printf 'base_model: base\ndataset: data/chat.jsonl\nmax_samples: 3\nmax_steps: 1\nval_size: 0.4\nsequence_len: 512\ndata:\n  form: messages\n' >x.yaml
ok train x.yaml --ranks 1 --threads 1 --name few
[ "$(q "SELECT count(*) FROM events WHERE run='few' AND title LIKE '%only the first 3 rows%'")" -ge 1 ] || fault "the limit is not reported: $(q "SELECT title FROM events WHERE run='few'")"
finish

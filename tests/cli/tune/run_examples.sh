#!/usr/bin/env bash
# ctest: timeout=200 labels=mpi
# The example files of fine-tuning train on a tiny base and learn; files with other tools' keys are equivalent to ours,
# or refused by name.
. "$BT_SRC/tests/cli/train_lib.sh"
mkdir -p tests engine
cp -r "$BT_SRC/tests/examples" tests/
cp "$BT_SRC/README.md" . && cp "$BT_SRC/engine/README.md" engine/

ok train --preset nano --set model.layers=2 --set model.d_model=32 --set model.heads=2 --set model.kv_heads=2 --set model.d_ff=64 --seq-len 256 \
    --batch-tokens 1024 --threads 1 --ranks 1 --data README.md --steps 3 --name base
ok train --preset nano --set model.layers=2 --set model.d_model=32 --set model.heads=2 --set model.kv_heads=2 --set model.d_ff=64 --seq-len 256 \
    --batch-tokens 1024 --threads 1 --ranks 1 --data README.md --steps 3 --name dense --set model.linear=dense
# 40 steps lower each loss by 0.03 to 2, depending on the text of README.md, on which the bases were trained.
for e in tests/examples/*.yaml; do
    name=$(basename "$e" .yaml)
    ok train "$e" --ranks 1 --threads 1 --name "$name"
    cp out "said.$name"
    awk -v a="$(q "SELECT avg(loss) FROM steps WHERE run='$name' AND step < 4")" \
        -v b="$(q "SELECT avg(loss) FROM steps WHERE run='$name' AND step >= 36")" 'BEGIN { exit !(a > 0 && b > 0 && b < a - 0.025) }' ||
        fault "the example $name does not learn: $(losses "$name" | sed -n '1p;$p' | tr '\n' ' ')"
done
[ "$(ls tests/examples/*.yaml | wc -l)" -ge 10 ] || fault "there are fewer examples"
# The next command is printed as it can be typed.
next() { grep -E "^  bitrain $2 $1 " "said.$1" | sed 's/^  bitrain//; s/   (.*//'; }
for typed in "$(next sft generate)" "$(next classify generate)" "$(next classify eval)" "$(next mixture generate)" "$(next lora convert)"; do
    [ -n "$typed" ] || fault "the next command is not printed"
    eval "ok $typed"
done
[ -f lora-hf/model.safetensors ] || fault "convert wrote: $(ls)"
ok generate last --chat --message 'upper sun' --tokens 8
ok eval classify
says "texts of the validation split"
ok train tests/examples/lora.yaml --ranks 2 --threads 1 --name two --steps 2

# Settings that the other tools' keys became.
b train tests/examples/axolotl.yaml --print-config >config 2>err
for want in 'tune.mode lora' 'tune.rank 8' 'tune.alpha 16' 'tune.dropout 0.05' 'tune.targets q_proj,v_proj,up_proj' 'data.form messages' 'data.packing documents' \
            'data.train_on answers' 'train.recompute full' 'optim.lr 0.002' 'optim.lr_min 0' 'train.steps 40' 'data.val_frac 0.1'; do
    grep -qE "^(# )?${want% *}: \"?${want##* }\"? " config || fault "not $want: $(grep -F "${want% *}" config | head -2)"
done

refused() { printf "$1\n" >x.yaml; code 2 train x.yaml --ranks 1; says "$2"; }
refused 'base_model: base\nnum_epochs: 3\nmax_steps: 5' "train.epochs and train.steps determine the same value: give only one of them"
refused 'adapter: qlora\npissa_init: true\nlearning_rate: fast\noptm.lr: 1' '4 settings are wrong; each line above names one'
for want in "'adapter: qlora' is not supported" "'pissa_init: true' is not supported" 'optim.lr must be a number' "unknown option 'optm.lr'"; do grep -qF "$want" err || fault "one of four faults is not printed: $want"; done
printf 'base_model: base\ntrust_remote_code: true\nwandb_project:\nspecial_tokens:\n  pad_token: x\nddp_timeout: 18\ndataset:\n  - x.yaml\n' >y.yaml
b train y.yaml --ranks 1 --print-config >out 2>err || fault "harmless keys: $(cat err)"
grep -q 'change nothing here: trust_remote_code, wandb_project, special_tokens.pad_token, ddp_timeout$' err && grep -q '^data.path:' out || fault "harmless keys: $(cat err)"
refused 'dataset: identity,alpaca_en_demo' "data set 'identity' names neither a file nor an entry of 'data/dataset_info.json', which does not exist"
code 2 train --learning-rate 1 --device cuda && says "2 settings are wrong; each line above names one"
# Settings that contradict each other are reported too: of the model, the codec, the data.
code 2 train --data synth:chain --ranks 2 --set model.heads=5 --set train.loss_scale=3 --codec sign \
    --set train.reproducible=true --set data.packing=pad --dry-run
says "4 settings are wrong; each line above names one"
for fault in "model.heads 5 does not divide" "loss_scale 3 is not a power of two" "train.reproducible with --codec sign" \
    "has no documents"; do
    says "$fault"
done
# Several errors of one topic, and several invalid combinations on the command line.
code 2 train --data synth:chain --set data.labels=a --set tune.adapters=x --set tune.top_k=4 --set data.packing=pad \
    --set train.loss_scale=3 --set islands.outer_momentum=-0.5 --dry-run
says "6 settings are wrong; each line above names one"
code 2 train --name "" --hot-spare --hosts none --keys none --epochs 2 --steps 5 --set optim.warmup=1 --warmup-ratio 0.1
says "5 settings are wrong; each line above names one"
for fault in "--name is empty" "--keys is a setting of an island" "--hot-spare is possible" "train.epochs and train.steps" "optim.warmup_ratio and"; do
    says "$fault"
done
refused 'adapter: qlora' "'adapter: qlora' is not supported"
refused 'pissa_init: true' "'pissa_init: true' is not supported: adapters begin at zero"
refused 'datasets:\n  - path: a.jsonl\n    type: orcamini' "x.yaml:3:5: 'datasets.type: orcamini' is not a supported form of the rows"
refused 'datasets:\n  - path: a.jsonl\n    type: completion\n  - path: b.jsonl\n    type: sharegpt' "'datasets.type' differs between the data sets"
refused 'datasets:\n  - path: a.jsonl\n    shards: 4' "'datasets.shards' is not read"
refused 'learning_rate: fast' "optim.lr"
refused 'learning_rate: 1e-3\noptim:\n  lr: 1e-3' "'optim.lr' was already set on line 1"
refused 'learning_rat: 1e-3' "learning_rat"

[ $faults -eq 0 ] && echo "the examples train as they should"
exit $faults

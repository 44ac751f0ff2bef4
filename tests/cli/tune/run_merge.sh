#!/usr/bin/env bash
# ctest: timeout=200
# Adapters merged into their base: a dense base then gives the outputs of base and adapters; a ternary base loses little
# as dense weights and more when it is quantised again, and the changed codes are reported. Adapters alone are written
# in the format of PEFT. Impossible merges are refused.
. "$BT_SRC/tests/cli/train_lib.sh"

awk 'BEGIN { for (i = 0; i < 120; i++) { w = sprintf("%c%c%c", 97 + i % 26, 97 + i * 7 % 26, 97 + i * 3 % 26);
    printf "{\"messages\": [{\"role\": \"user\", \"content\": \"say %s\"}, {\"role\": \"assistant\", \"content\": \"%s%s\"}]}\n", w, w, i % 5 ? "" : w } }' >chat.jsonl
chat=(--precision fp32 --data chat.jsonl --form messages --batch-tokens 1536 --threads 1 --ranks 1 --eval-every 1000000)
shape=(--preset nano --set model.layers=2 --set model.d_model=64 --set model.heads=2 --set model.kv_heads=2 --set model.d_ff=128 --seq-len 192)
for kind in bitnet158 dense; do
    ok train "${shape[@]}" "${chat[@]}" --set model.linear=$kind --steps 30 --name base-$kind --lr 3e-3
    ok train "${chat[@]}" --tune lora --set tune.rank=4 --set tune.alpha=8 --init-from base-$kind --steps 20 --lr 1e-2 --name lora-$kind
done
nats() { b eval "$1" --data chat.jsonl --form messages --json 2>err | grep -o '"nats": *[0-9.]*' | cut -d: -f2; }
is() { awk "BEGIN { exit !($1) }" || fault "$1 is not so: $2"; }

ok convert lora-dense --merge dense -o merged --verify
says "adapters of rank 4 merged (14 matrices)"
base=$(nats base-dense) adapted=$(nats lora-dense) merged=$(nats ./merged)
is "$adapted < $base - 0.03" "adapted against base"
is "($merged - $adapted) ^ 2 < 1e-10" "merged against adapted"
code 2 convert lora-dense --merge keep -o nothing
says "is a dense model, which has no codes"

# Several adapters: two halves of an adapter equal the whole, and weight 0 gives the base.
ok convert lora-dense --merge dense --weight 0.5 --add lora-dense:0.25,lora-dense:0.25 -o halves
says "adapters of rank 4 merged (14 matrices), 0.25 of '"
halves=$(nats ./halves)
is "($halves - $merged) ^ 2 < 1e-10" "halves $halves, merged $merged"
ok convert lora-dense --merge dense --weight 0 -o without
without=$(nats ./without)
is "($without - $base) ^ 2 < 1e-10" "weight 0 $without, base $base"
# Adapters used together without merging give the outputs of the merged model, although their ranks and layers differ.
ok train "${chat[@]}" --tune lora --set tune.rank=3 --set tune.alpha=4 --set tune.dropout=0.125 --set tune.targets=attn_q,ffn_up --init-from base-dense --steps 20 --lr 1e-2 --seed 7 --name other-dense
nats_of() { b eval "$@" --data chat.jsonl --form messages --json 2>err | grep -o '"nats": *[0-9.]*' | cut -d: -f2; }
halves=$(nats_of lora-dense --weight 0.5 --add lora-dense:0.25,lora-dense:0.25)
is "($halves - $adapted) ^ 2 < 1e-10" "halves at once $halves, whole $adapted"
grep -qE "^adapters +0.5 of '.*' \\+ 0.25 of '.*' \\+ 0.25 of '" err || fault "no message names the adapters: $(cat err)"
ok convert lora-dense --merge dense --weight 0.7 --add other-dense:0.6 -o both
both=$(nats ./both) at_once=$(nats_of lora-dense --weight 0.7 --add other-dense:0.6)
is "($both - $at_once) ^ 2 < 1e-10 && ($both - $adapted) ^ 2 > 1e-8" "two at once $at_once, merged $both, one $adapted"
ok generate lora-dense --add other-dense:0.6 --prompt 'say' --tokens 4 --threads 1
code 2 eval base-dense --add lora-dense --data chat.jsonl --form messages
says "holds no adapters (name a run that trained some"
code 2 eval lora-dense --add base-dense --data chat.jsonl --form messages
says "--add: '"
says "holds no adapters to add"
code 2 generate lora-dense --add lora-bitnet158 --prompt a
says "trained with another base"
code 2 generate lora-dense --add other-dense:0.5x --prompt a
says "'0.5x' is no weight"
code 3 generate lora-dense --add nobody --prompt a
says "nobody"
code 2 generate lora-dense --add lora-dense,lora-dense,lora-dense,lora-dense,lora-dense,lora-dense,lora-dense,lora-dense --prompt a
says "--add: more than 7 adapters"
code 2 convert lora-dense --merge dense --add base-dense -o nothing
says "holds no adapters to add"
code 2 convert lora-dense --merge dense --add lora-dense:much -o nothing
says "'much' is no weight"
code 2 convert lora-dense --merge dense --add lora-bitnet158 -o nothing
says "trained with another base"
code 2 convert lora-dense --add lora-dense -o nothing
says "--add is of adapters that are merged"

ok convert lora-dense --merge --to gguf --any-activation
says "adapters of rank 4 merged (14 matrices)"
[ -s lora-dense.gguf ] || fault "--merge --to gguf wrote no lora-dense.gguf: $(ls)"

base=$(nats base-bitnet158) adapted=$(nats lora-bitnet158)
halves=$(nats_of lora-bitnet158 --weight 0.5 --add lora-bitnet158:0.5) none=$(nats_of lora-bitnet158 --weight 0)
is "($halves - $adapted) ^ 2 < 1e-9 && ($none - $base) ^ 2 < 1e-12" "halves $halves of $adapted, nothing $none of $base"
for how in dense latent keep fit; do
    ok convert lora-bitnet158 --merge $how -o t-$how
    [ $how = dense ] || says "codes turned"
    eval "$how=\$(nats ./t-$how)"
done
is "$dense < $base - 0.03 && ($dense - $adapted) ^ 2 < 0.01" "dense $dense, adapted $adapted, base $base"
for x in "$latent" "$keep" "$fit"; do is "$x > $adapted && $x < 3 * $base" "quantised again: $latent $keep $fit, adapted $adapted"; done
ok convert lora-bitnet158 --merge keep --to hf --type packed -o packed --verify
says "the same after 4 of 4 prompts"

# A base with a scale for each row is merged by the same rules, row by row.
ok train "${shape[@]}" "${chat[@]}" --set model.scale=row --steps 20 --name base-row --lr 3e-3
ok train "${chat[@]}" --tune lora --set tune.rank=4 --set tune.alpha=8 --init-from base-row --steps 15 --lr 1e-2 --name lora-row
base=$(nats base-row) adapted=$(nats lora-row)
for how in dense latent keep fit; do
    ok convert lora-row --merge $how -o r-$how
    [ $how = dense ] || says "codes turned"
    eval "$how=\$(nats ./r-$how)"
done
is "$dense < $base - 0.03 && ($dense - $adapted) ^ 2 < 0.01" "rows: dense $dense, adapted $adapted, base $base"
for x in "$latent" "$keep" "$fit"; do is "$x > $adapted && $x < 3 * $base" "rows quantised again: $latent $keep $fit, adapted $adapted"; done
for how in keep fit; do
    ok convert lora-row --merge $how --to hf --type packed -o packed-$how --verify
    says "the same after 4 of 4 prompts"
    [ "$how" = keep ] || is "($(nats ./packed-fit) - $fit) ^ 2 < 1e-6" "packed-fit $(nats ./packed-fit), r-fit $fit"
done
ok convert lora-row --merge keep --weight 0 -o r-none
is "($(nats ./r-none) - $base) ^ 2 < 1e-9" "weight 0: $(nats ./r-none), base $base"

# For PEFT: names, shapes, and a file of the length that its header states.
ok convert lora-bitnet158 --to hf -o peft
grep -qF '"peft_type":"LORA"' peft/adapter_config.json && grep -qF '"r":4,"lora_alpha":8,"lora_dropout":0' peft/adapter_config.json || fault "$(cat peft/adapter_config.json)"
header=$(od -An -t u8 -N 8 peft/adapter_model.safetensors | tr -d ' ')
head -c $((8 + header)) peft/adapter_model.safetensors | tail -c "$header" >header
for name in layers.0.self_attn.q_proj.lora_A.weight\":{\"dtype\":\"F32\",\"shape\":\[4,64\] layers.1.mlp.down_proj.lora_B.weight\":{\"dtype\":\"F32\",\"shape\":\[64,4\] \
            layers.1.mlp.up_proj.lora_B.weight\":{\"dtype\":\"F32\",\"shape\":\[128,4\]; do
    grep -qF "base_model.model.model.$name" header || fault "the header lacks $name"
done
# 2 layers: q k v o 4 x (64 + 64), gate and up 4 x (64 + 128), down 4 x (128 + 64).
[ "$(stat -c %s peft/adapter_model.safetensors)" = $((8 + header + 4 * 2 * (4 * 512 + 3 * 768))) ] || fault "$(stat -c %s peft/adapter_model.safetensors) bytes, a header of $header"

# Training begins with the adapters, in PEFT's format and in ours: the same first loss, which is not the base's.
# Rank, scale and layers are those of the adapters.
on=("${chat[@]}" --tune lora --init-from base-bitnet158 --steps 2 --lr 1e-3)
ok train "${on[@]}" --set tune.adapters=peft --name from-peft
ok train "${on[@]}" --set tune.adapters=lora-bitnet158 --name from-run
ok train "${on[@]}" --set tune.rank=4 --set tune.alpha=8 --name fresh
losses from-run >want
losses from-peft | cmp -s - want || fault "from PEFT: $(losses from-peft), from the run: $(cat want)"
is "$(head -1 want | cut -d, -f2) < $(losses fresh | head -1 | cut -d, -f2) - 0.03" "the first loss with and without adapters"
ok convert other-dense --to hf -o peft-other
grep -qF '"lora_dropout":0.125' peft-other/adapter_config.json || fault "$(cat peft-other/adapter_config.json)"
ok train "${on[@]}" --init-from base-dense --set tune.adapters=peft-other --print-config
grep -qE '^(# )?tune.dropout: "?0.125' out || fault "the dropout of PEFT's folder: $(grep dropout out)"
code 2 train "${on[@]}" --set tune.adapters=peft --set tune.rank=8
says "have the rank 4, but those of this run 8"
code 2 train "${on[@]}" --set tune.adapters=peft --set tune.alpha=4
says "are scaled by 2, but those of this run by 1"
code 2 train "${on[@]}" --set tune.adapters=lora-dense
says "trained with another base"
code 2 train "${on[@]}" --set tune.adapters=base-bitnet158
says "contains no adapters"
cp -r peft broken && head -c 900 peft/adapter_model.safetensors >broken/adapter_model.safetensors
code 6 train "${on[@]}" --set tune.adapters=broken
says "broken/adapter_model.safetensors"

# A folder of PEFT beside its base is equivalent to the run that wrote it; scales of single modules count; unknown keys
# are refused or reported.
ok convert lora-dense --to hf -o peft-dense
adapted=$(nats_of lora-dense) of_peft=$(nats_of ./peft-dense)
is "($of_peft - $adapted) ^ 2 < 1e-10" "PEFT's folder $of_peft, the run $adapted"
ok convert ./peft-dense --merge dense -o merged-peft
merged_peft=$(nats ./merged-peft)
is "($merged_peft - $adapted) ^ 2 < 1e-10" "merged from PEFT's folder $merged_peft, the run $adapted"
ok generate ./peft-dense --base base-dense --prompt say --tokens 2 --threads 1
variant() { rm -rf variant && cp -r peft-dense variant && sed -i "s/\"r\":4/\"r\":4,$1/" variant/adapter_config.json; }
variant '"alpha_pattern":{"layers.0.self_attn.q_proj":16,"q_proj":16,"k_proj":16,"v_proj":16,"o_proj":16,"gate_proj":16,"up_proj":16,"down_proj":16}'
twice=$(nats_of lora-dense --weight 2) by_pattern=$(nats_of ./variant --base base-dense)
is "($by_pattern - $twice) ^ 2 < 1e-10 && ($twice - $adapted) ^ 2 > 1e-8" "alpha_pattern $by_pattern, weight 2 $twice, once $adapted"
variant '"alpha_pattern":{"v_proj":64},"unheard_of":1'
ok train "${chat[@]}" --tune lora --init-from base-dense --set tune.adapters=variant --steps 1 --lr 1e-30 --name pattern
says "alpha_pattern: the scales of 2 layers"
says "'unheard_of'"
first=$(losses pattern | head -1 | cut -d, -f2)
ok train "${chat[@]}" --tune lora --init-from base-dense --set tune.adapters=peft-dense --steps 1 --lr 1e-30 --name plain
is "($first - $(losses plain | head -1 | cut -d, -f2)) ^ 2 > 1e-8" "alpha_pattern changes nothing"
variant '"modules_to_save":["lm_head"]'
code 1 generate ./variant --base base-dense --prompt say
says "'modules_to_save' is "
# Adapters only in some of the layers, or in another module.
variant '"layers_to_transform":[0]'
sed -i 's/layers\.1\./layers.7./g' variant/adapter_model.safetensors
code 1 generate ./variant --base base-dense --prompt say
says "'layers_to_transform' names only some of the 2 layers, but adapters must be beside every layer (merge them into the base"
variant '"unheard_of":1' && sed -i 's/o_proj/x_proj/g' variant/adapter_model.safetensors
code 1 generate ./variant --base base-dense --prompt say
says "has an adapter for 'x_proj', but only adapters for the layers of attention and feed-forward are supported (merge them into"
sed -i 's/"base_model_name_or_path":"[^"]*"/"base_model_name_or_path":"some\/model"/' peft-dense/adapter_config.json
code 2 eval ./peft-dense --data chat.jsonl --form messages
says "give the path of their model with --base (their configuration names 'some/model')"
ok generate ./peft-dense --base base-dense --prompt say --tokens 2 --threads 1
says "names 'some/model' as the base"
code 2 train "${chat[@]}" --init-from ./peft-dense
says "contains only adapters of PEFT"

# Impossible requests.
code 4 convert lora-bitnet158 --to hf -o peft
says "exists already"
code 2 convert lora-bitnet158 -o nothing
says "holds adapters alone: merge them"
code 2 convert lora-bitnet158 --merge dense --base base-dense -o nothing
says "trained with another base"
code 2 convert lora-bitnet158 --merge dense --base lora-dense -o nothing
says "contains adapters and cannot be a base"
code 2 convert base-dense --merge dense -o nothing
says "holds no adapters"
[ -e nothing ] && fault "a refused conversion left something"
rm -rf "$(q "SELECT out_dir FROM runs WHERE run='base-dense'")"
code 3 eval lora-dense --data chat.jsonl --form messages
says "give its path with --base"

[ $faults -eq 0 ] && echo "adapters merge as they should"
exit $faults

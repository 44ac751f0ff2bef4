#!/usr/bin/env bash
# ctest: timeout=300 labels=mpi
# Supervised fine-tuning from end to end: a base, then chats from JSONL with the loss on the answers only; the same bits
# on 1, 2 and 4 ranks, in a pipeline and after a resume; conversations longer than a sequence are reported; bad lines
# are reported with their numbers.
. "$BT_SRC/tests/cli/train_lib.sh"

awk 'BEGIN { for (i = 0; i < 120; i++) { w = sprintf("%c%c%c", 97 + i % 26, 97 + i * 7 % 26, 97 + i * 3 % 26);
    printf "{\"messages\": [{\"role\": \"user\", \"content\": \"say %s\"}, {\"role\": \"assistant\", \"content\": \"%s%s\"}]}\n", w, w, i % 5 ? "" : w } }' >chat.jsonl
shape=(--preset nano --set model.layers=2 --set model.d_model=32 --set model.heads=2 --set model.kv_heads=2 --set model.d_ff=64
       --seq-len 192 --batch-tokens 1536 --threads 1 --set train.eval_tokens=384 --eval-every 1000000 --lr 2e-3)
sft=("${shape[@]}" --data chat.jsonl --form messages --set train.reproducible=true --set train.unit=1 --steps 6)

ok train "${shape[@]}" --ranks 1 --data synth:chain --steps 2 --name base
# The shape follows the base.
ok train --threads 1 --ranks 1 --init-from base --data chat.jsonl --form messages --steps 1 --batch-tokens 1536 --name follows
ok train "${sft[@]}" --ranks 1 --init-from base --name one
for n in 2 4; do ok train "${sft[@]}" --ranks $n --init-from base --name ranks$n; done
losses one >want
[ "$(wc -l <want)" = 6 ] || fault "$(wc -l <want) losses"
for n in 2 4; do losses ranks$n | cmp -s - want || fault "the losses on $n ranks differ: $(losses ranks$n | head -3) | $(head -3 want)"; done
# At most a quarter of the tokens are answers; all steps have some.
counted=$(q "SELECT min(counted), max(counted) FROM steps WHERE run='one'")
[ "${counted%,*}" -gt 50 ] 2>/dev/null && [ "${counted#*,}" -lt 600 ] || fault "counted: $counted"

# An epoch is every packed sequence once, including padding: the plan, the screen and the sequences agree.
ok train "${sft[@]}" --ranks 1 --init-from base --dry-run --json
planned=$(sed 's/.*"epochs":\([0-9.]*\).*/\1/' out)
made=$(q "SELECT title FROM events WHERE run='one' AND kind='data'" | sed 's/.* in \([0-9]*\) sequences.*/\1/')
awk -v e="$planned" -v s="$made" 'BEGIN { d = e - 6 * 8 / s; exit !(s > 0 && d < 0.01 && d > -0.01) }' || fault "$planned epochs of $made sequences"
ok top one --once
says "$(awk -v e="$planned" 'BEGIN { printf "passes %.2f", e }')"
ok train "${sft[@]}" --ranks 1 --init-from base --dry-run
says "of them learned"
says "of them counted"

# A plain run counts every token of its batch.
[ "$(q "SELECT max(counted) FROM steps WHERE run='base'")" = 1536 ] || fault "plain: $(q "SELECT counted FROM steps WHERE run='base'")"

# A run that is stopped and resumed, a pipeline of two stages and a sharded optimizer give the same numbers.
ok train "${sft[@]}" --ranks 1 --init-from base --stop-after 3 --name halves
ok train --resume halves
losses halves | cmp -s - want || fault "a resumed run differs: $(losses halves | head -4)"
# A run without its own checkpoint begins with the base again; --continue is the same command for the first start and
# later ones.
KILLED_EVERY=1000 killed early "${sft[@]}" --ranks 1 --init-from base
losses early | cmp -s - want || fault "a run resumed before its first checkpoint differs: $(losses early | head -4)"
for _ in 1 2; do ok train "${sft[@]}" --ranks 1 --init-from base --name again --continue --stop-after 3; done
losses again | cmp -s - want || fault "a continued run differs: $(losses again | head -4)"
code 2 train "${sft[@]}" --init-from base --resume again
says "--resume continues a run and model.init_from starts a new one"
near() { paste -d, want <(losses "$1") | awk -F, '{ d = $2 - $4; if (d < 0) d = -d; if (d > 1e-4 * $2 || $4 == "") bad = 1 } END { exit bad }' || fault "$1: $(losses "$1" | head -3)"; }
plain=("${shape[@]}" --data chat.jsonl --form messages --steps 6 --init-from base --set train.grad=float --precision fp32)
ok train "${plain[@]}" --ranks 1 --micro-batch 2 --name plain1
losses plain1 >want
ok train "${plain[@]}" --ranks 2 --pp 2 --micro-batch 2 --name pipe
near pipe
ok train "${plain[@]}" --ranks 2 --micro-batch 1 --zero 1 --name zero
near zero
ok train "${plain[@]}" --ranks 2 --tp 2 --micro-batch 4 --name tp
near tp

# A change from full precision to ternary within a run: the same bits on other ranks and after a resume during the
# change.
fade=("${sft[@]}" --init-from base --set train.dense_steps=1 --set train.lambda_steps=3)
ok train "${fade[@]}" --ranks 1 --name fade
losses fade >want
[ "$(q "SELECT printf('%.4f', lambda) FROM steps WHERE run='fade'" | tr '\n' ' ')" = "0.0000 0.0000 0.3333 0.6667 1.0000 1.0000 " ] ||
    fault "lambda: $(q "SELECT lambda FROM steps WHERE run='fade'" | tr '\n' ' ')"
ok train "${fade[@]}" --ranks 2 --tp 2 --name fade-tp
losses fade-tp | cmp -s - want || fault "the way to ternary differs with --tp 2: $(losses fade-tp | head -4)"
ok train "${fade[@]}" --ranks 2 --zero 1 --name fade-zero --stop-after 3
ok train --resume fade-zero --ranks 2
losses fade-zero | cmp -s - want || fault "the way to ternary differs on 2 ranks after a resume: $(losses fade-zero | head -4)"
killed fade-killed "${fade[@]}" --ranks 1
losses fade-killed | cmp -s - want || fault "the way to ternary differs after a kill: $(losses fade-killed)"
code 2 train "${fade[@]}" --ranks 1 --set model.linear=dense
says "and model.linear=dense has none"
code 2 train "${fade[@]}" --ranks 1 --set train.lambda_steps=5
says "leave none of the 6 steps to the ternary model"
ok train "${fade[@]}" --ranks 2 --zero 3 --name fade-three
losses fade-three | cmp -s - want || fault "the way to ternary differs with --zero 3: $(losses fade-three | head -4)"
code 2 train "${fade[@]}" --ranks 2 --zero 3 --set parallel.gather=step
says "needs parallel.gather=layer"

# Classes: the loss of a zero head; the same bits on 2 ranks and after a resume, similar losses with ZeRO; the
# checkpoint contains the labels' names.
awk 'BEGIN { for (i = 0; i < 90; i++) { w = sprintf("%c%c%c", 97 + i % 26, 97 + i * 7 % 26, 97 + i * 3 % 26);
    print "{\"text\": \"" w (i % 3 ? i % 3 > 1 ? " not" : " so" : "?") "\", \"label\": " (i % 3 ? i % 3 > 1 ? "\"no\"" : "\"yes\"" : 7) "}" } }' >labels.jsonl
kinds=("${shape[@]}" --init-from base --data labels.jsonl --form label --steps 6)
exact=("${kinds[@]}" --set train.reproducible=true --set train.unit=1)
ok train "${exact[@]}" --ranks 1 --name kinds
losses kinds >want
case $(head -1 want) in 0,1.098612*) ;; *) fault "the first loss of three classes is $(head -1 want)" ;; esac
ok train "${exact[@]}" --ranks 2 --name kinds2 --stop-after 3
ok train --resume kinds2 --ranks 2
losses kinds2 | cmp -s - want || fault "classes on 2 ranks after a resume: $(losses kinds2 | head -4)"
killed kinds-killed "${exact[@]}" --ranks 1
losses kinds-killed | cmp -s - want || fault "classes differ after a kill: $(losses kinds-killed)"
ok train "${kinds[@]}" --precision fp32 --set train.grad=float --ranks 1 --micro-batch 4 --name kinds-one
losses kinds-one >want
for z in 1 3; do
    ok train "${kinds[@]}" --precision fp32 --set train.grad=float --ranks 2 --micro-batch 4 --zero $z --name kinds-z$z
    near kinds-z$z
done
q "SELECT loss < 1.09 AND accuracy >= 0.3 AND val_accuracy >= 0 AND val_f1 >= 0 AND counted > 100 FROM steps WHERE run='kinds' AND step = 5" | grep -qx 1 ||
    fault "classes: $(q "SELECT loss, accuracy, val_accuracy, val_f1, counted FROM steps WHERE run='kinds' AND step = 5")"
ok eval kinds --data labels.jsonl
for want in '(90 texts of the data given' 'label  texts  precision' '7         30'; do says "$want"; done
ok generate kinds --prompt "abc?" --json
says '"probabilities":{"7":'
code 2 serve kinds
says "is a classifier of 3 labels and generates no text"
code 1 convert kinds --to hf -o kinds-hf
says "it is a classifier of 3 labels"
{ head -3 labels.jsonl; echo '{"text": "a", "label": "maybe"}'; } >bad.jsonl
code 6 eval kinds --data bad.jsonl
says "bad.jsonl' line 4: field 'label': 'maybe' is not one of the labels of the model (7, no, yes)"
code 6 train "${kinds[@]}" --ranks 1 --set data.val_path=bad.jsonl
says "'maybe' is not one of the labels of the model"
{ head -3 labels.jsonl; echo '{"text": "a"}'; } >bad.jsonl
code 6 train "${kinds[@]}" --ranks 1 --data bad.jsonl
says "bad.jsonl' line 4: field 'label' is missing"
grep '"yes"' labels.jsonl >bad.jsonl
code 2 train "${shape[@]}" --init-from base --data bad.jsonl --form label --steps 6 --ranks 1
says "have the label 'yes': a classifier needs at least two"

# Validation, generation and evaluation of the run.
ok eval one --json
says '"nats"'

# Conversations that are too long are reported.
{ cat chat.jsonl; printf '{"messages": [{"role": "user", "content": "long"}, {"role": "assistant", "content": "%0300d"}]}\n' 0; } >long.jsonl
one=("${shape[@]}" --form messages --ranks 1 --steps 1)
code 2 train "${one[@]}" --data long.jsonl --set data.val_frac=0
says "/long.jsonl' has 365 tokens, but a sequence has 192"
ok train "${one[@]}" --data long.jsonl --set data.val_frac=0 --set data.too_long=skip --name skips
says "1 conversation longer than 192 tokens left out"

# Bad lines are reported with file, line and field.
{ head -3 chat.jsonl; echo '{"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}'; } >bad.jsonl
code 6 train "${one[@]}" --data bad.jsonl
says "bad.jsonl' line 4: message 2 has the role 'user', but the role 'assistant' is expected there"
says "data.bad_rows=skip leaves such rows out"
ok train "${one[@]}" --data bad.jsonl --set data.bad_rows=skip --set data.val_frac=0 --dry-run
says "(an optional system message, then user and assistant alternately)"
code 2 train "${one[@]}" --data chat.jsonl --set data.packing=stream
says "data.packing=stream concatenates documents"
code 3 train "${one[@]}" --data chat.jsonl --set data.template=vicuna
says "there is no chat template 'vicuna' (chatml, llama3,"

# A base with its own template: a known one is used and reported, another is refused; and a run on conversations
# continues.
golden=$BT_SRC/tests/engine/interop/golden/qwen3/hf
own() { rm -rf "$1"; cp -r "$golden" "$1"; printf '{"chat_template": "%s"}\n' "$2" >"$1/tokenizer_config.json"; }
on=(--threads 1 --ranks 1 --data chat.jsonl --form messages --steps 1 --seq-len 192 --batch-tokens 1536 --lr 1e-3)
template() { b train "$@" --print-config 2>err | grep -oE 'data.template: *"?[a-z0-9.-]+' | grep -oE '[a-z0-9.-]+$'; }
line="{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\\\n' + m['content'] + '<|im_end|>' + '\\\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\\\n' }}{% endif %}"
own known "$line"
[ "$(template "${on[@]}" --init-from known)" = chatml ] || fault "the template of 'known' is '$(template "${on[@]}" --init-from known)': $(cat err)"
own foreign "{% for m in messages %}<<{{ m.role }}>>{{ m.content }}{% endfor %}"
code 2 train "${on[@]}" --init-from foreign
says "the tokenizer's chat template matches none of the known templates: "
says "(choose one with data.template: chatml, llama3,"
ok train "${on[@]}" --init-from foreign --set data.template=phi3 --name phi
[ "$(template "${on[@]}" --init-from phi)" = phi3 ] || fault "a base that conversed in phi3 continues in '$(template "${on[@]}" --init-from phi)'"

cp -r "$golden" renamed
LC_ALL=C sed -i 's/self_attn.q_proj.weight/self_attn.q_proX.weight/' renamed/model.safetensors
code 6 train "${on[@]}" --init-from renamed
says "missing: layers.0.attn_q"
says "(the file has 'model.layers.0.self_attn.q_proX.weight', which is none of them)"

code 3 train "${one[@]}" --data chat.jsonl --teacher nowhere
says "tune.teacher: 'nowhere' is no path, run or group: "

[ $faults -eq 0 ] && echo "chats train as they should"
exit $faults

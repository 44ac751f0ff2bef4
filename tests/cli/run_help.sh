#!/usr/bin/env bash
# Help of every command exits with 0 and prints an example first, on standard output; help topics exist; the man page
# and the completion are well-formed.
set -u
bad=0
fault() { echo "$*"; bad=1; }
ok() { "$@" >"$tmp/out" 2>"$tmp/err" || fault "exit $? of: $*"; [ ! -s "$tmp/err" ] || fault "$* wrote to standard error: $(cat "$tmp/err")"; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export BITRAIN_STORE=$tmp/none.db XDG_DATA_HOME=$tmp HOME=$tmp

ok "$BITRAIN" help
commands=$(awk '/^  [a-z]/ {print $1}' "$tmp/out")
[ "$(wc -w <<<"$commands")" -ge 2 ] || fault "'bitrain help' lists no commands"
for c in $commands; do
    ok "$BITRAIN" "$c" --help
    grep -q '^examples:$' "$tmp/out" || fault "$c --help shows no examples"
    first=$(grep -n '^examples:$' "$tmp/out" | cut -d: -f1)
    options=$(grep -n '^options:$' "$tmp/out" | cut -d: -f1)
    [ -z "$options" ] || [ "${first:-999}" -lt "$options" ] || fault "$c --help: options before examples"
    grep -q "^  bitrain $c" "$tmp/out" || fault "$c --help: no example starts with 'bitrain $c'"
    long=$(awk 'length > 150' "$tmp/out")
    [ -z "$long" ] || fault "$c --help: a line longer than 150 columns: $long"
    cp "$tmp/out" "$tmp/flag"
    ok "$BITRAIN" help "$c"
    cmp -s "$tmp/out" "$tmp/flag" || fault "'help $c' and '$c --help' differ"
    ok "$BITRAIN" "$c" -h
done
# An example runs as printed: its flags and settings exist (plan, sweep, drill and bench pass flags on to train).
"$BITRAIN" train --help >"$tmp/train"
"$BITRAIN" help options >"$tmp/settings"
listed() { grep -qE -- "^ *(-[a-zA-Z], )?$1( |$)" "${@:2}"; }
n_examples=0
for c in $commands; do
    "$BITRAIN" "$c" --help | awk '/^examples:$/ {on = 1; next} on && !NF {exit} on' >"$tmp/printed"
    sed -E 's/ +# .*//' "$tmp/printed" >"$tmp/examples"
    # Remarks on an example follow a '#', so that the whole line can be pasted.
    gaps=$(sed 's/^ *//' "$tmp/examples" | grep -n '   *[^ ]')
    [ -z "$gaps" ] || fault "$c --help: words beside an example that a shell would take for its own: $gaps"
    [ "$(sed -nE 's/^(  .*[^ ]) +# .*/\1/p' "$tmp/printed" | awk 'length <= 66' | wc -l)" -lt 2 ] ||
        [ "$(grep -E '^  .{1,64} +# ' "$tmp/printed" | awk '{print index($0, " # ")}' | sort -u | wc -l)" -eq 1 ] || fault "$c --help: remarks that do not begin in one column: $(cat "$tmp/printed")"
    while read -r _ word first rest; do
        [ "$word" != bench ] || word="bench $first"
        n_examples=$((n_examples + 1))
        [ -e "$tmp/help of $word" ] || "$BITRAIN" $word --help >"$tmp/help of $word" 2>/dev/null || fault "$c --help: an example has 'bitrain $word', which is no command"
        for flag in $(grep -oE -- '(^| )--[a-z][a-z-]*' <<<"$first $rest" | sort -u); do
            listed "$flag" "$tmp/help of $word" "$tmp/train" || fault "$c --help: an example has $flag, which 'bitrain $word' does not list"
        done
        for key in $(grep -oE -- '--set [a-z0-9_]+\.[a-z0-9_]+=' <<<"$first $rest" | sed 's/--set //; s/=//' | sort -u); do
            listed "$key" "$tmp/settings" || fault "$c --help: an example sets $key, which is no setting"
        done
    done < <(grep -oE 'bitrain [a-z]+[^|&;`)]*' "$tmp/examples")
done
[ $n_examples -ge 60 ] || fault "only $n_examples examples"
# The help of train lists options in groups, the eight most common first, with their default values.
ok "$BITRAIN" train --help
[ "$(awk '/^most used/ {on = 1; next} on && !NF {exit} on && /^  --/ {print $1}' "$tmp/out" | tr '\n' ' ')" = "--data --tokenizer --preset --steps --name --ranks --resume --dry-run " ] ||
    fault "train --help does not begin with the common eight: $(head -40 "$tmp/out")"
for title in "processes and hosts" "model" "training" "optimizer" "checkpoints" "layout of the ranks"; do grep -qx "$title:" "$tmp/out" || fault "train --help has no group '$title'"; done
[ "$(grep -c '^  --' "$tmp/out")" -ge 40 ] || fault "train --help shows only $(grep -c '^  --' "$tmp/out") flags"
[ -z "$(grep '^  --' "$tmp/out" | awk '{print $1}' | sort | uniq -d | grep -v -- --set)" ] || fault "a flag twice in train --help"
tr '\n' ' ' <"$tmp/out" | tr -s ' ' | grep -qF -- "[2000 steps, for the built-in text]" || fault "train --help does not print the 2000 steps of nano on the built-in text: $(grep -A2 -- --steps "$tmp/out")"
tr '\n' ' ' <"$tmp/out" | tr -s ' ' | grep -qF -- "[0.002, the preset's]" || fault "train --help does not print nano's learning rate: $(grep -A2 -- '--lr ' "$tmp/out")"
if grep -qF "[bytes, automatic]" "$tmp/out"; then fault "train --help calls bytes the tokenizer of the built-in text"; fi
"$BITRAIN" train --ranks 1 --threads 1 --dry-run >"$tmp/plan" 2>&1 && grep -q '2000 steps' "$tmp/plan" || fault "train --dry-run does not plan the 2000 steps that its help prints: $(cat "$tmp/plan")"
# Every flag of every setting is listed in one of the groups.
for flag in $(awk '$2 ~ /^--/ {print $2}' "$tmp/settings"); do listed "$flag" "$tmp/train" || fault "train --help does not list $flag"; done
ok "$BITRAIN" bench learn --help
listed --recipe "$tmp/out" || fault "bench learn --help does not list its own options: $(cat "$tmp/out")"
ok "$BITRAIN" bench --help
grep -q "'bitrain bench VERB --help' shows the options of a verb" "$tmp/out" || fault "bench --help does not print where its options are"
grep -qE '^  comm +the link between ranks' "$tmp/out" || fault "bench --help does not print what its verbs are for: $(cat "$tmp/out")"
# Help on a subcommand prints only its own options, words and examples, in each form of the request.
ok "$BITRAIN" tokenizer inspect --help
listed --text "$tmp/out" && listed --top "$tmp/out" && ! listed --vocab "$tmp/out" && ! grep -q 'tokenizer encode' "$tmp/out" &&
    grep -q '^usage: bitrain tokenizer inspect FILE \[options\]$' "$tmp/out" || fault "tokenizer inspect --help: $(cat "$tmp/out")"
for words in "tokenizer inspect" "bench train" "data prepare"; do
    ok "$BITRAIN" $words --help
    cp "$tmp/out" "$tmp/flag"
    ok "$BITRAIN" help $words
    cmp -s "$tmp/out" "$tmp/flag" || fault "'help $words' and '$words --help' differ"
done
ok "$BITRAIN" ctl last resize --help
grep -q '^usage: bitrain ctl RUN resize RANKS ' "$tmp/out" || fault "ctl last resize --help: $(cat "$tmp/out")"
ok "$BITRAIN" help ctl
for verb in pause resume checkpoint stop eval sample mixture set resize status; do grep -qE "^  $verb .*[a-z]{3}" "$tmp/out" || fault "help ctl does not list $verb"; done
# Each help topic named in the documents exists.
for topic in $(find "$BT_SRC" -path "$BT_SRC/build*" -prune -o -name '*.md' -exec cat {} + | tr '\n' ' ' | grep -oE '`bitrain help [a-z-]+' | awk '{print $3}' | sort -u); do
    ok "$BITRAIN" help "$topic"
done
ok "$BITRAIN" help presets
for p in nano small base bitnet-2b4t qwen3-0.6b; do grep -qE "^  $p .*[KMG]iB  ([0-9]+ (minutes|hours)|a cluster)$" "$tmp/out" || fault "help presets lacks $p: $(cat "$tmp/out")"; done
grep -qE '^  small +27.8 M +23.7 M +8 +512 +512 +8192 +5000 ' "$tmp/out" || fault "help presets: $(grep small "$tmp/out")"

# README's table agrees with each preset.
while IFS='|' read -r _ name params bytes memory steps _; do
    row=$(sed 's/  */ /g' <<<"$(grep "^  $(tr -d ' `' <<<"$name") " "$tmp/out")")
    for word in "$params" "$bytes" "$memory"; do [[ $row == *"${word# }"* || "$row " == *"$word"* ]] || fault "README states$word of$name, help presets:$row"; done
    [[ $row == *" $(tr -d ' ,' <<<"$steps") "* ]] || fault "README states$steps steps of$name, help presets:$row"
done < <(grep -E '^\| `[a-z0-9.-]+` \| [0-9.]+ [MG] \|' "$BT_SRC/README.md")

# The memory of a preset is that of its plan.
"$BITRAIN" train --ranks 1 --preset small --tokenizer bytes --set model.vocab=8192 --dry-run >"$tmp/plan" 2>&1
needed=$(awk '$1 == "needed" {print $2, $3}' "$tmp/plan")
[ -n "$needed" ] && grep -q "^  small .* $needed  " "$tmp/out" || fault "help presets prints $(grep '^  small' "$tmp/out"), the plan $(grep -E '^  (needed|together)' "$tmp/plan")"

for topic in options presets metrics keys exit-codes; do
    ok "$BITRAIN" help $topic
    [ "$(wc -l <"$tmp/out")" -ge 2 ] || fault "'help $topic' prints nothing"
done
ok "$BITRAIN" --help
ok "$BITRAIN" --version
grep -qxE 'bitrain [0-9]+\.[0-9]+\.[0-9]+( \([0-9a-f]{7,12}\+?\))?' "$tmp/out" || fault "--version prints '$(cat "$tmp/out")'"

# one JSON object with every command that `help` lists and every setting that `help options` lists
ok "$BITRAIN" help --json
sqlite3 :memory: "WITH help AS (SELECT readfile('$tmp/out') AS j)
    SELECT 'command ' || (c.value ->> 'name') FROM help, json_each(j, '\$.commands') c
    UNION ALL SELECT 'verb ' || (v.value ->> 'name') FROM help, json_each(j, '\$.commands') c, json_each(c.value, '\$.verbs') v
    UNION ALL SELECT 'setting ' || (s.value ->> 'key') || ' ' || (s.value ->> 'type') FROM help, json_each(j, '\$.settings') s
    UNION ALL SELECT 'metric ' || (m.value ->> 'key') FROM help, json_each(j, '\$.metrics') m
    UNION ALL SELECT 'code ' || (e.value ->> 'code') FROM help, json_each(j, '\$.exit_codes') e" >"$tmp/names" || fault "help --json is not valid"
for c in $commands; do grep -qx "command $c" "$tmp/names" || fault "help --json lacks the command $c"; done
for key in $(awk '/^  [a-z_]+\./ {print $1}' "$tmp/settings"); do grep -q "^setting $key " "$tmp/names" || fault "help --json lacks $key"; done
for line in "setting optim.lr number" "code 6" "metric loss" "verb prepare"; do grep -qx "$line" "$tmp/names" || fault "help --json lacks '$line'"; done
ok "$BITRAIN" help --man
grep -q '^\.TH BITRAIN 1' "$tmp/out" || fault "the man page has no title"
for c in $commands; do grep -qF ".SS \"bitrain $c" "$tmp/out" || fault "the man page lacks $c"; done
if command -v man >/dev/null && man -w man >/dev/null 2>&1; then
    warnings=$(LC_ALL=C.UTF-8 MANROFFSEQ= MANWIDTH=100 man --warnings -E UTF-8 -l -Tutf8 -Z "$tmp/out" 2>&1 >/dev/null)
    [ -z "$warnings" ] || fault "man warns: $warnings"
fi

ok "$BITRAIN" help --completion bash
cp "$tmp/out" "$tmp/completion"
bash -n "$tmp/completion" || fault "the completion script is not valid bash"
complete_words() { # words as typed; the last one is completed
    bash -c 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); compopt() { :; }; _bitrain; printf "%s\n" "${COMPREPLY[@]}"' "$tmp/completion" "$@"
}
[ "$(complete_words bitrain hel)" = help ] || fault "completion of 'hel' is '$(complete_words bitrain hel)'"
complete_words bitrain help --mark | grep -qx -- --markdown || fault "completion of 'help --mark' fails"
complete_words bitrain ctl last che | grep -qx checkpoint || fault "completion of 'ctl last che' fails"
complete_words bitrain data prep | grep -qx prepare || fault "completion of 'data prep' fails"
complete_words bitrain compare one la | grep -qx last || fault "completion of 'compare one la' fails"
complete_words bitrain plot last los | grep -qx loss || fault "completion of 'plot last los' fails"
complete_words bitrain train --precision b | grep -qx bf16 || fault "completion of 'train --precision b' fails"
complete_words bitrain train --set optim.lr | grep -qx 'optim.lr=' || fault "completion of 'train --set optim.lr' fails"
complete_words bitrain help opt | grep -qx options || fault "completion of 'help opt' fails"

for shell in zsh fish; do
    ok "$BITRAIN" help --completion $shell
    grep -q -- checkpoint "$tmp/out" && grep -q -- --markdown <<<"$(sed 's/-l markdown/--markdown/' "$tmp/out")" || fault "the completion of $shell lacks verbs or options"
    command -v $shell >/dev/null || continue
    $shell -n "$tmp/out" || fault "the completion script is not valid $shell"
done
[ "$(head -n 1 <("$BITRAIN" help --completion zsh))" = "#compdef bitrain" ] || fault "zsh does not find its completion"

"$BITRAIN" >"$tmp/out" 2>"$tmp/err"
[ $? -eq 2 ] && [ ! -s "$tmp/out" ] && grep -q usage "$tmp/err" || fault "no command must show usage on standard error and exit 2"
"$BITRAIN" help options >/dev/full 2>"$tmp/err"
[ $? -eq 1 ] && grep -q 'cannot write the output' "$tmp/err" || fault "a full disk under the output is not noticed"
exit $bad

#!/usr/bin/env bash
# ctest: ranks=2 timeout=600
# README.md, and the pages on fine-tuning and on several machines to which it links: every command of their code blocks
# runs as printed, in order, in one folder and one shell. Quick form (ctest): the program of this build, a small model
# from the environment, and scripts on this machine in place of ssh, its keys and rsync. FULL=1 on a bare Debian 12, as
# root in a copy of the tree: only the second machine is simulated; ./bootstrap installs and builds, and the models are
# the README's own.
set -u
src=${BT_SRC:-$(cd "$(dirname "$0")/../../.." && pwd)}
tmp=$(mktemp -d)
full=${FULL-}
n_failed=0
fault() { echo "FAULT: $*"; n_failed=$((n_failed + 1)); }
end() {
    [ "$BASHPID" = $$ ] || return # a child before its exec (../train_lib.sh)
    [ -z "${dash-}" ] || kill "$dash" 2>/dev/null
    local p
    for p in $(pgrep -f -- "$tmp" 2>/dev/null); do [ "$p" != $$ ] && kill "$p" 2>/dev/null; done
    cd /
    rm -rf "$tmp"
}
trap end EXIT
script -qec true "$tmp/try" >/dev/null 2>&1 </dev/null || { echo "skipped: script cannot open a pseudo-terminal here"; exit 77; }

# Lists "SECTION<tab>COMMAND" for every line of a block marked sh, in the order in which the pages refer to each other.
pages=("$src/README.md" "$src/engine/TUNING.md" "$src/cli/launch/README.md")
commands() { awk '/^##? /{section = substr($0, index($0, " ") + 1)} /^```sh$/{on = 1; next} /^```/{on = 0} on && NF {print section "\t" $0}' "${pages[@]}"; }

mkdir "$tmp/bin" "$tmp/home" "$tmp/work"
export HOME=$tmp/home XDG_DATA_HOME=$tmp/home/.local/share TERM=xterm
unset BITRAIN_STORE
if [ -z "$full" ]; then
    ln -s "${BITRAIN:-$src/build/bitrain}" "$tmp/bin/bitrain"
    export BITRAIN_MODEL_LAYERS=2 BITRAIN_MODEL_D_MODEL=96 BITRAIN_MODEL_HEADS=2 BITRAIN_MODEL_KV_HEADS=2 BITRAIN_MODEL_D_FF=192 BITRAIN_RANKS=2 BITRAIN_THREADS=1
    # The steps have little work and a delay, so that the run is still active when it is stopped.
    export BITRAIN_TRAIN_BATCH_TOKENS=1024 BITRAIN_TEST_DELAY=10
fi
# The second machine: ssh runs its command here under the host's name, and no key is created.
printf '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nhost=$1; shift\nexec unshare -u sh -c "hostname $host; $*"\n' >"$tmp/bin/ssh"
for p in ssh-keygen ssh-copy-id rsync; do printf '#!/bin/sh\necho "$0 $*" >>"%s/asked"\n' "$tmp" >"$tmp/bin/$p"; done
chmod +x "$tmp"/bin/*
export PATH=$tmp/bin:$PATH OMPI_MCA_plm_rsh_agent=$tmp/bin/ssh
# Open MPI 5 finds no route from an address to itself except over the loopback interface.
export OMPI_MCA_btl_tcp_if_include=lo
# A name of a second machine must not lead to this one, which Open MPI 5 would then take for both: /etc/hosts of the
# commands with --hosts has no such name.
grep -vwE 'node[0-9]+' /etc/hosts >"$tmp/hosts"

# Runs one command on a terminal; a command that shows a screen gets a 'q' after some seconds.
type_it() {
    local line=$1 keys=/dev/null
    case $line in "bitrain top"*) (sleep 4; printf q; sleep 2; printf q) >"$tmp/keys" & exec 9< <(sleep 4; printf q; sleep 2; printf q); keys=/dev/fd/9 ;; esac
    printf '%s\n' "$line" >"$tmp/line.sh"
    # Each host runs as many ranks as it has slots, not all of them.
    case $line in *--hosts*)
        mv "$tmp/line.sh" "$tmp/hosts.sh"
        printf '%s\n' 'unset OMPI_MCA_rmaps_base_oversubscribe PRTE_MCA_rmaps_default_mapping_policy' \
            "exec unshare -m sh -c 'mount --bind $tmp/hosts /etc/hosts; exec bash $tmp/hosts.sh'" >"$tmp/line.sh"
        ;;
    esac
    timeout "${full:+1}200" script -qefc "bash $tmp/line.sh" "$tmp/tty" >/dev/null 2>&1 <"$keys"
}

cd "$tmp/work" || exit 1
two_hosts=
unshare -um true 2>/dev/null && two_hosts=1
total=0
while IFS=$'\t' read -r section line; do
    case $line in
    ./bootstrap*)
        [ -n "$full" ] || { grep -q "^${line#./bootstrap })" "$src/bootstrap" || fault "'$line': bootstrap has no such word"; continue; }
        (cd "$src" && eval "$line") || { fault "'$line' failed"; break; }
        continue
        ;;
    esac
    total=$((total + 1))
    case $line in *--hosts*) [ -n "$two_hosts" ] || { echo "[$section] $line: not tried, unshare gives no second host name here"; continue; } ;; esac
    # README names the package.
    case $line in *curl*) command -v curl >/dev/null || [ -z "$full" ] || apt-get -qq install -y --no-install-recommends curl >/dev/null 2>&1 ;; esac
    case $line in *curl*) command -v curl >/dev/null || { echo "[$section] $line: not tried, there is no curl here"; continue; } ;; esac
    before=$SECONDS
    type_it "$line" </dev/null
    got=$?
    echo "[$section] $line: exit $got, $((SECONDS - before)) s"
    case $line in *curl*) grep -q '"object":"text_completion"' "$tmp/tty" || { fault "the served model gives no text"; tail -n 8 "$tmp/tty"; } ;; esac
    [ $got -eq 0 ] || { fault "exit $got of: $line"; tr -d '\r' <"$tmp/tty" | tail -n 8; }
done < <(commands)
[ $total -ge 24 ] || fault "only $total commands in ${pages[*]}"

# Results: a run that was stopped once and is finished, a report, the continued prompt.
[ "$(bitrain query "SELECT state, steps FROM runs WHERE run='book'" --csv | tail -1)" = done,300 ] || fault "the run is $(bitrain runs)"
[ "$(bitrain query "SELECT count(*) FROM attempts WHERE run='book'" --csv | tail -1)" = 2 ] || fault "the run was not stopped and resumed"
[ "$(wc -c <book.html)" -gt 50000 ] || fault "the report is $(wc -c <book.html) bytes"
[ -z "$two_hosts" ] || [ "$(bitrain query "SELECT state FROM runs WHERE run='far'" --csv | tail -1)" = done ] || fault "the run on two machines is $(bitrain runs far)"
[ -z "$two_hosts" ] || [ "$(bitrain query "SELECT DISTINCT host FROM ranks WHERE run='far' ORDER BY host" --csv | tail -n +2 | tr '\n' ' ')" = "node1 node2 " ] || fault "the ranks are on $(bitrain query "SELECT rank, host FROM ranks WHERE run='far'")"
[ -z "$two_hosts" ] || [ "$(bitrain query "SELECT count(DISTINCT rank) FROM rank_steps WHERE run='far'" --csv | tail -1)" = 4 ] || fault "the run on two machines has not 4 ranks"

# The adapters have learned their only reply, and generate uses the prompt format of training.
answer=$(bitrain generate answers --chat --message "Which licence?" --tokens 20 2>"$tmp/said")
[ "$answer" = "The GNU General Public License." ] || fault "the tuned model answers '$answer'"
grep -q "as in training" "$tmp/said" || fault "the template is not that of training: $(cat "$tmp/said")"
[ -s answers-hf/model.safetensors ] || fault "no merged model"

# Each command inside a sentence, and each of its flags, exists.
inline=$(grep -oE '`(bitrain|\./bootstrap) [^`]*`' -h "${pages[@]}" | tr -d '`' | sort -u)
[ "$(wc -l <<<"$inline")" -ge 12 ] || fault "only $(wc -l <<<"$inline") commands inside sentences"
while read -r program word rest; do
    if [ "$program" = ./bootstrap ]; then
        grep -q "^$word)" "$src/bootstrap" || fault "'$program $word' is no command"
        continue
    fi
    bitrain "$word" --help >"$tmp/help" 2>&1 || { [ "$word" = COMMAND ] || fault "'bitrain $word' is no command"; continue; }
    for flag in $(grep -oE -- '--[a-z-]+' <<<"$rest"); do
        [ "$flag" = --help ] || grep -qE -- "^  $flag( |$)" "$tmp/help" || fault "'bitrain $word' has no $flag"
    done
done <<<"$inline"

# The dashboard serves, and ends when it is interrupted.
if grep -q '`bitrain dash`' "$src/README.md" && bitrain doctor --quick 2>/dev/null | grep -q 'libmicrohttpd: bitrain dash serves'; then
    bitrain dash --port 0 >"$tmp/dash.out" 2>&1 &
    dash=$!
    for _ in $(seq 50); do grep -q 'http://127.0.0.1:' "$tmp/dash.out" && break; sleep 0.1; done
    grep -q 'http://127.0.0.1:' "$tmp/dash.out" || fault "bitrain dash prints: $(cat "$tmp/dash.out")"
    kill -INT $dash
    wait $dash
    dash=
fi
exit $((n_failed > 0))

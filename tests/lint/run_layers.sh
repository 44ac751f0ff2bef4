#!/usr/bin/env bash
# The layer law on include lines, owners of foreign headers, who may print and exit, file sizes.
set -u
cd "$BT_SRC" || exit 1
bad=0
fault() { echo "$*"; bad=1; }

# folder -> what its files may include of ours (besides the folder itself). One-way streets: DESIGN, section 2.
rules='
engine/base
engine/kernels   engine/base
engine/quant     engine/base engine/kernels
engine/model     engine/base engine/kernels engine/quant
engine/parallel  engine/base engine/kernels
engine/optim     engine/base engine/kernels engine/parallel
engine/data      engine/base
engine/ckpt      engine/base engine/model engine/parallel
engine/train     engine
engine/bench     engine
store            engine/base
monitor/job      engine/base store
monitor/tui      engine/base store
web              engine/base store
cli              engine store monitor web
'

# foreign header (extended regex) -> files that may include it (extended regex)
owners='
mpi(-ext)?\.h                 engine/parallel/[^/]*
sqlite3\.h                    store/[^/]*
(n?curses|panel|term)\.h      monitor/tui/term_ncurses\.c
microhttpd\.h                 web/server\.c
[a-z]*mmintrin\.h|x86intrin\.h|immintrin\.h   engine/kernels/isa_[^/]*
cblas\.h                      engine/kernels/blas\.c
cpuid\.h                      engine/kernels/cpu\.c
yaml\.h                       engine/base/opt_yaml\.c
dlfcn\.h                      engine/kernels/blas\.c|cli/doctor_machine\.c
'

sources() { find engine store monitor web cli \( -name node_modules -prune \) -o \( -name '*.c' -o -name '*.h' -o -name '*.def' \) -type f -print; }

includes() { grep -nE '^[[:space:]]*#[[:space:]]*include' "$1" | sed -E 's/^([0-9]+):[^<"]*([<"])([^>"]*)[>"].*/\1 \2 \3/'; }

folder_rule() {                         # the row whose folder is the longest prefix of file $1
    local best= folder rest
    while read -r folder rest; do
        [ -n "$folder" ] || continue
        case $1 in "$folder"/*) [ ${#folder} -gt ${#best} ] && { best=$folder; allowed="$folder $rest"; } ;; esac
    done <<<"$rules"
    [ -n "$best" ]
}

check_file() {                          # $1: file
    local line kind name allowed= ok a re files
    folder_rule "$1" || { fault "$1: its folder has no row in tests/lint/run_layers.sh"; return; }
    while read -r line kind name; do
        if [ "$kind" = '"' ]; then
            ok=
            for a in $allowed; do case $name in "$a"/*) ok=1 ;; esac; done
            [ -n "$ok" ] || fault "$1:$line: may not include '$name' (allowed: $allowed)"
            case $name in *.c) fault "$1:$line: includes a source file" ;; esac
            [ -e "$name" ] || fault "$1:$line: '$name' is not written from the repository root"
        else
            while read -r re files; do
                [ -n "$re" ] || continue
                if grep -qxE "$re" <<<"${name##*/}" && ! grep -qxE "$files" <<<"$1"; then
                    fault "$1:$line: <$name> belongs to $files"
                fi
            done <<<"$owners"
        fi
    done < <(includes "$1")
}

# every word of this list ends or speaks for the program: cli alone may. _exit is for a forked child and MPI's abort.
speaks='(^|[^_[:alnum:].>])(exit|abort|quick_exit|printf|vprintf|puts|putchar|perror|err|errx|warn|warnx|psignal)[[:space:]]*\('
standard='(fprintf|fputs|fputc|fwrite|vfprintf)[[:space:]]*\([^;]*\<(stdout|stderr)\>'
check_silence() {
    case $1 in cli/*|*.def) return ;; esac
    local hits
    hits=$(gcc -fpreprocessed -E -P -x c "$1" 2>/dev/null | sed -E 's/"([^"\\]|\\.)*"//g' | grep -nE "$speaks|$standard")
    [ -z "$hits" ] || fault "$1: library code prints or exits: $hits"
}

check_forks() {
    case $1 in monitor/job/*|cli/doctor_machine.c|cli/cmd_dash*) return ;; esac
    local hits
    hits=$(gcc -fpreprocessed -E -P -x c "$1" 2>/dev/null | sed -E 's/"([^"\\]|\\.)*"//g' |
           grep -nE '(^|[^_[:alnum:].>])(fork|vfork|posix_spawnp?|exec[lv][pe]*|system|popen)[[:space:]]*\(')
    [ -z "$hits" ] || fault "$1: starting processes belongs to monitor/job: $hits"
}

n=0
while read -r f; do
    n=$((n + 1))
    check_file "$f"
    check_silence "$f"
    check_forks "$f"
    lines=$(wc -l <"$f")
    case $f in *.def) ;; *) [ "$lines" -le 600 ] || fault "$f: $lines lines; at 500 look for the second responsibility" ;; esac
done < <(sources)
[ "$n" -ge 40 ] || fault "only $n sources found: the test looks in the wrong place"

# the law must be able to fail: a wrong file in each respect
probe=$(mktemp -d)
trap 'rm -rf "$probe"' EXIT
mkdir -p "$probe/engine/model" "$probe/store"
printf '#include "store/store.h"\n#include <sqlite3.h>\nvoid f(void) { printf("x"); exit(1); }\n' >"$probe/engine/model/wrong.c"
touch "$probe/store/store.h"
caught=$(cd "$probe" && bad=0; check_file engine/model/wrong.c; check_silence engine/model/wrong.c)
for want in "may not include 'store/store.h'" "<sqlite3.h> belongs to" "prints or exits"; do
    grep -qF "$want" <<<"$caught" || fault "the test itself is blind to: $want"
done

[ $bad -eq 0 ] && echo "$n files obey the layer law"
exit $bad

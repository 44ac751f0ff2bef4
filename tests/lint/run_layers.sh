#!/usr/bin/env bash
# The rules for layers on include lines, the files that may include a foreign header, that may print, exit and use what
# Linux alone has, and file sizes.
set -u
cd "$BT_SRC" || exit 1

rules=$(grep -v '^#' tests/lint/layers.txt)

# foreign header (extended regex) -> files that may include it (extended regex)
owners='
mpi(-ext)?\.h                 engine/parallel/.*
sqlite3\.h                    store/.*
(n?curses|panel|term)\.h      monitor/tui/draw/term_ncurses\.c
zstd\.h                       engine/data/io/(text_file|packed)\.c
zlib\.h                       (web/http/compress|engine/data/io/text_file)\.c
microhttpd\.h                 web/(http|server|serve)/[^/]*
[a-z]*mmintrin\.h|x86intrin\.h|immintrin\.h   engine/kernels/isa/isa_[^/]*
cblas\.h                      engine/kernels/isa/blas\.c
cpuid\.h                      engine/kernels/table/cpu\.c
yaml\.h                       engine/base/opt_yaml\.c
dlfcn\.h                      engine/kernels/isa/blas\.c|cli/doctor/doctor_machine\.c|cli/train/rank/rank_stack\.c|monitor/job/machine/mpirun\.c
pcre2\.h                      engine/data/tokenizer/pretok\.c
utf8proc\.h                   engine/data/tokenizer/unicode\.c
zmq\.h                        engine/islands/zmq/[^/]*
'

sources() { find engine store monitor web cli -name node_modules -prune -o \( -name '*.c' -o -name '*.h' -o -name '*.def' \) -type f -print; }

check_includes() { # stdin: names of files
    xargs -d '\n' grep -nHE '^[[:space:]]*#[[:space:]]*include' | RULES=$rules OWNERS=$owners awk '
        BEGIN {
            n = split(ENVIRON["RULES"], row, "\n")
            for (i = 1; i <= n; i++) if (split(row[i], w, " ")) { folder = w[1]; may[folder] = row[i] }
            n = split(ENVIRON["OWNERS"], row, "\n")
            for (i = 1; i <= n; i++) if (split(row[i], w, " ")) owner[w[1]] = w[2]
        }
        {
            file = $0; sub(/:.*/, "", file)
            line = $0; sub(/^[^:]*:/, "", line); sub(/:.*/, "", line)
            ours = match($0, /include[ \t]*"[^"]*"/)
            if (!ours && !match($0, /include[ \t]*<[^>]*>/)) next
            name = substr($0, RSTART, RLENGTH); gsub(/include[ \t]*|["<>]/, "", name)
            if (ours) {
                best = ""
                for (folder in may) if (index(file, folder "/") == 1 && length(folder) > length(best)) best = folder
                if (best == "") { print file ": its folder has no row in tests/lint/layers.txt"; next }
                n = split(may[best], w, " "); ok = 0
                for (i = 1; i <= n; i++) if (name == w[i] || index(name, w[i] "/") == 1) ok = 1
                if (!ok) print file ":" line ": may not include " name " (allowed:" substr(may[best], index(may[best], " ")) ")"
                if (name ~ /\.c$/) print file ":" line ": includes a source file"
                if ((getline unused < name) < 0) print file ":" line ": " name " is not written from the repository root"
                close(name)
            } else {
                base = name; sub(/.*\//, "", base)
                for (re in owner) if (base ~ ("^(" re ")$") && file !~ ("^(" owner[re] ")$")) print file ":" line ": <" name "> belongs to " owner[re]
            }
        }'
}

# Only cli may use the words of the first list, which end the program or print. _exit is for a forked child and MPI's
# abort.
speaks='(^|[^_[:alnum:].>])(exit|abort|quick_exit|printf|vprintf|puts|putchar|perror|err|errx|warn|warnx|psignal)[[:space:]]*\('
standard='(fprintf|fputs|fputc|fwrite|vfprintf)[[:space:]]*\([^;]*\<(stdout|stderr)\>'
starts='(^|[^_[:alnum:].>])(fork|vfork|posix_spawnp?|exec[lv][pe]*|system|popen)[[:space:]]*\('
check_calls() {                         # $1: file, comments and texts taken out first
    local code hits
    code=$(gcc -fpreprocessed -E -P -x c "$1" 2>/dev/null | sed -E 's/"([^"\\]|\\.)*"//g')
    case $1 in cli/*) ;; *) hits=$(grep -E "$speaks|$standard" <<<"$code") && echo "$1: library code prints or exits: $hits" ;; esac
    case $1 in engine/base/system/start_process.c|monitor/job/launch/server_guard.c) ;; # the guard continues in both processes
    *) hits=$(grep -E "$starts" <<<"$code") && echo "$1: starting processes belongs to engine/base/system/start_process.c: $hits" ;;
    esac
}
export -f check_calls
export speaks standard starts

# Headers, calls and paths that Linux alone has belong to engine/base/os. Exceptions, as FILE:TEXT: features of ARM processors, as those
# of x86 belong to cpu.c; a command for the shell of another host; a remedy that is printed.
linux_only='#[[:space:]]*include[[:space:]]*<((linux|asm)/|(sched|malloc)\.h|sys/(auxv|epoll|eventfd|inotify|pidfd|prctl|ptrace|sendfile|signalfd|statfs|syscall|sysinfo|sysmacros|timerfd|vfs|xattr)\.h)'
linux_only+='|(^|[^_[:alnum:].>])(epoll_[a-z0-9_]+|eventfd(_[a-z]+)?|signalfd|timerfd_[a-z]+|inotify_[a-z0-9_]+|memfd_create|pidfd_[a-z_]+|prctl|syscall|sched_[gs]etaffinity|madvise|f?statfs|process_vm_[a-z]+|gettid|malloc_trim)[[:space:]]*\('
linux_only+='|O_TMPFILE|SO_PEERCRED|"([^"\\]|\\.)*/(proc|sys)/'
linux_exempt='^(engine/kernels/table/cpu_arm\.c:.*<(asm/hwcap|sys/auxv)\.h>|monitor/job/launch/remote_cleanup\.c:.* grep .*/proc/|cli/doctor/doctor_machine\.c:.*"echo madvise > )'
check_system() {                        # stdin: names of files
    grep -v '^engine/base/os/' | xargs -d '\n' grep -nHE "$linux_only" | grep -vE "$linux_exempt" | sed 's,$, (belongs to engine/base/os),'
}

# Only the files of a part read its settings (engine/train/parts/NAME/NAME_settings.def). The name of a field is the
# last word of its key.
check_settings() {
    local table folder
    for table in engine/train/parts/*/*_settings.def; do
        [ -e "$table" ] || continue
        folder=${table%/*}
        grep -rnE "(cfg(\.|->)|\<c->)${folder##*/}\." engine cli monitor store web --include='*.[ch]' | grep -v "^$folder/" |
            sed "s,\$, (a setting of $folder alone),"
    done
    find engine -name '*_settings.def' -print0 | xargs -0 -r sed -nE 's/^BT_[A-Z]+ *\(([a-z_0-9]+), *"[a-z]+\.([a-z_0-9]+)".*/\1 \2/p' |
        awk '$1 != $2 && $2 != "continue" {print "the field of a setting named " $2 " is " $1}' # a keyword of C cannot be a field
}

all() { # prints every fault of the tree below the current folder
    check_settings
    sources | check_includes
    sources | check_system
    # The source itself is searched only if a line contains one of the words, which may be in a comment or a text.
    sources | grep -v '\.def$' | xargs -d '\n' grep -lE "$speaks|$standard|$starts" | xargs -r -d '\n' -P "$(nproc)" -I{} bash -c 'check_calls {}'
    sources | grep -v '\.def$' | xargs -d '\n' wc -l | awk '$1 > 600 && $2 != "total" {print $2 ": " $1 " lines; at 500 look for the second responsibility"}'
}

# The check itself can fail: one file violates the rules in each respect.
probe=$(mktemp -d)
trap 'rm -rf "$probe"' EXIT
mkdir -p "$probe"/{engine/model/net,store,monitor,web,cli,engine/odd}
printf '#include "store/store.h"\n#include <sqlite3.h>\n#include "nowhere.h"\nvoid f(void) { printf("x"); }\nvoid g(void) { fork(); }\n' >"$probe/engine/model/net/wrong.c"
printf '#include "store/store.h"\n' >"$probe/engine/odd.c"
yes '' | head -601 >>"$probe/engine/model/net/wrong.c"
printf '#include <sys/epoll.h>\nint k(void) { return prctl(1); }\nconst char *p = "/proc/self/stat";\n' >"$probe/monitor/odd.c"
touch "$probe/store/store.h"
mkdir -p "$probe/engine/train/parts/odd"
printf 'BT_INT (oddness, "train.oddity", NULL, 0, 0, 1, NULL, "odd")\n' >"$probe/engine/train/parts/odd/odd_settings.def"
printf 'int h(const struct bt_run_cfg *c) { return c->odd.oddness; }\n' >>"$probe/engine/odd.c"
caught=$(cd "$probe" && all)
for want in "may not include store/store.h" "<sqlite3.h> belongs to" "not written from the repository root" "prints or exits" "starting processes" \
    "odd.c:1:#include <sys/epoll.h> (belongs to engine/base/os)" "odd.c:2:int k(void) { return prctl(1); } (belongs" "odd.c:3:const char *p = " \
    "606 lines" "odd.c: its folder has no row" "c->odd.oddness; } (a setting of engine/train/parts/odd alone)" "named oddity is oddness"; do
    grep -qF "$want" <<<"$caught" || { echo "the test itself is blind to: $want"; exit 1; }
done

faults=$(all)
n=$(sources | wc -l)
[ "$n" -ge 40 ] || faults="$faults only $n sources found: the test looks in the wrong place"
[ -z "$faults" ] || { echo "$faults"; exit 1; }
echo "$n files obey the layer law"

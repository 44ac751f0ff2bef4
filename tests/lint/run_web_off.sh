#!/bin/bash
# ctest: timeout=300
# -DBITRAIN_WEB=OFF: the build needs no npm and does not link the HTTP library, and commands that need the dashboard
# report that.
set -u
command -v cmake >/dev/null || { echo "SKIP: cmake is missing"; exit 77; }
generator=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$BT_BIN/CMakeCache.txt")
launcher=$(sed -n 's/^CMAKE_C_COMPILER_LAUNCHER:[A-Z]*=//p' "$BT_BIN/CMakeCache.txt")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/bin"
printf '#!/bin/sh\necho "npm $*" >>"%s/asked"\nexit 1\n' "$dir" >"$dir/bin/npm"
chmod +x "$dir/bin/npm"
failed=0
bad() { echo "FAIL: $*"; failed=1; }
PATH=$dir/bin:$PATH cmake -S "$BT_SRC" -B "$dir/b" -G "$generator" -DBITRAIN_WEB=OFF -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG=-O0 "-DCMAKE_C_COMPILER_LAUNCHER=$launcher" >"$dir/log" 2>&1 || { tail -20 "$dir/log"; exit 1; }
grep -q "dashboard: off, BITRAIN_WEB is OFF" "$dir/log" || bad "configuring does not say that the dashboard is off"
# Only the dashboard's archive and the sources that depend on it differ. If this build is plain and uses Ninja, all
# other objects and archives are linked instead of built again.
build() {
    local link asks object
    if [ "$generator" = Ninja ] && ! grep -qE '^BITRAIN_(SANITIZE|FUZZ|COVERAGE):BOOL=ON' "$BT_BIN/CMakeCache.txt"; then
        asks=$(cd "$BT_SRC" && grep -rlE '\<BITRAIN_HAVE_WEB\>' cli --include='*.c' | sed 's#^cli/#cli/CMakeFiles/bitrain.dir/#; s#$#.o#')
        (cd "$BT_SRC" && ! grep -rnE '\<BITRAIN_(HAVE_)?WEB\>' cli --include='*.h' && ! grep -rnE '\<BITRAIN_(HAVE_)?WEB\>' engine store monitor --include='*.[ch]') || return 1
        link=$(ninja -C "$dir/b" -t commands bitrain | tail -1 |
            sed -E "s#(^| )((engine|engine/kernels|store|monitor)/lib[a-z_]+\\.a|cli/CMakeFiles/[^ ]*\\.o)#\\1$BT_BIN/\\2#g") || return 1
        for object in $asks; do link=${link//"$BT_BIN/$object"/$object}; done
        ninja -C "$dir/b" -j2 web/libbt_web.a $asks && (cd "$dir/b" && eval "$link")
    else
        cmake --build "$dir/b" -j2 --target bitrain
    fi
}
PATH=$dir/bin:$PATH build >"$dir/log" 2>&1 || { grep -E "error|warning" -A5 "$dir/log" | head -40; tail -5 "$dir/log"; exit 1; }
[ ! -e "$dir/asked" ] || bad "npm was asked: $(cat "$dir/asked")"
if ldd "$dir/b/bitrain" | grep -q microhttpd; then bad "the HTTP library is linked"; fi
export BITRAIN_STORE="$dir/w.db" XDG_RUNTIME_DIR="$dir" HOME="$dir"
refuses() { "$dir/b/bitrain" "$@" >"$dir/out" 2>"$dir/err"; local status=$?; [ $status -eq 1 ] && grep -q "built without" "$dir/err" || bad "$*: status $status, $(cat "$dir/err")"; }
refuses dash --port 0
refuses bench http
"$dir/b/bitrain" doctor --quick | grep -q "without the dashboard" || bad "doctor does not say so"
"$dir/b/bitrain" help | grep -q "^  *train" || bad "the rest is not there"
cmake --build "$dir/b" --target help 2>/dev/null | grep -q "t\.web\." && bad "tests of the dashboard are built without it"
[ $failed -eq 0 ] && echo "built without the dashboard, and says so"
exit $failed

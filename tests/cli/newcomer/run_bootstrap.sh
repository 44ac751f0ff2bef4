#!/usr/bin/env bash
# ctest: timeout=60
# ./bootstrap on a machine whose package manager, compiler and build are replaced by scripts: it prints the packages and
# their size, shows progress, distinguishes a certificate error from a missing network, and prints commands that put
# 'bitrain' into the path and work.
set -u
bad=0
fault() { echo "FAULT: $*"; bad=1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/src" "$tmp/bin" "$tmp/home"
cp "$BT_SRC/bootstrap" "$tmp/src/"
mkdir "$tmp/few" # the programs that ./bootstrap itself calls, without zopfli
for p in bash sh env awk sed grep head tail cat mkdir ln touch rm sort wc date nproc printf dirname chmod seq mktemp ninja mpicc mpirun; do
    path=$(command -v "$p" 2>/dev/null) && [ -x "$path" ] && ln -s "$path" "$tmp/few/$p"
done
stub() { printf '#!/bin/bash\n%s\n' "$2" >"$tmp/bin/$1"; chmod +x "$tmp/bin/$1"; }

stub id 'echo ${FAKE_UID:-1000}'
stub sudo '[ "${1-}" = -n ] && shift; exec "$@"'
stub gcc 'echo 12'
stub npm 'exit 0'
stub pkg-config '[ -n "${FAKE_LIBRARIES-}" ]'
stub dpkg-query 'for p; do :; done; [ -e "$FAKE/installed" ] && [ "$p" != "${FAKE_LACKS-}" ] && echo installed'
stub apt-cache '[ "$1" = show ] && [ -e "$FAKE/lists" ] && for p in "${@:3}"; do echo "Package: $p"; echo "Installed-Size: 2048"; done'
stub apt-get '
echo "$*" >>"$FAKE/asked"
case " $* " in
*" update "*) [ -z "${FAKE_UPDATE-}" ] || { printf "%b\n" "$FAKE_UPDATE" >&2; exit 100; }; touch "$FAKE/lists" ;;
*" -s "*) echo "Inst one (1.0)"; echo "Inst two (1.0)"; echo "Inst three (1.0)" ;;
*" --print-uris "*) echo "'\''http://mirror.invalid/one.deb'\'' one.deb 5000000 SHA256:0"; echo "'\''http://mirror.invalid/two.deb'\'' two.deb 7000000 SHA256:0" ;;
*" install "*)
    [ -z "${FAKE_INSTALL-}" ] || { printf "%b\n" "$FAKE_INSTALL" >&2; exit 100; }
    [[ "$*" = *APT::Status-Fd=3* ]] || exit 7
    echo "dlstatus:1:10.5:Retrieving file 1 of 3" >&3; echo "dlstatus:2:80.0:Retrieving file 2 of 3" >&3
    echo "Unpacking one ..."; echo "pmstatus:one:30.0:Unpacking one" >&3; echo "pmstatus:one:100.0:Installed one" >&3
    touch "$FAKE/installed" ;;
esac'
stub cmake '
if [ "$1" = --build ]; then
    for i in $(seq 100); do echo "[$i/100] Building C object x$i.o"; [ $i != 35 ] || echo "x35.c:1: warning: odd"; done
    printf "#!/bin/sh\necho typed\n" >build/bitrain; chmod +x build/bitrain
    [ -z "${FAKE_BUILD-}" ] || exit 1
elif [ -n "${FAKE_CHART-}" ]; then echo "-- dashboard: off, uPlot could not be fetched from x ($FAKE_CHART): is there a network?; BITRAIN_CHART"; fi'

# fresh NAME=VALUE...: runs ./bootstrap build on a new machine with these settings; its output is in out
fresh() {
    rm -rf "$tmp/fake" "$tmp/home" "$tmp/src/build"
    mkdir -p "$tmp/fake" "$tmp/home"
    again "$@"
}
again() {
    env -i HOME="$tmp/home" FAKE="$tmp/fake" PATH="$tmp/bin:/usr/bin:/bin" TERM=xterm "$@" bash "$tmp/src/bootstrap" build >"$tmp/out" 2>&1 </dev/null
}
says() { grep -qF -- "$1" "$tmp/out" || fault "it does not print \"$1\": $(cat "$tmp/out")"; }
silent() { if grep -qiE -- "$1" "$tmp/out"; then fault "it prints '$1': $(cat "$tmp/out")"; fi; }

fresh || fault "exit $? of ./bootstrap build: $(cat "$tmp/out")"
says "fetching the lists of packages"
says "installing 3 packages, "
says "12 MB to fetch, 6 MB on disk"
says "fetching packages: 10 %"
says "fetching packages: 80 %"
says "installing packages: 100 %"
says "building: 10 %"
says "building: 100 %"
says "x35.c:1: warning: odd"
[ "$(grep -c Building "$tmp/out")" = 0 ] && [ "$(grep -c 'building: ' "$tmp/out")" = 10 ] || fault "not a line for every tenth of the build: $(cat "$tmp/out")"
grep -q "Unpacking one" "$tmp/src/build/packages.log" || fault "the log lacks what apt-get prints"
# The printed line works: the program can be called in this terminal and in the next.
line=$(sed -n 's/^    \(export PATH=.*\)/\1/p' "$tmp/out")
[ -n "$line" ] || fault "it does not print how to make 'bitrain' typeable: $(cat "$tmp/out")"
[ "$(env -i HOME="$tmp/home" PATH=/usr/bin:/bin bash -c "$line; bitrain")" = typed ] || fault "'$line' does not make 'bitrain' typeable"
[ "$(env -i HOME="$tmp/home" PATH=/usr/bin:/bin bash -c '. ~/.profile; bitrain')" = typed ] || fault "'$line' does not last"
: >"$tmp/fake/asked"
again PATH="$tmp/bin:/usr/bin:/bin:$tmp/home/.local/bin" || fault "exit $? of the second run"
says "built; type 'bitrain'"
[ ! -s "$tmp/fake/asked" ] || fault "the second run requests packages: $(cat "$tmp/fake/asked")"
again FAKE_BUILD=1 && fault "a build that fails passes"
says "the build failed"
# Another program with that name is not replaced.
rm "$tmp/home/.local/bin/bitrain"; echo other >"$tmp/home/.local/bin/bitrain"
again
says "is another program: left as it is"
[ "$(cat "$tmp/home/.local/bin/bitrain")" = other ] || fault "somebody else's program is replaced"

fresh FAKE_UPDATE="W: Failed to fetch https://mirror.invalid/x  Certificate verification failed: The certificate is NOT trusted." && fault "an untrusted certificate passes"
says "the certificate of the package server is not trusted here"
says "update-ca-certificates"
silent "is there a network"
fresh FAKE_UPDATE="W: Failed to fetch http://mirror.invalid/x  Temporary failure resolving 'mirror.invalid'\nE: Some index files failed to download. libgnutls30 libssl3" && fault "no network passes"
says "the package server cannot be reached: is there a network?"
silent certificate.*trusted
fresh FAKE_INSTALL="E: Failed to fetch https://mirror.invalid/x  SSL handshake failed, certificate verify failed" && fault "an untrusted certificate passes"
says "the certificate of the package server is not trusted here"
fresh FAKE_UPDATE="E: Release file for http://mirror.invalid/x is not valid yet (invalid for another 3h 2min)." && fault "a wrong clock passes"
says "the clock of this machine is wrong"
grep -q "install them, as root: apt-get install --no-install-recommends .* libyaml-dev" "$tmp/out" || fault "it does not print the command that installs: $(cat "$tmp/out")"

# Libraries of conda, spack or a module are used; a missing package that the build does not need does not end it.
fresh FAKE_LIBRARIES=1 || fault "exit $? with libraries from elsewhere"
if grep -q "libyaml-dev" "$tmp/fake/asked"; then fault "a library that pkg-config finds is installed: $(cat "$tmp/fake/asked")"; fi
touch "$tmp/fake/installed"
again FAKE_LACKS=zopfli FAKE_INSTALL="E: Unable to locate package zopfli" PATH="$tmp/bin:$tmp/few" || fault "an optional package ends the build: $(cat "$tmp/out")"
says "going on without: zopfli"

# Another user has built this tree.
if [ "$(\id -u)" = 0 ] && command -v setpriv >/dev/null; then
    chmod -R a+rX "$tmp"
    env -i HOME=/nonexistent FAKE="$tmp/fake" PATH="$tmp/bin:/usr/bin:/bin" setpriv --reuid 54321 --regid 54321 --clear-groups bash "$tmp/src/bootstrap" train >"$tmp/out" 2>&1 </dev/null ||
        fault "exit $? in a tree that cannot be written: $(cat "$tmp/out")"
    says "is used as it is"
    says typed
fi

# The chart library: npm is used only if the build cannot fetch two files itself, and not after a certificate error.
fresh || fault "exit $?"
if grep -q npm "$tmp/fake/asked"; then fault "npm is installed without need"; fi
rm "$tmp/bin/npm"
if ! PATH=/usr/bin:/bin command -v npm >/dev/null; then
    fresh FAKE_CHART="Couldn't resolve host name" || fault "exit $? without a chart library: $(cat "$tmp/out")"
    says "trying npm instead"
    grep -q "install.* npm$" "$tmp/fake/asked" || fault "npm is not requested: $(cat "$tmp/fake/asked")"
    says "no browser dashboard (uPlot could not be fetched"
    silent update-ca-certificates
    fresh FAKE_CHART="the server's certificate is not trusted here" || fault "exit $? without a chart library: $(cat "$tmp/out")"
    says "no browser dashboard (uPlot could not be fetched"
    says "update-ca-certificates"
fi

# On a terminal a bar shows the progress.
if script -qec true "$tmp/try" >/dev/null 2>&1 </dev/null; then
    rm -rf "$tmp/fake" "$tmp/src/build"; mkdir -p "$tmp/fake"
    env -i HOME="$tmp/home" FAKE="$tmp/fake" PATH="$tmp/bin:/usr/bin:/bin" TERM=xterm script -qec "bash $tmp/src/bootstrap build" "$tmp/tty" >/dev/null 2>&1 </dev/null
    tr '\r' '\n' <"$tmp/tty" | grep -qF "###################-----  80 %  fetching packages  Retrieving file 2 of 3" || fault "no bar on a terminal: $(cat -v "$tmp/tty")"
fi
exit $bad

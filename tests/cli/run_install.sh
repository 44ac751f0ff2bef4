#!/usr/bin/env bash
# `cmake --install` gives the program, its man page and its completion.
set -u
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cmake --install "$BT_BIN" --prefix "$tmp/usr" >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
bad=0
for f in bin/bitrain share/man/man1/bitrain.1 share/bash-completion/completions/bitrain share/zsh/vendor-completions/_bitrain share/fish/vendor_completions.d/bitrain.fish; do
    [ -s "$tmp/usr/$f" ] || { echo "not installed: $f"; bad=1; }
done
"$tmp/usr/bin/bitrain" --version | grep -q '^bitrain ' || { echo "the installed program does not run"; bad=1; }
cmp -s <("$BITRAIN" help --man) "$tmp/usr/share/man/man1/bitrain.1" || { echo "the man page is not this program's"; bad=1; }
exit $bad

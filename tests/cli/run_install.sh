#!/usr/bin/env bash
# `cmake --install` installs the program, its man page and its completion.
set -u
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cmake --install "$BT_BIN" --prefix "$tmp/usr" >"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
bad=0
for f in bin/bitrain share/man/man1/bitrain.1 share/bash-completion/completions/bitrain share/zsh/vendor-completions/_bitrain share/fish/vendor_completions.d/bitrain.fish \
    share/doc/bitrain/copyright share/doc/bitrain/README.md share/doc/bitrain/cli/CHANGELOG.md lib/systemd/system/bitrain@.service; do
    [ -s "$tmp/usr/$f" ] || { echo "not installed: $f"; bad=1; }
done
# Each link of the installed README leads to an installed page.
for f in $(grep -oE '\]\([a-zA-Z][a-zA-Z_/.]*\.(md|svg)' "$tmp/usr/share/doc/bitrain/README.md" | sed 's/^](//' | sort -u); do
    [ -s "$tmp/usr/share/doc/bitrain/$f" ] || { echo "not installed: $f"; bad=1; }
done
"$tmp/usr/bin/bitrain" --version | grep -q '^bitrain ' || { echo "the installed program does not run"; bad=1; }
cmp -s <("$BITRAIN" help --man) "$tmp/usr/share/man/man1/bitrain.1" || { echo "the man page is not this program's"; bad=1; }
exit $bad

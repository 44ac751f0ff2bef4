#!/usr/bin/env bash
# Prints ten sentences of comments, help or messages and ten names of functions, drawn at random: for judging by reading whether a
# stranger understands them at first reading. Not a test.
#   draw_language.sh [SEED]
set -u
cd "${BT_SRC:-$(dirname "$0")/../..}" || exit 1
seed=${1:-1}
draw() { awk -v seed="$seed" 'BEGIN { srand(seed) } { line[NR] = $0 } END { for (i = 0; i < 10 && NR; i++) print line[int(rand() * NR) + 1] }'; }
files() { git ls-files cli engine monitor store web | grep -E '\.(c|h|def)$' | grep -v -e /golden/ -e /vendor/ | LC_ALL=C sort; }

echo "sentences:"
files | xargs perl -0777 -ne 'while (m{/\*(.*?)\*/|"((?:[^"\\\n]|\\.)*)"}gs) {
    my $text = join " ", split /[\s*]+/, $1 // $2;
    my $words = () = $text =~ /\b[a-z]{2,}\b/g;
    print "$ARGV: $text\n" if $words >= 5 && $text !~ /\b(?:SELECT|FROM|WHERE)\b/;
}' | draw
echo "names:"
files | xargs grep -oHE '^(static )?[a-z_][a-z_0-9 *]* \**[a-z][a-z_0-9]*\(' | sed -E 's/:.*[ *]([a-z_0-9]+)\($/: \1/' | draw

#!/usr/bin/env bash
# References in comments and READMEs exist in the tree: files by name or by the end of their path; no other documents;
# and a source's first line states what the file does instead of pointing at its header. Each row of the mutation table
# (tests/mutation/tests.txt) names a path of the tree, and each of its regular expressions matches a test.
set -u
cd "$BT_SRC" || exit 1
files() { if [ -e .git ]; then git ls-files -co --exclude-standard; else find . -path ./build -prune -o -type f -print | sed 's,^\./,,'; fi; }

check() { # list of files on standard input; prints the faults
    perl -e '
use strict; use warnings;
chomp(my @files = <STDIN>);
@files = grep { -f } @files;
my (%base, %tail);
for my $f (@files) { # a path may be given by any end of it
    my @parts = split m{/}, $f;
    $base{$parts[-1]} = 1;
    $tail{join "/", @parts[$_ .. $#parts]} = 1 for 0 .. $#parts;
}
my $name = qr{(?<![\w./<*>-])[a-z][a-z0-9_]{2,}(?:/[a-z0-9_]+)*\.(?:def|md|sh|mjs|py|c|h)\b(?!\w|\.\w|->|\()};
for my $f (@files) {
    next unless $f =~ m{\.(?:c|h|def|md)$} && $f !~ m{golden|^web/static/vendor/};
    open my $in, "<", $f or next;
    local $/; my $text = <$in>;
    print "$f: the first line points at a header; say what this file does\n"
        if $f =~ /\.c$/ && $text =~ m{\A/\* \S+ - see \S+\.h\b};
    my @parts = $f =~ /\.md$/ ? ($text) : ($text =~ m{(/\*.*?\*/)}gs);
    for my $part (@parts) {
        print "$f: $&: not in the tree\n" while $part =~ m{\bDESIGN\b|\bHOUSE\b|\bfacts[:/]}g;
        while ($part =~ m{$name}g) {
            my $word = $&;
            next if $word =~ m{_x\.[a-z]+$|^sqlite3\.h$}; # a pattern for names; a file of another library
            print "$f: $word: no such file\n" unless $tail{$word};
        }
    }
}'
}

# The check itself can fail.
probe=$(mktemp -d) || exit 1
trap 'rm -rf "$probe"' EXIT
printf '/* wrong.c - see wrong.h. The rest is in nowhere/else.md, DESIGN 5. right.h is here. */\n' > "$probe/wrong.c"
printf '/* right.h - fine. */\n' > "$probe/right.h"
found=$(cd "$probe" && printf 'wrong.c\nright.h\n' | check | wc -l)
[ "$found" = 4 ] || { echo "of 4 faults $found were found"; exit 1; }

check_mutation() {                      # $1: the table; names of tests on standard input; prints the faults
    local names path expressions one
    names=$(cat)
    grep -v '^#' "$1" | while read -r path expressions; do
        [ -n "$path" ] || continue
        [ -e "$path" ] || echo "$1: $path: not in the tree"
        for one in $expressions; do
            grep -qE -- "$one" <<<"$names" || echo "$1: $path: $one: no such test"
        done
    done
}
printf 'tests/lint/ ^lint\.tree$ ^lint\.nothing$\nnowhere/ ^lint\.tree$\n' > "$probe/table"
found=$(echo lint.tree | check_mutation "$probe/table" | wc -l)
[ "$found" = 2 ] || { echo "of 2 faults of a mutation table $found were found"; exit 1; }

hits=$(files | check
    files | sed -nE 's,^tests/(.*/)?(test|run)_([^/]*)\.(c|sh)$,\1\3,p' | tr / . | check_mutation tests/mutation/tests.txt)
[ -z "$hits" ] || { echo "$hits"; exit 1; }

#!/usr/bin/env bash
# The pages (*.md) have at most 1,000 words each and 45 words per table cell, their links lead to existing files and
# headings, and the Chinese README has the headings, commands and pictures of the English one. Generated pages, which
# are listed below, may be long.
set -u
cd "$BT_SRC" || exit 1
generated='^cli/REFERENCE\.md$'
files() { if [ -e .git ]; then git ls-files -co --exclude-standard; else find . -path ./build -prune -o -type f -print | sed 's,^\./,,'; fi; }

check() {                               # $1: pattern of generated pages; names of pages on standard input; prints the faults
    GENERATED=$1 perl -CSD -e '
use strict; use warnings;
my %anchors;
sub anchors { # the anchors of a page, as generated from its headings
    my $page = shift;
    return $anchors{$page} if $anchors{$page};
    my (%of, $code);
    open my $in, "<", $page or return {};
    while (<$in>) {
        $code = !$code if /^```/;
        next unless !$code && /^#+ (.*)/;
        my $name = lc $1;
        $name =~ s/[^\w\- ]//g; $name =~ s/ /-/g;
        $of{$name} = 1;
    }
    return $anchors{$page} = \%of;
}
while (my $page = <STDIN>) {
    chomp $page;
    open my $in, "<", $page or next;
    my $text = do { local $/; <$in> };
    my $words = () = $text =~ /\S+/g;
    my $long = $page =~ /$ENV{GENERATED}/;
    print "$page: $words words, at most 1,000: split it by question\n" if $words > 1000 && !$long;
    (my $prose = $text) =~ s/^```.*?^```//gms;
    for my $line (grep { /^\|/ && !$long } split /\n/, $prose) {
        for my $cell (split /(?<!\\)\|/, $line) {
            my $n = () = $cell =~ /\S+/g;
            print "$page: a table cell of $n words, at most 45: ", substr($cell, 0, 60), "...\n" if $n > 45;
        }
    }
    $prose =~ s/`[^`\n]*`//g;
    (my $folder = $page) =~ s,[^/]*$,,;
    while ($prose =~ /\]\(([^)\s]+)\)/g) {
        my ($link, $path, $heading) = ($1, split /#/, $1, 2);
        next if $link =~ m{^https?:};
        my @parts;
        for (split m{/}, $path eq "" ? $page : "$folder$path") { if ($_ eq "..") { pop @parts } elsif ($_ ne ".") { push @parts, $_ } }
        my $target = join "/", @parts;
        if (!-e $target) { print "$page: $link leads to nothing\n" }
        elsif ($heading && !anchors($target)->{$heading}) { print "$page: $link: no such heading\n" }
    }
}'
}

same() { # compares two READMEs: headings by level, commands, code in sentences and tables, pictures
    skeleton() {
        awk '/^```/{code = !code; print; next} code' "$1"
        sed '/^```/,/^```/d' "$1" | grep -oE '^#+ ' | tr -d ' '
        sed '/^```/,/^```/d' "$1" | grep -oE '`[^`]+`' | sort
        grep -oE '\]\([^)]*\)' "$1" | sed 's,.*/,,; s,^](,,; s,)$,,' | grep -v '^README' | sort
    }
    diff <(skeleton "$1") <(skeleton "$2") >"$probe/difference" || { echo "$2 differs from $1 in headings, commands, code or links:"; cat "$probe/difference"; }
}

# The check itself can fail.
probe=$(mktemp -d) || exit 1
trap 'rm -rf "$probe"' EXIT
{
    printf '# Long\n\n'
    seq 1001
    printf '\n| a | b |\n|---|---|\n| %s | x |\n' "$(seq -s ' ' 46)"
    printf '[none](none.md) [heading](long.md#nothing) [right](long.md#long)\n'
} >"$probe/long.md"
printf '# A\n\n```sh\nls\n```\n' >"$probe/a.md"
printf '# B\n\n```sh\nls -l\n```\n' >"$probe/b.md"
found=$(cd "$probe" && echo long.md | check '^none$' | wc -l)
[ "$found" = 4 ] || { echo "of 4 faults of a page $found were found"; exit 1; }
[ -n "$(same "$probe/a.md" "$probe/b.md")" ] || { echo "another command in the second README was not found"; exit 1; }

hits=$(files | grep '\.md$' | grep -v '/golden/' | check "$generated"
    same README.md cli/README.zh.md)
[ -z "$hits" ] || { echo "$hits"; exit 1; }

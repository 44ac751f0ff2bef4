#!/usr/bin/env bash
# Measures the language of comments, help strings and messages by folder: verbs of speech, sight and posture that are
# used for programs and data, per 1,000 words, and the percentage of comments that begin as a subordinate clause ("of
# the ...", "what ..."). language.txt contains the limits; a figure above its limit fails the test. Adjacent comment
# lines of scripts are one comment. Messages of tests are not measured, because most are expected output.
#     --write           lowers the limits to the present figures; it never raises one
#     --quote FOLDER    prints the sentences that count in this folder
set -u
cd "${BT_SRC:-$(dirname "$0")/../..}" || exit 1
limits=tests/lint/language.txt

# stdin: names of files; prints FOLDER WORDS VERBS FRAGMENTS VERBS FRAGMENTS, the second pair including messages in the
# code. A folder is a row of the table $1, or else the first two levels of a file's path. With a folder as $2 it prints
# the sentences that count there.
measure() {
    perl -Mopen=:std,:encoding\(UTF-8\) -e '
        use strict;
        my $verbs = qr/\b(?:tell|tells|told|telling|say|says|said|ask|asks|asked|asking|hear|hears|heard|know|knows|knew|known to|owe|owes|owed|want|wants|wanted|judge|judges|judged|come|comes|came|coming|stay|stays|stayed|lie|lies|lay|stand|stands|stood|nobody|others|look at|looks at|looked at|learn of|believe|believes|believed|meet|meets|met|heed|heeds|begins afresh|there is no word|by itself|goes on|go on|went on|gone on)\b/i;
        my $clause = qr/^(?:of|what|whose|as|where|which|who|that|those|whom|how|whether|beside|behind|until|from|by|with|without|under|among)\b/i;
        my $word = qr/[A-Za-z][A-Za-z\x27-]*/;
        my $sql = qr/\b(?:SELECT|FROM|WHERE|JOIN|AS|ON|AND|IS|NULL|CASE|WHEN|THEN|ELSE|END|VALUES|WITH|(?:ORDER|GROUP) BY|PRAGMA|CREATE|INSERT|UPDATE|DELETE)\b/;
        my ($table, $quoted) = @ARGV;
        my (%row, %n);
        open my $t, "<", $table or die "$table: $!\n";
        while (<$t>) { $row{$1} = 1 if /^([^#\s]+)\s/ }

        sub folder { # the nearest row above the file
            my $f = my $path = shift;
            while ($f =~ s,/[^/]*$,,) { return $f if $row{$f} }
            return $path =~ m,^([^/]+/[^/]+)/, ? $1 : $path =~ s,/[^/]*$,,r;
        }

        sub count { # one comment, help string or message
            my ($folder, $name, $text, $is_message) = @_;
            my $flat = join " ", split " ", $text;
            $flat =~ s/\bc \d{4}.*//;
            $flat =~ s/^[ *=-]+|[ *=-]+$//g;
            my $words = () = $flat =~ /$word/g;
            my $keywords = () = $flat =~ /$sql/g;
            return if !$words || $keywords >= 2; # an SQL statement is not a sentence
            my $found = () = $flat =~ /$verbs/g;
            my $body = $flat =~ s/^[\w.\/-]+\.(?:c|h|js|def) - //r;
            my $fragment = $words >= 3 && $body =~ $clause ? 1 : 0;
            print "$name: $flat\n" if defined $quoted && $folder eq $quoted && ($found || $fragment);
            for my $s ($is_message ? ("all") : ("all", "comments")) {
                $n{$folder}{$s}{words} += $words;
                $n{$folder}{$s}{verbs} += $found;
                $n{$folder}{$s}{texts}++ if $words >= 3;
                $n{$folder}{$s}{fragments} += $fragment;
            }
        }

        while (my $name = <STDIN>) {
            chomp $name;
            open my $f, "<", $name or next;
            local $/;
            my $text = <$f>;
            my $folder = folder($name);
            if ($name =~ /\.sh$/) { # adjacent lines are one comment
                while ($text =~ /((?:^[ \t]*#(?!!)[^\n]*\n)+)/mg) {
                    count($folder, $name, $1 =~ s/^[ \t]*#//gmr, 0);
                }
                next;
            }
            if ($name =~ /\.mjs$/) { 1 while $text =~ s{(^[ \t]*//[^\n]*)\n[ \t]*//}{$1}mg; }
            while ($text =~ m{/\*(.*?)\*/|//([^\n]*)}gs) {
                count($folder, $name, (defined $1 ? $1 : $2) =~ s/\n\s*\*/\n/gr, 0);
            }
            next if $name =~ m,^tests/,;
            if ($name =~ /\.def$/) {
                count($folder, $name, $1, 0) while $text =~ /"((?:[^"\\]|\\.){12,})"/gs;
            } elsif ($name =~ /\.(?:c|js)$/) {
                $text =~ s{/\*.*?\*/|//[^\n]*}{ }gs;
                $text =~ s/"\s*\n\s*"//g;
                while ($text =~ /["\x27]((?:[^"\x27\\\n]|\\.){20,})["\x27]/g) {
                    my $m = $1;
                    my $words = () = $m =~ /$word/g;
                    count($folder, $name, $m, 1) if $words >= 5;
                }
            }
        }
        exit if defined $quoted;
        for my $f (sort keys %n) {
            print join(" ", $f, $n{$f}{all}{words}, map { my $s = $n{$f}{$_};
                (sprintf("%.1f", 1000 * ($s->{verbs} // 0) / ($s->{words} || 1)), sprintf("%.1f", 100 * ($s->{fragments} // 0) / ($s->{texts} || 1))) } ("comments", "all")), "\n";
        }' "$@"
}

# stdin: output of measure; prints the figures above the limits of table $1
judge() {
    awk -v rules="$1" '
        BEGIN {
            while ((getline row < rules) > 0) if (row !~ /^#/ && split(row, w, " ") == 5) limit[w[1]] = row
            what[2] = "verbs per 1,000 words"; what[3] = "% fragments"
            what[4] = "verbs per 1,000 words with messages"; what[5] = "% fragments with messages"
        }
        !($1 in limit) { print $1 ": no row in " rules ": add one with the limits 2.0 2.0 2.0 2.0"; next }
        {
            split(limit[$1], w, " ")
            for (i = 2; i <= 5; i++) if ($(i + 1) > w[i] + 0) print $1 ": " $(i + 1) " " what[i] ", at most " w[i] " allowed"
        }'
}

# stdin: output of measure; prints table $1 with limits lowered to the figures, but not below the aim of 2 verbs and 2 %
# fragments
lower() {
    awk -v rules="$1" '
        function least(figure, limit, aim) { if (figure < aim) figure = aim; return figure < limit ? figure : limit }
        { for (i = 3; i <= 6; i++) figure[$1, i - 1] = $i }
        END {
            while ((getline row < rules) > 0) {
                if (row ~ /^#/ || split(row, w, " ") != 5) { print row; continue }
                if (!((w[1], 2) in figure)) continue # a removed folder
                printf "%-20s", w[1]
                for (i = 2; i <= 5; i++) printf " %5.1f", least(figure[w[1], i] + 0, w[i] + 0, 2)
                print ""
            }
        }'
}

files() {
    if [ -e .git ]; then git ls-files -co --exclude-standard cli engine monitor store tests web; else find cli engine monitor store tests web -type f; fi |
        grep -E '\.(c|h|def|js|mjs|sh)$' | grep -v -e /golden/ -e /vendor/ -e /node_modules/
}

probe=$(mktemp -d) || exit 1
trap 'rm -rf "$probe"' EXIT

# The measure finds each kind of fault in its own folder, and none in good sentences.
mkdir -p "$probe"/x/{verbs,clauses,help,messages,good,scripts}
cat >"$probe/x/verbs/a.c" <<'END'
/* The others' codes come a layer ahead of its pass. */
int a; // nobody asks, and what is owed is told at the end
END
cat >"$probe/x/clauses/b.h" <<'END'
/* b.h - of what follows: the chunk of layers */
struct b; /* whose buffer it is */
int c;    /* Number of layers in this chunk. */
int d;    // as above
END
printf 'BT_OPTION(SEED, "seed", "what the stream of samples stays with")\n' >"$probe/x/help/c.def"
printf 'int d = fail("\x27%%s\x27 is not what was asked of this rank by the others");\n' >"$probe/x/messages/d.c"
printf '/* Reads one record. The caller owns it. */\nint e = fail("cannot read the header of the checkpoint");\n' >"$probe/x/good/e.c"
printf '#!/bin/sh\n# This script tests one run\n# of two ranks.\n# NAME: nobody asks\n\n# what is left\nls\n' >"$probe/x/scripts/f.sh"
printf '# only comments\nx/verbs 10 10 10 10\nx/clauses 10 10 10 10\nx/help 10 10 10 10\nx/messages 10 10 10 10\nx/good 4 3 4 3\nx/scripts 10 10 10 10\n' >"$probe/table"
found=$(cd "$probe" && find x -type f | measure table | tee figures | judge table | LC_ALL=C sort | cut -d, -f1 | paste -sd';')
expected='x/clauses: 66.7 % fragments with messages;x/clauses: 66.7 % fragments;x/help: 100.0 % fragments with messages;x/help: 100.0 % fragments;'
expected+='x/help: 142.9 verbs per 1;x/help: 142.9 verbs per 1;x/messages: 181.8 verbs per 1;'
expected+='x/scripts: 142.9 verbs per 1;x/scripts: 142.9 verbs per 1;x/scripts: 50.0 % fragments with messages;x/scripts: 50.0 % fragments;x/verbs: 285.7 verbs per 1;x/verbs: 285.7 verbs per 1'
[ "$found" = "$expected" ] || { echo "the test itself is blind: it found '$found'"; exit 1; }
found=$(cd "$probe" && lower table <figures | grep -v '#' | tr -s ' ' | paste -sd';')
[ "$found" = 'x/verbs 10.0 2.0 10.0 2.0;x/clauses 2.0 10.0 2.0 10.0;x/help 10.0 10.0 10.0 10.0;x/messages 2.0 2.0 10.0 2.0;x/good 2.0 2.0 2.0 2.0;x/scripts 10.0 10.0 10.0 10.0' ] ||
    { echo "limits are lowered wrongly: '$found'"; exit 1; }

if [ "${1:-}" = --quote ]; then files | measure $limits "${2:?folder}"; exit; fi

files | measure $limits >"$probe/figures"
n=$(wc -l <"$probe/figures")
[ "$n" -ge 20 ] || { echo "only $n folders found: the test looks in the wrong place"; exit 1; }
if [ "${1:-}" = --write ]; then lower $limits <"$probe/figures" >"$probe/lowered" && cp "$probe/lowered" $limits; fi
faults=$(judge $limits <"$probe/figures")
[ -z "$faults" ] || {
    echo "$faults"
    echo "Write complete sentences with a subject and the nouns of the field. 'tests/lint/run_language.sh --quote FOLDER' prints the sentences"
    echo "that count. A limit is never raised."
    exit 1
}
# These limits are at least 0.5 above the figure.
lower $limits <"$probe/figures" | awk -v rules=$limits '
    BEGIN { while ((getline row < rules) > 0) if (row !~ /^#/ && split(row, w, " ") == 5) for (i = 2; i <= 5; i++) limit[w[1], i] = w[i] }
    /^#/ { next }
    { for (i = 2; i <= 5; i++) if ($i < limit[$1, i] - 0.5) { print $1 ": clearly below its limits: run tests/lint/run_language.sh --write"; next } }'
echo "$n folders keep their limits of language"

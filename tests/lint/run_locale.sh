#!/usr/bin/env bash
# No function depends on the user's locale: character classes and comparisons are those of engine/base/system/ascii.h,
# and setlocale is called in engine/base/system/locale.c only, for LC_CTYPE, so that strtod and printf always use a
# decimal point.
set -u
cd "$BT_SRC" || exit 1
files() { if [ -e .git ]; then git ls-files -co --exclude-standard; else find . -path ./build -prune -o -type f -print | sed 's,^\./,,'; fi; }

check() { # list of files on standard input; prints the faults
    xargs -d '\n' perl -0777 -ne '
        s{/\*.*?\*/}{$& =~ s/[^\n]//gr}gse; # comments and texts may contain the words
        s{"(?:\\.|[^"\\\n])*"}{""}g;
        my ($line, $home) = (0, $ARGV eq "engine/base/system/locale.c");
        for (split /\n/) {
            $line++;
            print "$ARGV:$line: $1 depends on the locale (use engine/base/system/ascii.h)\n"
                if /(?<![\w.>])(isw?(?:alnum|alpha|blank|cntrl|digit|graph|lower|print|punct|space|upper|xdigit)|tow?(?:upper|lower)|strn?casecmp|strcasestr|wcsn?casecmp|strcoll|strxfrm|wcscoll|strfmon|wcwidth|wcswidth|mbs?r?towcs?|wcs?r?tombs?|btowc)\s*[(,;)]/;
            print "$ARGV:$line: $1 belongs to engine/base/system/locale.c, for LC_CTYPE only\n"
                if /\b((?:set|new|use)locale)\s*\(\s*(\w*)/ && !($home && $2 eq "LC_CTYPE");
        }'
}

# The check itself can fail.
probe=$(mktemp -d) || exit 1
trap 'rm -rf "$probe"' EXIT
mkdir -p "$probe/engine/base/system"
printf 'int a = toupper(c);\nqsort(v, n, s, strcasecmp);\n/* isspace(c) */ const char *t = "isspace(c)";\nx.isdigit(c);\n' >"$probe/wrong.c"
printf 'setlocale(LC_CTYPE, "");\n' >"$probe/two.c"
printf 'setlocale(LC_CTYPE, "");\nsetlocale(LC_ALL, "");\n' >"$probe/engine/base/system/locale.c"
found=$(cd "$probe" && printf 'wrong.c\ntwo.c\nengine/base/system/locale.c\n' | check | sort | cut -d: -f1,2 | paste -sd' ')
[ "$found" = 'engine/base/system/locale.c:2 two.c:1 wrong.c:1 wrong.c:2' ] || { echo "the probe's faults were found as: $found"; exit 1; }

hits=$(files | grep -E '^(cli|engine|monitor|store|web)/.*\.[ch]$' | check)
[ -z "$hits" ] || { echo "$hits"; exit 1; }

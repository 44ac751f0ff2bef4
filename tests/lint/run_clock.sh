#!/usr/bin/env bash
# Only engine/base/clock.c reads the wall clock of the system, once per process (bt_wall_us): every duration and order
# uses the monotonic clock, steps or attempts.
set -u
cd "$BT_SRC" || exit 1
files() { if [ -e .git ]; then git ls-files -co --exclude-standard; else find . -path ./build -prune -o -type f -print | sed 's,^\./,,'; fi; }

check() { # list of files on standard input; prints the faults
    xargs -d '\n' perl -0777 -ne '
        s{/\*.*?\*/}{$& =~ s/[^\n]//gr}gse;
        my $line = 0;
        my $home = $ARGV eq "engine/base/clock.c";
        my $reads = 0;
        for (split /\n/) {
            $line++;
            next unless /\b(CLOCK_REALTIME(?:_COARSE)?|CLOCK_TAI|gettimeofday|ftime)\b|(?<![\w.>])(time)\s*\(\s*(?:NULL|0|&\w+)\s*\)|(ORDER BY (?:time_s|wall_us|t_us))\b/;
            my $what = $1 // $2 // $3;
            next if $home && $what eq "CLOCK_REALTIME" && !$reads++;
            print "$ARGV:$line: $what: ", ($3 ? "order by attempt and step" : "use bt_now_ns, or bt_wall_us for a record"), "\n";
        }'
}

# The check itself can fail.
probe=$(mktemp -d) || exit 1
trap 'rm -rf "$probe"' EXIT
mkdir -p "$probe/engine/base"
printf 'a = time(NULL);\n/* time(NULL) */ b = strftime(NULL);\nx->time(0);\nclock_gettime(CLOCK_REALTIME, &t);\n"SELECT 1 ORDER BY time_s DESC"\n' >"$probe/wrong.c"
printf 'clock_gettime(CLOCK_REALTIME, &t);\nclock_gettime(CLOCK_REALTIME, &t);\n' >"$probe/engine/base/clock.c"
found=$(cd "$probe" && printf 'wrong.c\nengine/base/clock.c\n' | check | sort | cut -d: -f1,2 | paste -sd' ')
[ "$found" = 'engine/base/clock.c:2 wrong.c:1 wrong.c:4 wrong.c:5' ] || { echo "the probe's faults were found as: $found"; exit 1; }

hits=$(files | grep -E '^(cli|engine|monitor|store|web)/.*\.[ch]$' | check)
[ -z "$hits" ] || { echo "$hits"; exit 1; }

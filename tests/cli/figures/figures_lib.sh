# figures_lib.sh - computes a run's figures independently, in SQL from its raw rows. Sourced after train_lib.sh, not
# run.
run=a                                           # name of the run
# Microseconds are rounded to seconds and milliseconds, which changes each piece by at most two of them.
exact=0.002
near() { # near WHAT SHOWN EXPECTED [TOLERANCE]
    awk "BEGIN { d = $2 - $3; exit !(d < ${4:-0.01} && d > -${4:-0.01}) }" || fault "$1 of $run is $2, the rows show $3"
}
row() { q "SELECT $1 FROM runs WHERE run='$run'"; }
percent() { awk "BEGIN { printf \"%.1f %%\", 100 * $1 }"; }
# Speed and communication are computed from the newest 128 steps, across restarts.
recent() { echo "SELECT * FROM steps WHERE run='$run' ORDER BY step DESC LIMIT 128"; }
median_of() { q "SELECT avg(v) FROM (SELECT $1 AS v, row_number() OVER (ORDER BY $1) AS at, count(*) OVER () AS n
  FROM ($(recent)) WHERE $1 IS NOT NULL) WHERE at IN ((n + 1) / 2, n / 2 + 1)"; }
# The mean over the ranks of each step, then over the steps.
mean_of() { q "SELECT avg(v) FROM (SELECT avg($1) AS v FROM rank_steps r JOIN ($(recent)) s USING (run, attempt, step) GROUP BY step)"; }
number_of() { grep -o "\"$2\":[^,}]*" "$1" | head -n 1 | cut -d: -f2; } # FILE KEY: a number in JSON
parts='productive redone validation checkpoint paused finished startup lost'
parts_add_up() { # FILE KEY: checks that the parts of a run's time add up to its whole time
    local left part
    left=$(number_of "$1" "$2")
    for part in $parts; do left=$(awk "BEGIN { print $left - $(number_of "$1" "${part}_s") }"); done
    awk "BEGIN { exit !($left < 1e-4 && $left > -1e-4) }" || fault "in $1 the parts of the time of $run differ from $2 by $left s"
    near "goodput in $1" "$(number_of "$1" goodput)" \
        "$(awk "BEGIN { print $(number_of "$1" productive_s) / ($(number_of "$1" "$2") - $(number_of "$1" finished_s)) }")" 0.0001
}
head_of() { number_of top.json "$1"; }
# The row in `runs`, `show` and `top` agree on speed, step time, and its breakdown.
figures_agree() {
    local lost
    b top "$run" --once --json >top.json
    near "tokens/s" "$(row tokens_per_s)" "$(median_of tokens_per_s)" 0.1
    near "tokens/s of top" "$(head_of tokens_per_s)" "$(row tokens_per_s)" 0.1
    near "step time" "$(row step_ms)" "$(median_of step_ms)" 0.002
    near "step time of top" "$(head_of step_p50_ms)" "$(row step_ms)" 0.002
    lost=$(mean_of "r.comm_exposed_ms + r.wait_ms")
    near communication "$(row comm_overhead)" "$(awk "BEGIN { print $lost / $(mean_of r.step_ms) }")" 0.0005
    near "communication of top" "$(head_of comm_overhead)" "$(row comm_overhead)" 1e-6
    ok show "$run"
    says "communication and wait $(percent "$(row comm_overhead)")"
    b show "$run" --json >shown.json
    near "mean step of show" "$(grep -o '"phases":{"step_ms":[^,]*' shown.json | cut -d: -f3)" "$(mean_of r.step_ms)" 0.002
    near "the phases' shares" "$(grep -o '"share":[^,]*' shown.json | awk -F: '{ sum += $2 } END { print sum }')" 1 0.0001
    near "mean step of top" "$(head_of mean_ms)" "$(mean_of r.step_ms)" 0.002
    # Every share is printed to 0.1 %.
    near "communication and waiting in the table of phases" "$(awk '$1 == "communication" || $1 == "wait" { sum += $4 } END { print sum / 100 }' out)" \
        "$(row comm_overhead)" 0.0016
}

// ctest: timeout=120
/* The effect of every key of the table on each screen: keys are pressed and the screen is compared as text. */
#include <unistd.h>

#include "played_screens.h"

static void time_can_be_moved(void **state) {
    (void)state;
    shows("~,~", "step 190/200"); /* a twentieth of the shown range */
    shows("~,,.~", "step 190/200");
    shows("~2,~", "view is");
    shows("~2,~", "in the past");
    hides("~2,.~", "in the past");
    /* the event before the newest step */
    shows("~[~", "step 100/200");
    shows("~" CTRL_LEFT "~", "step 100/200");
    shows("~[[~", "no earlier event");
    shows("~[]~", "step 200/200");
    shows("~]~", "no later event");
    shows("~" HOME "~", "step 1/200");
    shows("~" HOME CTRL_RIGHT "~", "step 100/200");
    shows("~" HOME END "~", "step 200/200");
    shows("~:step 61\r~", "step 61/200");
    shows("~:step 61\r~", "in the past");
    shows("~:step 61\r~", "then ─");
    shows("~:step 61\r~" ESC "~", "at the end ─");
    shows("~:step 61\r~" ESC "~", "step 200/200");
    shows("~:step x\r~", "'x' is not a step");
    /* a twentieth of five seconds: two steps */
    shows("~:span 5\r,~", "step 198/200");
    shows("~:span 5\r~", "span 5.0 s");
    shows("~:span 5\r+~", "span all");
    /* Longer spans would equal the whole run. */
    shows("~-~", "span 1m");
    shows("~-+~", "span all");
    for (const char *words[] = {"x", "-3", "5d", "5mm", "inf", "0", NULL}, **k = words; *k; k++) {
        char keys[32];
        snprintf(keys, sizeof keys, "~:span %s\r~", *k);
        shows(keys, "is not a span");
    }
    shows("~:span 2m\r~", "span 2m");
    shows("~f~", "FROZEN");
    hides("~ff~", "FROZEN");
    hides("~f" END "~", "FROZEN");
    /* the whole screen, for each screen */
    for (char screen[] = "1"; screen[0] <= '8'; screen[0]++) {
        char keys[16];
        snprintf(keys, sizeof keys, "~%s,,~", screen);
        shows(keys, "step 180/200");
    }
}

static void axes_and_smoothing(void **state) {
    (void)state;
    shows("~x~", "x tokens");
    shows("~xx~", "x time");
    shows("~xxx~", "x active");
    shows("~xxxx~", "x bytes");
    shows("~xxxx~", "bytes on the wire");
    shows("~xxxxx~", "x step");
    shows("~:x tokens\r~", "x tokens");
    shows("~:x miles\r~", "no x axis 'miles'");
    shows("~y~", "log y");
    hides("~yy~", "log y");
    /* the newest value without smoothing, then smoothed over 2, 5, 10 % of the shown steps */
    shows("~~", "2.4101 nats · 2.4253 over 4 steps");
    shows("~s~", "over 10 steps");
    shows("~ss~", "over 20 steps");
    hides("~sss~", "nats ·");
    shows("~ssssss~", "over 4 steps");
    for (const char *keys[] = {"~1s~", "~3s~", NULL}, **k = keys; *k; k++)
        shows(*k, "over 10 steps");
    /* Figures of the screen Comm belong to the steps of its table. */
    shows("~4s~", "50 %, steps 73 to 200");
    check("demo", "~8s~", "over 10 steps", true, 160, 40); /* its charts are narrow */
    /* A shorter range is smoothed over fewer steps. */
    shows("~:step 100\r~", "over 2 steps");
    shows("~z~", "y x2");
    shows("~zz~", "y x4");
    shows("~zZZ~", "y x0.5");
    hides("~zo~", "y x");
    hides("~z31~", "y x");
    shows("~o~", "all y");
    hides("~oo~", "all y");
    /* The panned axis has other numbers. */
    shows("~zzzz~", "3.75");
    hides("~zzzzKKKK~", "3.75");
    shows("~zzzzKKKKJJJJ~", "3.75");
    shows("~:metric grad_norm\r~", "grad_norm ─");
    shows("~:metric los\r~", "did you mean 'loss'?");
}

/* The key that resumes a paused run also resumes a failed run. */
static void a_failed_run_is_resumed(void **state) {
    (void)state;
    char here[64] = "", sql[200];
    store_sql("UPDATE run SET state = 'failed', exit_kind = 'signal' WHERE name = 'base-1'");
    check("base-1", "~P~", "the run is not live", true, 100, 30); /* a run of another machine */
    gethostname(here, sizeof here - 1);
    snprintf(sql, sizeof sql, "UPDATE run SET host = '%s' WHERE name = 'base-1'", here);
    store_sql(sql);
    check("base-1", "~P~", "base-1: resume the training?", true, 100, 30);
    check("base-1", "~P~n~", "nothing was done", true, 100, 30);
    assert_string_equal(done, "");
    check("base-1", "~Py~", "base-1: resumed", false, 100, 30); /* pasted text starts nothing */
    assert_string_equal(done, "");
    check("base-1", "~P~y~", "base-1: resumed", true, 100, 30);
    assert_string_equal(done, "start base-1: --resume base-1");
    store_sql("UPDATE run SET state = 'done', exit_kind = 'finished', host = 'nodes' "
              "WHERE name = 'base-1'");
    check("base-1", "~P~", "the run is not live", true, 100, 30);
}

static void lists_are_filtered_and_sorted(void **state) {
    (void)state;
    /* Settings have their own cursor and are counted if no rank matches. */
    shows("~8/optim\r~", "1 of 7 match");
    shows("~8/optim\r~", "optim.lr");
    hides("~8/optim\r~", "train.steps");
    shows("~8\t" DOWN "~", "▸train.steps");
    static const struct {
        char screen;
        const char *filter, *says;
    } rows[] = {{'2', "rank [34]", "2 of 8"}, {'2', "late", "1 of 8"},
                {'3', "rank 3", "1 of 8"},    {'4', "rank [0-2]", "3 of 8"},
                {'5', "ffn_up", "2 of 8"},    {'6', "checkpoint", "2 of 4"},
                {'7', "base", "1 of 2"},      {'8', "node0", "8 of 8"},
                {'8', "rank 7", "1 of 8"},    {'2', "(", "filter (  0 of 8"}};
    char keys[64];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(keys, sizeof keys, "~%c/%s\r~", rows[i].screen, rows[i].filter);
        shows(keys, rows[i].says);
        snprintf(keys, sizeof keys, "~%c/%s\r~" ESC "~", rows[i].screen, rows[i].filter);
        snprintf(keys + 32, sizeof keys - 32, "filter %s", rows[i].filter);
        hides(keys, keys + 32);
    }
    shows("~2/nobody\r~", "no row matches");
    static const struct {
        const char *keys, *title;
    } sorts[] = {{"~2~", "blame▾"},    {"~2>~", "rank▾"},        {"~2>>>~", "busy p50▾"},
                 {"~2<<~", "phase▾"},  {"~2>>>I~", "busy p50▴"}, {"~3>>~", "p50▾"},
                 {"~4>>>~", "wire▾"},  {"~5>>>~", "zero▾"},      {"~7>>>~", "loss▾"},
                 {"~7>>>I~", "loss▴"}, {"~8>>>>>>>~", "rss▾"}};
    for (size_t i = 0; i < sizeof sorts / sizeof sorts[0]; i++)
        shows(sorts[i].keys, sorts[i].title);
    /* most memory first, with the cursor on the first row */
    shows("~8>>>>>>>~", "▸   7  node0");
    shows("~8>>>>>>>I~", "▸   0  node0");
    /* each panel of panels.def in turn, with its metrics */
    char keys9[32] = "~9~";
    for (int p = 0; p <= BT_PANEL_COUNT; p++) {
        shows(keys9, bt_panel_query((bt_metric_panel)(p % BT_PANEL_COUNT)));
        strcat(keys9, "t~");
    }
    shows("~9t~", "tokens_per_s");
    hides("~9~", "tokens_per_s");
    shows("~9ttt~G~", "one row for each staleness of updates");
    shows("~9ttt~Gkkkkkkkkkk~", "one row for each pair of ranks that exchange");
    shows("~9~/val\r~", "cross-entropy per token of the validation split");
    shows("~2jj~", "without rank");
    shows("~7jk~", "▸demo");
    shows("~7" DOWN "~", "▸base-1");
    shows("~7" DOWN UP "~", "▸demo");
    shows("~7G~", "▸base-1");
    shows("~7Gg~", "▸demo");
    shows("~2G~", "▸   7");
    shows("~2" PAGE_DOWN "~", "▸   7");
    shows("~2 ~", "without rank 5: 133 ms"); /* marked ranks are removed together */
    shows("~2  ~", "without ranks 5, 0: 133 ms");
    shows("~2  ~", "●   0");
    shows("~2   " ESC "~", "without rank 2 the step");
    shows("~2/rank [34]\rn~", "▸   4");
    shows("~2/rank [34]\rnN~", "▸   3");
}

static void panes_modes_and_values(void **state) {
    (void)state;
    shows("~\t\te~", "ranks x time");
    shows("~\te~", "where each rank's step goes");
    shows("~\t\t\te~", "goodput 80 %");
    shows("~" BACKTAB "e~", "goodput 80 %");
    hides("~e~", "slowest ranks");
    shows("~ee~", "slowest ranks");
    hides("~2e~", "stragglers");
    hides("~2\te~", "0.8x");
    shows("~2\te~", "stragglers");
    shows("~2~", "busy / median of the step");
    for (const char *values[] = {"~2v~",          "step",          "~2vv~",
                                 "wait",          "~2vvv~",        "data",
                                 "~2vvvv~",       "comm",          "~2vvvvv~",
                                 "memory",        "~2vvvvvv~",     "fwd",
                                 "~2vvvvvvv~",    "bwd",           "~2vvvvvvvv~",
                                 "optim",         "~2vvvvvvvvv~",  "loss",
                                 "~2vvvvvvvvvv~", "busy / median", NULL},
                    **v = values;
         *v; v += 2) {
        char want[64];
        snprintf(want, sizeof want, "─ %s%s", v[1], strchr(v[1], '/') ? "" : " · v:");
        shows(v[0], want);
    }
    shows("~3~", "milliseconds");
    shows("~3t~", "percent of the step");
    shows("~3tt~", "excess over the ranks' median");
    shows("~6t~", "warnings and errors");
    shows("~6tt~", "· errors");
    shows("~4~", "arrival skew p95");
    /* There is no space until its pane is chosen. */
    check("demo", "~4~", "traffic by sender and receiver", false, 80, 24);
    check("demo", "~4" BACKTAB "~", "traffic by sender and receiver", true, 80, 24);
    hides("~4" BACKTAB "~", "communication overhead");
    shows("~4" BACKTAB "~", "messages from rank 5 take 10.0 ms, those of other ranks 2.00 ms");
    shows("~4" BACKTAB "t~", "bytes a step");
    shows("~4" BACKTAB "t~", "97.7 KiB");
    hides("~4e~", "by kind of exchange");
    shows("~4\t\te~", "bytes on the wire");
    shows("~4\t\t\te~", "by kind of exchange");
    hides("~4\t\t\te~", "per rank and step");
    shows("~4\t\t\t\te~", "per rank and step");
    shows("~4\t\t\t\t\te~", "from rank 5 take");
    /* If no rank is slow, no rank is named. */
    check("base-1", "~4" BACKTAB "~", "messages from rank", false, 100, 30);
    check("demo", "~4~", "dp link 20 us + 76.3 MiB/s", true, 120, 40);
    shows("~5~", "t: all tensors");
    shows("~5t~", "t: ternary ones only");
    /* the histogram of the tensor under the cursor, below the table or instead of it */
    check("demo", "~5~", "weights / scale", true, 120, 40);
    check("demo", "~5~", "weights / scale", false, 80, 24);
    check("demo", "~5e~", "attn_o, layer 0", true, 80, 24);
    check("demo", "~5e~", "step 1 to 161", true, 120, 40);
    check("demo", "~5jjj~e~", "no ternary tensor", true, 100, 30);
    check("demo", "~5jjj~e~", "2^-11", true, 100, 30);
    check("demo", "~5e" ESC "~", "zero, flips", true, 100, 30);
    shows("~2\r~", "where each rank's step goes");
    shows("~2\r~", "▸    5"); /* the chosen rank */
    shows("~:rank 3\r~", "▸    3");
    shows("~:rank 12\r~", "no rank '12' (0 to 7)");
    shows("~6jj\r~", "step 100/200"); /* an event opens its step */
    shows("~:screen comm\r~", "per rank and step");
    shows("~8" ESC "~", "slowest ranks");
    shows("~?~", "go to a screen");
    shows("~h?~", "go to a screen");
    hides("~??~", "go to a screen");
    shows("~:stop\r~", "did you mean ':step'?");
    shows("~:step\r~", ":step needs a value");
}

static void runs_are_marked_and_compared(void **state) {
    (void)state;
    shows("~7j\r~", "base-1  ○ DONE");
    shows("~:run base-1\r~", "base-1  ○ DONE");
    shows("~:run bse-1\r~", "did you mean 'base-1'?");
    shows("~7 ~", "●demo");
    hides("~7 k ~", "●");
    shows("~7 c~", "mark two or more runs");
    shows("~7  c~", "compare: loss, smoothed over 2 % of each run ");
    shows("~1s7  c~", "compare: loss, smoothed over 5 %");
    shows("~1sss7  c~", "compare: loss ─");
    check("demo", "~7  c~", "compare: loss, smoothed ─", true, 80, 24);
    shows("~7  c~", "no setting differs");
    /* Runs as points: a setting on the x axis, a result on the y axis. */
    shows("~7t~", "the runs differ in no number");
    shows("~:scatter optim.lr steps\r~", "2 of 2 runs");
    shows("~:scatter optim.lr los\r~", "no result 'los' (loss, best_val");
    shows("~:scatter optim.lrr\r~", "no listed run has a number in both");
    check("demo", "~7te~", "tags, note", false, 100, 30);
    shows("~7  c" ESC "~", "●demo");
    shows("~7b~", "demo is the run in view");
    shows("~7jb1~", "ghost: baseline");
    shows("~7jb1~", "baseline base-1");
    shows("~7jb2~", "busy against base-1, same steps");
    shows("~7jb2vvv~", "data against base-1, same steps");
    shows("~2bbase-1\r~", "busy against base-1, same steps");
    shows("~2bbase-1\r~", "-25 %");
    shows("~2bbase-1\rb~", "no baseline any more");
    hides("~2bbase-1\rb~", "against base-1");
    shows("~bnosuch\r~", "no run 'nosuch'");
    shows("~:baseline base-1\r:baseline\r~", "no baseline any more");
    for (const char *keys[] = {"~:baseline base-1\r1~", "~:baseline base-1\r3~",
                               "~:baseline base-1\r4~", "~:baseline base-1\r8~", NULL},
                    **k = keys;
         *k; k++)
        check("demo", *k, "ghost: baseline", true, 150, 40);
}

static void actions_on_a_run_require_confirmation(void **state) {
    (void)state;
    shows("~C~", "the run is not live");
    shows("~mwarmer\r~", "noted at this step");
    assert_string_equal(done, "mark demo 199 annotation warmer");
    shows("~,mwarmer\r~", "noted");
    assert_string_equal(done, "mark demo 189 annotation warmer");
    shows("~a~", "no alerts");
    static const struct {
        const char *keys, *asks, *does;
    } verbs[] = {{"~C", "now: write a checkpoint now?", "control now checkpoint"},
                 {"~S", "now: checkpoint and stop?", "control now stop"},
                 {"~P", "now: pause?", "control now pause"},
                 {"~E", "now: evaluate the validation split?", "control now eval"}};
    for (size_t i = 0; i < 4; i++) {
        char keys[16];
        snprintf(keys, sizeof keys, "%s~", verbs[i].keys);
        check("now", keys, verbs[i].asks, true, 100, 30);
        assert_string_equal(done, "");
        snprintf(keys, sizeof keys, "%s~n~", verbs[i].keys);
        check("now", keys, "nothing was done", true, 100, 30);
        assert_string_equal(done, "");
        snprintf(keys, sizeof keys, "%sy~", verbs[i].keys);
        check("now", keys, "came with the question", true, 100, 30);
        assert_string_equal(done, "");
        snprintf(keys, sizeof keys, "%s~y~", verbs[i].keys);
        check("now", keys, "is under way", true, 100, 30);
        assert_string_equal(done, verbs[i].does);
    }
    shows("~L~", "the run is not live");
    check("now", "~L2e-4~", "peak learning rate: 2e-4", true, 100, 30);
    check("now", "~Lfast\r~", "'fast' is no learning rate", true, 100, 30);
    assert_string_equal(done, "");
    check("now", "~L2e-4\r~", "set lr=2e-4 is under way", true, 100, 30);
    assert_string_equal(done, "control now set lr=2e-4");
    shows("~T+paper -draft\r~", "demo: paper");
    assert_string_equal(done, "tag demo +paper -draft");
    shows("~W~", "the run is not live");
    check("now", "~WOnce upon #1~", "write on from: Once upon #1", true, 100, 30);
    check("now", "~WOnce upon #1\r~", "sample Once upon #1 is under way", true, 100, 30);
    assert_string_equal(done, "control now sample Once upon #1");
    check("now", "~W\r~", "under way", false, 100, 30);
    assert_string_equal(done, "");
    shows("~Mno warm-up~", "note of the run: ");
    shows("~Mno warm-up\r~", "demo: noted");
    assert_non_null(strstr(done, "no warm-up"));
    check("now", "~U~", "now is live: it keeps its name", true, 100, 30);
    shows("~U~", "new name: demo"); /* the present name, to be edited */
    shows("~U-2\r~", "demo-2");
    assert_string_equal(done, "rename demo demo-2");
    shows("~U-now\r~", "another run has the name 'demo-now'");
    check("now", "~D~", "now is live: stop it first", true, 100, 30);
    shows("~D~",
          "demo: remove its records for good?  y yes, keep checkpoints   c also checkpoints");
    shows("~D~n~", "nothing was done");
    assert_string_equal(done, "");
    shows("~D~y~", "removed the records of demo");
    assert_string_equal(done, "remove demo");
    shows("~D~c~", "removed the records of demo");
    assert_string_equal(done, "remove demo and checkpoints");
    /* For other questions the key c does not confirm. */
    check("now", "~S~c~", "nothing was done", true, 100, 30);
    shows("~R~", "start a run");
    hides("~R" ESC "~", "Enter start");
    shows("~R\r~", "start this training?");
    assert_string_equal(done, "");
    shows("~R\r~n~", "Enter start");
    assert_string_equal(done, "");
    shows("~R\ry~", "start a run"); /* a key pressed together with the question */
    assert_string_equal(done, "");
    shows("~R\r~y~", "run base-1 is starting");
    assert_string_equal(done, "start : --preset nano");
    shows("~R\t\t50\t\t1\t\t\tmine\r~y~", "is starting");
    assert_string_equal(done, "start mine: --preset nano --steps 50 --ranks 1");
    /* A preset that was not chosen is left to the configuration. */
    shows("~R\t\t50\t4e-3\r~y~", "is starting");
    assert_string_equal(done, "start : --preset nano --steps 50 --lr 4e-3");
    shows("~R\t\t\t\t\t\tmy.yaml\r~y~", "is starting");
    assert_string_equal(done, "start : my.yaml");
    shows("~R\177\177\177\177nosuch\r~y~", "preset");
}

/* Returns the line of a frame that contains this text. */
static int line_of(const char *frame, const char *text) {
    const char *at = strstr(frame, text);
    int y = 0;
    assert_non_null(at);
    for (const char *p = frame; p < at; p++) y += *p == '\n';
    return y;
}

static void the_mouse_chooses_tabs_and_rows(void **state) {
    (void)state;
    char *frame = play_on("demo", "~", 100, 30), keys[32];
    const char *line = strchr(strchr(frame, '\n') + 1, '\n') + 1, *tab = strstr(line, "2 Ranks");
    assert_non_null(tab);
    snprintf(keys, sizeof keys, "~" CLICK "%c\"~", (char)(' ' + (tab - line)));
    free(frame);
    shows(keys, "ranks x time");
    /* In the list of runs the first click selects a row and the second opens it. */
    frame = play_on("demo", "~7~", 100, 30);
    const char row = (char)(' ' + line_of(frame, "base-1"));
    free(frame);
    snprintf(keys, sizeof keys, "~7~" CLICK "%%%c~", row);

    snprintf(keys, sizeof keys, "~7~" CLICK "%%%c~" CLICK "%%%c~", row, row);
    shows(keys, "10-step loss");
    shows(keys, " base-1 ");
    shows("~7~" WHEEL_DOWN "\r~", " base-1 ");
}

static void a_screen_is_written_as_text_and_numbers(void **state) {
    (void)state;
    char here[512], path[128], *text;
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(dir), 0);
    shows("~2w~", "wrote demo-ranks-200.txt and demo-ranks-200.json");
    assert_int_equal(chdir(here), 0);
    snprintf(path, sizeof path, "%s/demo-ranks-200.txt", dir);
    text = bt_slurp(path);
    assert_non_null(text);
    assert_non_null(strstr(text, "without rank 5: 133 ms"));
    free(text);
    snprintf(path, sizeof path, "%s/demo-ranks-200.json", dir);
    text = bt_slurp(path);
    assert_non_null(text);
    assert_non_null(strstr(text, "\"heatmap\":{\"value\":\"busy\""));
    free(text);
}

static void a_small_terminal_has_its_screens(void **state) {
    (void)state;
    check("demo", "~", "rank 5 late: data 100 %", true, 40, 12);
    check("demo", "~", "loss ─", true, 60, 16);
    check("demo", "~7~", "▸demo", true, 40, 10);
    check("demo", "~7j\r~", "base-1 ○ DONE", true, 40, 10);
    check("demo", "~7~", "demo DONE", true, 20, 5);
    check("demo", "~?~", "go to a screen", true, 40, 10);
    check("demo", "~R~", "start a run", true, 40, 10);
    check("", "~", "base-1 DONE", true, 20, 5);
    check("demo", "~:step 5~", ":step 5_", true, 20, 5);
    check("demo", "~C~", "the run is not", true, 20, 5);
}

/* The end of log.txt is shown below the events: without control characters, coloured by level, filtered like the
 * events. */
static void the_log_is_under_the_events(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    char path[96];
    bt_synth s = bt_synth_default("logged");
    s.out_dir = dir;
    s.steps = 20;
    s.ranks = 1;
    assert_int_equal(bt_synth_make(db_path, &s, &err), BT_OK);
    check("logged", "~6~", "log.txt", false, 100, 30); /* A run without a log has no empty pane. */
    snprintf(path, sizeof path, "%s/log.txt", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 3000; i++) fprintf(f, "line %d of a rank\n", i);
    fprintf(f, "\033[31mwarning: rank 1 \033]0;evil\007 is late\nlast words without a newline");
    assert_int_equal(fclose(f), 0);
    check("logged", "~6~", "log.txt", true, 100, 30);
    check("logged", "~6~", "line 2999 of a rank", true, 100, 30);
    check("logged", "~6~", "is late", true, 100, 30);
    check("logged", "~6~", "\033", false, 100, 30);
    check("logged", "~6~", "last words without a newline", true, 100, 30);
    check("logged", "~6t~", "line 2999", false, 100, 30); /* only warnings and errors */
    check("logged", "~6t~", "is late", true, 100, 30);
    check("logged", "~6\te~", "line 2985", true, 100, 30);
    check("logged", "~6~", "line 2999", true, 80, 24);
    check("demo", "~6~", "log.txt", false, 100, 30);
    /* A single rank has no other rank to compare with. */
    check("logged", "~2~", "─ step · v:", true, 100, 30);
    check("logged", "~2~", "without rank", false, 100, 30);
}

static int make_three(void **state) {
    bt_err err = BT_ERR_INIT;
    if (make_store(state) != 0) return -1;
    /* paced: written by this process, so the run is alive */
    bt_synth s = bt_synth_default("now");
    s.ranks = 2;
    s.steps = 4;
    s.pace_ms = 1;
    s.live = true;
    s.start_us -= 1;
    FILE *out = stdout;
    stdout = fopen("/dev/null", "w");
    bt_code code = bt_synth_make(db_path, &s, &err);
    fclose(stdout);
    stdout = out;
    return code == BT_OK ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest finished[] = {cmocka_unit_test(time_can_be_moved),
                                          cmocka_unit_test(axes_and_smoothing),
                                          cmocka_unit_test(a_failed_run_is_resumed),
                                          cmocka_unit_test(lists_are_filtered_and_sorted),
                                          cmocka_unit_test(panes_modes_and_values),
                                          cmocka_unit_test(runs_are_marked_and_compared),
                                          cmocka_unit_test(the_mouse_chooses_tabs_and_rows),
                                          cmocka_unit_test(a_screen_is_written_as_text_and_numbers),
                                          cmocka_unit_test(a_small_terminal_has_its_screens),
                                          cmocka_unit_test(the_log_is_under_the_events)};
    const struct CMUnitTest live[] = {cmocka_unit_test(actions_on_a_run_require_confirmation)};
    int failed = cmocka_run_group_tests(finished, make_store, drop_store);
    return failed + cmocka_run_group_tests(live, make_three, drop_store);
}

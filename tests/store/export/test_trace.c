// ctest: timeout=60
/* An exported trace has the spans, counters and instants of the run, and spans in one lane do not overlap. */
#include "export_runs.h"

#define HEAD \
    "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"note\":\"phases of a step are sums; their " \
    "order inside the step is " \
    "drawn, not measured\"},\"traceEvents\":["
#define RANK(n, host) \
    "\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":" n \
    ",\"tid\":0,\"args\":{\"name\":\"rank " n " on " host \
    "\"}},\n{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":" n \
    ",\"tid\":0,\"args\":{\"sort_index\":" n \
    "}},\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":" n \
    ",\"tid\":0,\"args\":{\"name\":\"steps\"}},\n" \
    "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":" n \
    ",\"tid\":1,\"args\":{\"name\":\"phases\"}},"
#define COUNTER(name, ts, v) \
    "\n{\"name\":\"" name "\",\"ph\":\"C\",\"pid\":0,\"tid\":0,\"ts\":" ts ",\"args\":{\"" name \
    "\":" v "}},"
#define SPAN(name, rank, lane, ts, dur, step) \
    "\n{\"name\":\"" name "\",\"ph\":\"X\",\"pid\":" rank ",\"tid\":" lane ",\"ts\":" ts \
    ",\"dur\":" dur ",\"args\":{\"step\":" step "}},"
#define INSTANT(name, rank, ts, scope) \
    "\n{\"name\":\"" name "\",\"ph\":\"i\",\"pid\":" rank ",\"tid\":0,\"ts\":" ts \
    ",\"s\":\"" scope "\"}"

static const char trace_of_two[] = HEAD RANK("0", "n\\\"1") RANK("1", "n2")
    COUNTER("loss", "750000.000", "1.5") COUNTER("tokens_per_s", "750000.000", "1000.25")
        SPAN("step 2", "0", "0", "0.000", "400000.000",
             "1") SPAN("data", "0", "1", "0.000", "10500.000",
                       "1") SPAN("forward", "0", "1", "10500.000", "20000.000",
                                 "1") SPAN("step 2", "1", "0", "0.000", "450000.000",
                                           "1") SPAN("data", "1", "1", "0.000", "10500.000", "1")
            SPAN("forward", "1", "1", "10500.000", "21000.000",
                 "1") SPAN("step 3", "0", "0", "750000.000", "600000.000",
                           "2") SPAN("data", "0", "1", "750000.000", "10500.000", "2")
                SPAN("forward", "0", "1", "760500.000", "20000.000",
                     "2") SPAN("backward", "0", "1", "780500.000", "30000.000", "2")
                    SPAN("step 3", "1", "0", "750000.000", "650000.000", "2")
                        SPAN("data", "1", "1", "750000.000", "10500.000", "2")
                            SPAN("forward", "1", "1", "760500.000", "21000.000", "2")
                                SPAN("backward", "1", "1", "781500.000", "30000.000", "2")
                                    INSTANT("odd \\\"thing\\\"", "1", "0.000", "p") "," INSTANT(
                                        "writes: b", "0", "1100000.000",
                                        "g") "," INSTANT("note", "0", "1000000.000", "g") "\n]}\n";

static void a_trace_contains_the_record(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    bt_err why = BT_ERR_INIT;
    char *text = NULL;
    size_t n = 0;
    const bt_export_cfg cfg = {.run = "small", .progress = keep_progress};
    small_run(t);
    OK(bt_db_open(&db, t->db, err));
    FILE *to = open_memstream(&text, &n);
    progress_times = 0;
    OK(bt_export_trace(db, &cfg, 1, 2, to, err));
    fclose(to);
    assert_string_equal(text, trace_of_two);
    assert_true(progress_times == 2 && progress_said[0] == 0 && progress_said[1] == 0.5);
    free(text);
    to = open_memstream(&text, &n);
    assert_int_equal(bt_export_trace(db, &cfg, 5, 6, to, &why), BT_NOTFOUND);
    assert_string_equal(why.msg, "run 'small' has no steps 6 to 7");
    assert_int_equal(bt_export_trace(db, &(bt_export_cfg){.run = "none"}, 0, 6, to, &why),
                     BT_NOTFOUND);
    fclose(to);
    assert_int_equal(n, 0);
    free(text);
    to = fopen("/dev/full", "w");
    if (to) {
        setvbuf(to, NULL, _IONBF, 0);
        assert_int_equal(bt_export_trace(db, &(bt_export_cfg){.run = "small"}, 0, 2, to, &why),
                         BT_IO);
        assert_non_null(strstr(why.msg, "cannot write the trace"));
        fclose(to);
    }
    bt_db_close(db);
}

/* The recorded durations add up to more than the time between the ends of the steps. Each span keeps its end and begins
 * no earlier than the previous span of its lane ends. */
static void spans_do_not_overlap(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    bt_db *db = NULL;
    int attempt;
    char *text = NULL;
    size_t n = 0;
    double last[2] = {-1, -1};
    int spans = 0;
    bt_run_start s = bt_fake_run("dense");
    s.started_us = began_us;
    OK(bt_writer_open(&w, t->db, 1, err));
    OK(bt_writer_begin(w, &s, &attempt, err));
    const bt_sink *sink = bt_writer_sink(w);
    for (int64_t step = 0; step < 5; step++) {
        double v[BT_MS_COUNT], r[BT_MR_COUNT];
        for (int i = 0; i < BT_MS_COUNT; i++) v[i] = NAN;
        for (int i = 0; i < BT_MR_COUNT; i++) r[i] = NAN;
        v[BT_MS_STEP_TIME] = r[BT_MR_STEP_TIME] = 11;
        r[BT_MR_FWD] = 4;
        r[BT_MR_BWD] = 6;
        sink->step(sink->ctx, &(bt_step_record){.step = step,
                                                .wall_us = began_us + 10000 * (step + 2),
                                                .values = v,
                                                .n_ranks = 1,
                                                .rank_values = r});
    }
    OK(bt_writer_end(w, "done", "finished", 0, err));
    bt_writer_close(w);
    OK(bt_db_open(&db, t->db, err));
    FILE *to = open_memstream(&text, &n);
    OK(bt_export_trace(db, &(bt_export_cfg){.run = "dense"}, 0, 4, to, err));
    fclose(to);
    for (const char *p = text; (p = strstr(p, "\"ph\":\"X\"")) != NULL; p++) {
        double ts, dur;
        int lane;
        assert_int_equal(sscanf(p, "\"ph\":\"X\",\"pid\":0,\"tid\":%d,\"ts\":%lf,\"dur\":%lf",
                                &lane, &ts, &dur),
                         3);
        assert_true(dur > 0 && ts >= last[lane] - 1e-3);
        last[lane] = ts + dur;
        spans += lane == 0;
    }
    assert_int_equal(spans, 5);
    assert_true(last[0] == 51000);
    free(text);
    bt_db_close(db);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_trace_contains_the_record, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(spans_do_not_overlap, bt_tmp_make, bt_tmp_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

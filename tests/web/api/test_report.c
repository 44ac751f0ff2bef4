// ctest: timeout=60 labels=web
/* A run as one file: it contains the responses that the page would request, under their names and as the server sends
 * them; texts of a run are not markup; progress is reported. */
#include "../web_test.h"

#include "tests/message.h"
#include "web/api/report.h"

enum { RANKS_MOST = 16 };

typedef struct listener {
    double done;
    int calls;
} listener;

static void record_progress(void *ctx, const char *what, double done) {
    listener *l = ctx;
    assert_string_equal(what, "drawing");
    assert_true(done > l->done && done <= 1);
    l->done = done;
    l->calls++;
}

/* Returns the data block of a report. */
static json_t *data_of(const char *page) {
    static const char begin[] = "<script type=\"application/json\" id=\"bitrain-data\">",
                      end[] = "</script>\n<script>";
    const char *from = strstr(page, begin);
    assert_non_null(from);
    from += strlen(begin);
    const char *to = strstr(from, end);
    assert_non_null(to);
    for (const char *c = from; c < to; c++) assert_true(*c != '<' && *c != '>' && *c != '&');
    json_error_t why;
    json_t *data = json_loadb(from, (size_t)(to - from), JSON_REJECT_DUPLICATES, &why);
    if (!data) fail_msg("no JSON: %s", why.text);
    return data;
}

/* Compares two responses except for digits after the seventh, times below a millisecond, and the age of records. */
static bool are_equal_responses(const json_t *a, const json_t *b) {
    const char *key;
    json_t *x;
    size_t i;
    if (json_is_number(a) && json_is_number(b)) {
        const double p = json_number_value(a), q = json_number_value(b);
        return fabs(p - q) <= fmax(1e-6 * fabs(q), fabs(q) > 1e7 ? 1e-3 : 0);
    }
    if (json_is_object(a) && json_is_object(b)) {
        if (json_object_size(a) != json_object_size(b)) return false;
        json_object_foreach((json_t *)(uintptr_t)a, key,
                            x) if (strcmp(key, "age_s") != 0 &&
                                   !are_equal_responses(x, json_object_get(b, key))) return false;
        return true;
    }
    if (json_is_array(a) && json_is_array(b)) {
        if (json_array_size(a) != json_array_size(b)) return false;
        json_array_foreach(a, i, x) if (!are_equal_responses(x, json_array_get(b, i))) return false;
        return true;
    }
    return json_equal(a, b);
}

static char metric_args[2][2000];

static const char *all_metrics(bool of_rank) {
    char *out = metric_args[of_rank];
    snprintf(out, sizeof metric_args[0], "width=%d&metric=", of_rank ? 240 : 600);
    for (int m = 0; m < (of_rank ? (int)BT_MR_COUNT : (int)BT_MS_COUNT); m++)
        snprintf(out + strlen(out), sizeof metric_args[0] - strlen(out), "%s%s", m > 0 ? "," : "",
                 of_rank ? bt_rank_metrics[m].key : bt_step_metrics[m].key);
    return out;
}

static void assert_report_answer(const json_t *answers, bt_api *api, const char *key,
                                 const char *route, const char *run, const char *args) {
    json_t *want = bt_web_json(api, route, run, args);
    const json_t *got = json_object_get(answers, key);
    if (!got) fail_msg("no answer '%s'", key);
    if (!are_equal_responses(got, want)) fail_msg("another answer '%s'", key);
    json_decref(want);
}

/* Checks each response that a report contains; returns their number. */
static int count_contained_answers(const json_t *answers, bt_api *api, const char *run,
                                   const int *ranks, int n_ranks) {
    static const char *const plain[][2] = {
        {"/head", "head"},           {"/superseded", "superseded"},
        {"/lr_range", "lr_range"},   {"/log", "log"},
        {"/breakdown", "breakdown"}, {"/stragglers", "stragglers"},
        {"/comm", "comm"},           {"/layers", "layers"},
        {"/islands", "islands"},     {"/distributions", "distributions"},
        {"/panel", "panel"}};
    char key[120], args[2200];
    int n = 0;
    snprintf(key, sizeof key, "runs/%s", run);
    assert_report_answer(answers, api, key, "", run, ""), n++;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++, n++) {
        snprintf(key, sizeof key, "runs/%s%s", run, plain[i][0]);
        assert_report_answer(answers, api, key, plain[i][1], run, "");
    }
    snprintf(key, sizeof key, "runs/%s/events", run);
    assert_report_answer(answers, api, key, "events", run, "limit=1000&marks=200"), n++;
    assert_report_answer(answers, api, "metrics", "/api/v1/metrics", NULL, ""), n++;
    static const char *const heats[] = {"busy", "step", "wait", "data", "comm", "memory"};
    for (size_t i = 0; i < sizeof heats / sizeof *heats; i++, n++) {
        snprintf(key, sizeof key, "runs/%s/heatmap?value=%s", run, heats[i]);
        snprintf(args, sizeof args, "value=%s&cols=180", heats[i]);
        assert_report_answer(answers, api, key, "heatmap", run, args);
    }
    static const char *const axes[] = {"tokens", "time", "active", "bytes"};
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++, n++) {
        snprintf(key, sizeof key, "runs/%s/axis?x=%s", run, axes[i]);
        snprintf(args, sizeof args, "metric=tokens&x=%s&width=600", axes[i]);
        assert_report_answer(answers, api, key, "series", run, args);
    }
    snprintf(key, sizeof key, "runs/%s/series", run);
    assert_report_answer(answers, api, key, "series", run, all_metrics(false)), n++;
    for (int i = 0; i < n_ranks; i++, n++) {
        snprintf(key, sizeof key, "runs/%s/series?rank=%d", run, ranks[i]);
        snprintf(args, sizeof args, "%s&rank=%d", all_metrics(true), ranks[i]);
        assert_report_answer(answers, api, key, "series", run, args);
    }
    return n;
}

/* Returns the largest number of fractional digits in the data of a page without exponents. */
static size_t most_digits(const char *page) {
    const char *s = strstr(page, "\"answers\"");
    size_t most = 0;
    bool text = false;
    assert_non_null(s);
    for (; *s && strncmp(s, "</script", 8) != 0; s++) {
        const size_t n = text ? 0 : strspn(s, "0123456789."), dots = strcspn(s, ".");
        if (*s == '\\' && text)
            s++;
        else if (*s == '"')
            text = !text;
        if (n > 1 && dots < n && n > most) most = n;
        if (n > 1) s += n - 1;
    }
    return most;
}

/* Checks the parts around the data: style sheet and scripts, whose hashes the page's policy permits. */
static void check_frame_of_page(const char *page) {
    static const char *const parts[] = {
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src "
        "'sha256-",
        "' 'sha256-",
        "'; style-src 'sha256-",
        "'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" "
        "content=\"no-referrer\">\n"
        "<link rel=\"icon\" href=\"data:,\">\n<title>base · bitrain report</title>\n<style>",
        "</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to the content</a>\n"
        "<header id=\"top\"></header>\n<main id=\"main\" tabindex=\"-1\"><noscript>This report "
        "draws with "
        "JavaScript.</noscript></main>\n<div id=\"toast\" role=\"status\" "
        "aria-live=\"polite\"></div>"
        "<div id=\"said\" class=\"sr\" role=\"status\" aria-live=\"polite\"></div>\n"
        "<script type=\"application/json\" id=\"bitrain-data\">",
        "</script>\n<script>",
        "</script>\n<script>",
        "</script>\n</body>\n</html>\n"};
    enum { N = sizeof parts / sizeof *parts };
    assert_ptr_equal(strstr(page, parts[0]), page);
    for (int i = 0; i < N; i++) {
        const char *at = strstr(page, parts[i]);
        if (!at) fail_msg("the page lacks '%s'", parts[i]);
        page = at + strlen(parts[i]);
    }
    assert_string_equal(page, "");
}

static void a_report_holds_the_answers(void **state) {
    const bt_tmp *t = *state;
    bt_api *api = NULL;
    bt_text page;
    listener heard = {0};
    const bt_store_progress progress = {record_progress, &heard};
    bt_web_runs(t->db);
    run_sql(t->db, "UPDATE run SET note = '</script><b a=\"1\">&amp; \\\"-12.34567890123\"', tags "
                   "= 'x' WHERE name = "
                   "'base'; UPDATE event SET title = '<!-- \\' WHERE seq = 1; "
                   "UPDATE step SET loss = 1.23456789012345e20 WHERE step = 150");
    OK(bt_api_open(&api, t->db, &(bt_api_allows){.control = false}, err));
    bt_text_init(&page);
    OK(bt_report(&page, t->db, "base", &progress, err));
    check_frame_of_page(bt_text_str(&page));
    /* digits of a time of day to the millisecond */
    assert_int_equal(most_digits(bt_text_str(&page)), 14);
    json_t *data = data_of(bt_text_str(&page));
    assert_string_equal(json_string_value(json_object_get(data, "schema")), "bitrain.report/1");
    assert_string_equal(json_string_value(json_object_get(data, "run")), "base");
    assert_true(json_number_value(json_object_get(data, "made_s")) > 1.75e9);
    assert_int_equal(json_object_size(data), 4);
    const json_t *answers = json_object_get(data, "answers");
    const int n = count_contained_answers(answers, api, "base", (const int[]){0, 1, 2, 3}, 4);
    assert_int_equal(json_object_size(answers), n);
    assert_int_equal(heard.calls, n);
    assert_true(heard.done == 1);
    json_decref(data);
    bt_text_release(&page);
    bt_api_close(api);
}

/* Only the slowest of many ranks are drawn. */
static void the_slowest_ranks_are_kept(void **state) {
    const bt_tmp *t = *state;
    bt_text page;
    bt_synth s = bt_synth_default("many");
    s.ranks = RANKS_MOST + 2;
    s.steps = 20;
    s.straggler = RANKS_MOST + 1;
    s.excess = 3;
    s.layers_every = 0;
    OK(bt_synth_make(t->db, &s, err));
    bt_text_init(&page);
    OK(bt_report(&page, t->db, "last", NULL, err));
    json_t *data = data_of(bt_text_str(&page));
    const json_t *answers = json_object_get(data, "answers");
    int n = 0;
    for (int r = 0; r < s.ranks; r++) {
        char key[60];
        snprintf(key, sizeof key, "runs/many/series?rank=%d", r);
        n += json_object_get(answers, key) != NULL;
    }
    assert_int_equal(n, RANKS_MOST);
    assert_non_null(json_object_get(answers, "runs/many/series?rank=17"));
    json_decref(data);
    bt_text_release(&page);
}

static void a_report_of_a_missing_run_is_an_error(void **state) {
    const bt_tmp *t = *state;
    bt_text page;
    bt_err why = BT_ERR_INIT;
    bt_text_init(&page);
    assert_int_equal(bt_report(&page, t->db, "base", NULL, &why), BT_NOTFOUND);
    bt_web_odd_run(t->db);
    assert_int_equal(bt_report(&page, t->db, "nobody", NULL, &why), BT_NOTFOUND);
    message_has(why.msg, "no run 'nobody' (`bitrain runs` lists");
    assert_int_equal(page.len, 0);
    bt_text_release(&page);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, bt_tmp_make, bt_tmp_drop)
    const struct CMUnitTest tests[] = {T(a_report_holds_the_answers), T(the_slowest_ranks_are_kept),
                                       T(a_report_of_a_missing_run_is_an_error)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

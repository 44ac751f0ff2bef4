/* report.c - executes all requests of the page in advance and stores the responses under the names that api.js uses. */
#include "web/api/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/base/system/ascii.h"
#include "web/api/api.h"
#include "web/api/report_page.h"

enum { COLUMNS = 600, RANK_COLUMNS = 240, RANKS = 16, HEAT_COLUMNS = 180 };

typedef struct keeper {
    bt_api *api;
    const char *run;
    bt_json *j;
    const bt_store_progress *progress;
    int kept, all; /* numbers of stored and of all responses */
} keeper;

/* Stores one response as "runs/NAME/what?key", or under `name` if it belongs to no run; args: key, value, ..., NULL. */
static bt_code store_report_answer(keeper *k, bt_api_fn fn, const char *name,
                                   const char *const *args, bt_err *err) {
    bt_answer a = {.status = 200};
    bt_req *r = calloc(1, sizeof *r);
    char key[256];
    if (!r) return bt_fail(err, BT_NOMEM, "no memory for the report");
    for (size_t i = 0; args && args[i]; i += 2) bt_req_add_arg(r, args[i], args[i + 1]);
    bt_text_init(&a.body);
    bt_code code = fn(k->api, r, k->run, &a, err);
    if (code == BT_OK && a.body.failed) code = bt_fail(err, BT_NOMEM, "no memory for the report");
    bool of_run = !name[0] || name[0] == '/';
    snprintf(key, sizeof key, "%s%s%s", of_run ? "runs/" : "", of_run ? k->run : "", name);
    if (code == BT_OK) bt_json_raw(k->j, key, bt_text_str(&a.body));
    k->kept++;
    if (k->progress && k->progress->fn)
        k->progress->fn(k->progress->ctx, "drawing", (double)k->kept / k->all);
    bt_text_release(&a.body);
    free(r);
    return code;
}

/* Stores every metric of the whole run (rank NULL) or of one rank, by step. */
static bt_code store_report_series(keeper *k, const char *rank, bt_err *err) {
    const char *args[7] = {"metric", NULL, "width", rank ? "240" : "600"};
    const int n = rank ? (int)BT_MR_COUNT : (int)BT_MS_COUNT;
    char name[64];
    bt_text metrics;
    bt_text_init(&metrics);
    for (int m = 0; m < n; m++)
        bt_text_printf(&metrics, "%s%s", m > 0 ? "," : "",
                       rank ? bt_rank_metrics[m].key : bt_step_metrics[m].key);
    args[1] = bt_text_str(&metrics);
    if (rank) {
        args[4] = "rank";
        args[5] = rank;
    }
    snprintf(name, sizeof name, rank ? "/series?rank=%s" : "/series", rank ? rank : "");
    bt_code code = metrics.failed ? bt_fail(err, BT_NOMEM, "no memory for the report")
                                  : store_report_answer(k, bt_api_series, name, args, err);
    bt_text_release(&metrics);
    return code;
}

static bt_code store_all_answers(keeper *k, bt_err *err) {
    static const struct {
        const char *name;
        bt_api_fn fn;
    } plain[] = {{"", bt_api_run},
                 {"/head", bt_api_head},
                 {"/superseded", bt_api_superseded},
                 {"/lr_range", bt_api_lr_range},
                 {"/log", bt_api_log},
                 {"/breakdown", bt_api_ranks},
                 {"/stragglers", bt_api_ranks},
                 {"/comm", bt_api_comm},
                 {"/layers", bt_api_layers},
                 {"/islands", bt_api_islands},
                 {"/distributions", bt_api_distributions},
                 {"/panel", bt_api_panel},
                 {"metrics", bt_api_metrics}};
    char name[64], number[16];
    const int heats = (int)BT_HEAT_RSS + 1, axes = (int)BT_X_COUNT - 1;
    k->all = 1 + (int)(sizeof plain / sizeof plain[0]) + heats + 1 + axes + RANKS;
    BT_TRY(store_report_answer(k, bt_api_events, "/events",
                               (const char *const[]){"limit", "1000", "marks", "200", NULL}, err));
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        BT_TRY(store_report_answer(k, plain[i].fn, plain[i].name, NULL, err));
    int ranks[RANKS], n = 0;
    bt_view *v = bt_api_view(k->api, k->run, err);
    if (!v) return err->code;
    /* the worst ranks first */
    for (size_t i = 0; i < v->ranks.n && n < RANKS; i++)
        ranks[n++] = v->ranks.rank[v->ranks.order[i]].rank;
    k->all -= RANKS - n;
    for (int h = 0; h < heats; h++) { /* all values of the page's heat map */
        const char *value = bt_heat_value_name((bt_heat_value)h);
        snprintf(name, sizeof name, "/heatmap?value=%s", value);
        snprintf(number, sizeof number, "%d", HEAT_COLUMNS);
        BT_TRY(store_report_answer(k, bt_api_heatmap, name,
                                   (const char *const[]){"value", value, "cols", number, NULL},
                                   err));
    }
    BT_TRY(store_report_series(k, NULL, err));
    /* positions of the steps on the other axes */
    for (int x = 1; x < (int)BT_X_COUNT; x++) {
        const char *axis = bt_x_axis_name((bt_x_axis)x);
        snprintf(name, sizeof name, "/axis?x=%s", axis);
        snprintf(number, sizeof number, "%d", COLUMNS);
        BT_TRY(store_report_answer(
            k, bt_api_series, name,
            (const char *const[]){"metric", "tokens", "x", axis, "width", number, NULL}, err));
    }
    for (int i = 0; i < n; i++) {
        snprintf(number, sizeof number, "%d", ranks[i]);
        BT_TRY(store_report_series(k, number, err));
    }
    return BT_OK;
}

/* Copies JSON into a data block: markup characters, which occur in strings only, become \u00XX; fractions are written
 * with seven digits. */
static void put_data_block(bt_text *out, const char *s) {
    bool text = false;
    while (*s) {
        if (*s == '<' || *s == '>' || *s == '&') {
            bt_text_printf(out, "\\u%04x", (unsigned)(unsigned char)*s++);
        } else if (text && *s == '\\' && s[1]) {
            bt_text_putn(out, s, 2);
            s += 2;
        } else if (!text && (bt_ascii_digit(*s) || *s == '-')) {
            size_t n = strspn(s, "0123456789+-.eE");
            double v = strtod(s, NULL);
            /* times of day have millisecond precision */
            if (n > 9 && n < 32 && memchr(s, '.', n))
                bt_text_printf(out, fabs(v) < 1e7 ? "%.7g" : "%.13g", v);
            else
                bt_text_putn(out, s, n);
            s += n;
        } else {
            if (*s == '"') text = !text;
            size_t n = 1 + strcspn(s + 1, text ? "<>&\\\"" : "<>&\"-0123456789");
            bt_text_putn(out, s, n);
            s += n;
        }
    }
}

static void base64_of_hex(char out[48], const char *hex) {
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char b[33] = {0};
    for (int i = 0; i < 32; i++) {
        char two[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        b[i] = (unsigned char)strtoul(two, NULL, 16);
    }
    size_t n = 0;
    for (int i = 0; i < 33; i += 3) {
        unsigned v = (unsigned)b[i] << 16 | (unsigned)b[i + 1] << 8 | b[i + 2];
        for (int k = 18; k >= 0; k -= 6) out[n++] = letters[v >> k & 63];
    }
    out[43] = '='; /* base64 of 32 bytes has 43 characters and one pad */
    out[44] = '\0';
}

static void put_report_page(bt_text *out, const char *run, const char *data) {
    char sheet[48], uplot[48], script[48];
    base64_of_hex(sheet, bt_page_sheet.sha256);
    base64_of_hex(uplot, bt_page_uplot.sha256);
    base64_of_hex(script, bt_page_script.sha256);
    bt_text_printf(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src "
        "'sha256-%s' 'sha256-%s'; style-src 'sha256-%s'; "
        "img-src data:; base-uri 'none'; form-action 'none'\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta "
        "name=\"color-scheme\" content=\"light dark\">\n"
        "<meta name=\"referrer\" content=\"no-referrer\">\n<link rel=\"icon\" href=\"data:,\">\n"
        /* no escaping is necessary, because a run's name consists of [a-z0-9._-] */
        "<title>%s · bitrain report</title>\n<style>",
        uplot, script, sheet, run);
    bt_text_putn(out, bt_page_sheet.text, bt_page_sheet.n);
    bt_text_put(out,
                "</style>\n</head>\n<body>\n<a class=\"skip\" href=\"#main\">Skip to the "
                "content</a>\n<header id=\"top\"></header>\n"
                "<main id=\"main\" tabindex=\"-1\"><noscript>This report draws with "
                "JavaScript.</noscript></main>\n"
                "<div id=\"toast\" role=\"status\" aria-live=\"polite\"></div><div id=\"said\" "
                "class=\"sr\" role=\"status\" aria-live=\"polite\"></div>\n<script "
                "type=\"application/json\" id=\"bitrain-data\">");
    put_data_block(out, data);
    bt_text_put(out, "</script>\n<script>");
    bt_text_putn(out, bt_page_uplot.text, bt_page_uplot.n);
    bt_text_put(out, "</script>\n<script>");
    bt_text_putn(out, bt_page_script.text, bt_page_script.n);
    bt_text_put(out, "</script>\n</body>\n</html>\n");
}

bt_code bt_report(bt_text *out, const char *store, const char *wanted,
                  const bt_store_progress *progress, bt_err *err) {
    char run[BT_NAME_MAX];
    bt_api *api = NULL;
    bt_text data;
    bt_json j;
    BT_TRY(bt_api_open(&api, store, &(bt_api_allows){.control = false}, err));
    bt_text_init(&data);
    bt_json_begin(&j, &data);
    bt_db *db = bt_api_db(api, err);
    bt_code code = db ? bt_db_run(db, wanted, run, err) : err->code;
    if (code == BT_OK) {
        bt_json_object(&j, NULL);
        bt_json_str(&j, "schema", "bitrain.report/1");
        bt_json_str(&j, "run", run);
        bt_json_num(&j, "made_s", floor((double)bt_wall_us() / 1e6));
        bt_json_object(&j, "answers");
        code = store_all_answers(&(keeper){.api = api, .run = run, .j = &j, .progress = progress},
                                 err);
        bt_json_end(&j, '}');
        bt_json_end(&j, '}');
    }
    if (code == BT_OK && !data.failed) put_report_page(out, run, bt_text_str(&data));
    if (code == BT_OK && (data.failed || out->failed))
        code = bt_fail(err, BT_NOMEM, "no memory for the report");
    bt_text_release(&data);
    bt_api_close(api);
    return code;
}

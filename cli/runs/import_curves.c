/* import_curves.c - creates runs from the curves of a table, and from the files of other programs. */
#include "cli/runs/import_curves.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/common/curve_table.h"
#include "engine/base/sink.h"
#include "engine/base/text.h"
#include "store/import/foreign_run.h"
#include "store/store.h"

/* Appends the letters and digits of `text` in lower case, with '-' for other characters. */
static void append_run_name(char name[BT_NAME_MAX], const char *text) {
    size_t n = strlen(name);
    for (; *text && n + 1 < BT_NAME_MAX; text++) {
        char c = *text >= 'A' && *text <= 'Z' ? (char)(*text - 'A' + 'a') : *text;
        const bool word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'),
                   plain = word || c == '.' || c == '_';
        if (!word && n == 0) continue;
        name[n++] = plain ? c : '-';
    }
    name[n] = '\0';
}

/* "tests/bench/curves/nano-150.tsv": nano-150 */
static void file_stem_name(char name[BT_NAME_MAX], const char *file) {
    const char *slash = strrchr(file, '/'), *from = slash ? slash + 1 : file,
               *dot = strrchr(from, '.');
    char stem[BT_NAME_MAX];
    snprintf(stem, sizeof stem, "%.*s", (int)(dot && dot > from ? dot - from : (long)strlen(from)),
             from);
    name[0] = '\0';
    append_run_name(name, stem);
    if (!name[0]) snprintf(name, BT_NAME_MAX, "curves");
}

static void put_steps(const bt_sink *sink, const bt_curve *c, int64_t start_us) {
    for (size_t i = 0; i < c->n; i++) {
        double values[BT_MS_COUNT];
        for (int v = 0; v < BT_MS_COUNT; v++) values[v] = NAN;
        values[BT_MS_TOKENS] = c->tokens[i];
        values[BT_MS_VAL_LOSS] = c->bits[i] * M_LN2;
        sink->step(sink->ctx,
                   &(bt_step_record){.step = (int64_t)i,
                                     .wall_us = start_us + (int64_t)(6e7 * c->minutes[i]),
                                     .values = values});
    }
}

/* Begins a run that is recorded here and was trained elsewhere. group: "" or its group. */
static bt_code begin_import(bt_writer *w, const char *name, const char *group, const char *note,
                            int64_t start_us, bt_err *err) {
    char config[160] = "{}";
    int attempt;
    if (group[0])
        snprintf(config, sizeof config, "{\"run.group\":{\"value\":\"%s\",\"origin\":\"file\"}}",
                 group);
    return bt_writer_begin(w,
                           &(bt_run_start){.name = name,
                                           .reason = "import",
                                           .argv = "bitrain runs import",
                                           .config_json = config,
                                           .host = "",
                                           .user = "",
                                           .build = "",
                                           .mpi = "",
                                           .note = note,
                                           .out_dir = "",
                                           .world_size = 1,
                                           .pid = (int)getpid(),
                                           .started_us = start_us},
                           &attempt, err);
}

static bt_code end_import(bt_writer *w, const char *name, bt_err *err) {
    BT_TRY(bt_writer_end(w, "done", "imported", 0, err));
    printf("%s\n", name);
    return BT_OK;
}

static bt_code record_curve(bt_writer *w, const char *group, const bt_curve *c, int64_t end_us,
                            bt_err *err) {
    char name[BT_NAME_MAX], note[160];
    const int64_t start_us = end_us - (c->n ? (int64_t)(6e7 * c->minutes[c->n - 1]) : 0);
    snprintf(name, sizeof name, "%.*s.", BT_NAME_MAX - 2, group);
    append_run_name(name, c->name);
    snprintf(note, sizeof note,
             "%s: mean over %zu seed%s; val_loss in nats a byte; a step is a "
             "validation",
             c->name, c->seeds, c->seeds == 1 ? "" : "s");
    BT_TRY(begin_import(w, name, group, note, start_us, err));
    put_steps(bt_writer_sink(w), c, start_us);
    return end_import(w, name, err);
}

static bt_code import_curve_table(const char *store, const char *file, const char *name,
                                  int64_t end_us, double wait_s, bt_err *err) {
    char group[BT_NAME_MAX];
    bt_curves *c = NULL;
    bt_writer *w = NULL;
    BT_TRY(bt_curves_read(&c, file, err));
    file_stem_name(group, file);
    if (name[0]) snprintf(group, sizeof group, "%s", name);
    bt_code code = bt_writer_open(&w, store, wait_s, err);
    for (size_t i = 0; i < bt_curves_count(c) && code == BT_OK; i++) {
        const bt_curve curve = bt_curves_at(c, i);
        code = record_curve(w, group, &curve, end_us, err);
    }
    bt_writer_close(w);
    bt_curves_free(c);
    return code;
}

/* ---- runs of other programs ---- */

/* Other programs give all their files the same name, in a folder that is named like the run. */
static void foreign_run_name(char name[BT_NAME_MAX], const char *file) {
    static const char *const general[] = {"events.out.tfevents", "trainer_state", "trainer_log",
                                          "log_history",         "metrics",       "history"};
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", file);
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--) path[n - 1] = '\0';
    char *slash = strrchr(path, '/');
    const char *last = slash ? slash + 1 : path;
    bool is_general = false;
    for (size_t i = 0; i < sizeof general / sizeof *general; i++)
        is_general |= strncmp(last, general[i], strlen(general[i])) == 0;
    if (is_general && slash) *slash = '\0';
    slash = strrchr(path, '/');
    if (slash && strncmp(slash + 1, "checkpoint-", 11) == 0) *slash = '\0';
    file_stem_name(name, path);
}

static void put_foreign_steps(const bt_sink *sink, const bt_foreign_run *r, int64_t date_us) {
    const int64_t first = r->at[0].step >= 1 ? 1 : 0; /* our steps count from 0 */
    double wall_s = NAN;
    for (size_t i = 0; i < r->n; i++) {
        if (isfinite(r->at[i].wall_s)) wall_s = r->at[i].wall_s;
        sink->step(sink->ctx, &(bt_step_record){
                                  .step = r->at[i].step - first,
                                  .wall_us = isfinite(wall_s) ? (int64_t)(1e6 * wall_s) : date_us,
                                  .values = r->at[i].values});
    }
}

static void print_import_notes(const bt_foreign_run *r, const char *file) {
    enum { SHOWN = 12 };
    size_t n = 0;
    if (r->notes.len) fputs(bt_text_str(&r->notes), stderr);
    bool has_tokens = false;
    for (size_t i = 0; i < r->n; i++) has_tokens |= !isnan(r->at[i].values[BT_MS_TOKENS]);
    if (!has_tokens)
        fprintf(
            stderr,
            "note: '%s' has no number of tokens, so the dashboard draws the run by step (beside "
            "runs with tokens, choose x: step)\n",
            file);
    if (!r->n_unused) return;
    fprintf(stderr,
            "note: '%s' has names that are not metrics of bitrain, and were not imported: ", file);
    for (const char *at = bt_text_str(&r->unused); *at && n < SHOWN; n++) {
        const size_t width = strcspn(at, "\n");
        char one[160];
        snprintf(one, sizeof one, "%.*s", (int)width, at);
        fprintf(stderr, "%s%s", n ? ", " : "", bt_text_shown(one));
        at += width + (at[width] == '\n');
    }
    if (r->n_unused > n) fprintf(stderr, " and %zu more", r->n_unused - n);
    fputc('\n', stderr);
}

static bt_code import_foreign_run(const char *store, const char *file, const char *given,
                                  int64_t date_us, double wait_s, bt_err *err) {
    char name[BT_NAME_MAX], note[PATH_MAX + 32];
    bt_foreign_run r;
    bt_writer *w = NULL;
    BT_TRY(bt_foreign_run_read(&r, file, err));
    foreign_run_name(name, file);
    if (given[0]) snprintf(name, sizeof name, "%s", given);
    snprintf(note, sizeof note, "imported from %s", file);
    const double first_s = r.at[0].wall_s;
    bt_code code = bt_writer_open(&w, store, wait_s, err);
    if (code == BT_OK)
        code = begin_import(w, name, "", note,
                            isfinite(first_s) ? (int64_t)(1e6 * first_s) : date_us, err);
    if (code == BT_OK) {
        put_foreign_steps(bt_writer_sink(w), &r, date_us);
        code = end_import(w, name, err);
    }
    if (code == BT_OK) print_import_notes(&r, file);
    bt_writer_close(w);
    bt_foreign_run_release(&r);
    return code;
}

/* True if the first line that is not a comment is the header of curve_table.h. */
static bool is_curve_table(const char *file) {
    static const char header[] = "recipe\tcorpus\t";
    char line[512];
    FILE *f = fopen(file, "re");
    bool found = false;
    while (f && fgets(line, sizeof line, f) && (line[0] == '#' || line[0] == '\n'))
        ;
    if (f) found = !ferror(f) && strncmp(line, header, sizeof header - 1) == 0;
    if (f) (void)fclose(f);
    return found;
}

bt_code bt_curves_import(const char *store, const char *file, const char *name, double wait_s,
                         bt_err *err) {
    struct stat st;
    const int64_t date_us = stat(file, &st) == 0 ? (int64_t)st.st_mtime * 1000000 : 0;
    if (name[0] && !bt_name_ok(name))
        return bt_fail(err, BT_ARG,
                       "the name '%s' has other characters than letters, digits, '.', '_' and "
                       "'-', or more than 64",
                       name);
    bt_code code = is_curve_table(file)
                       ? import_curve_table(store, file, name, date_us, wait_s, err)
                       : import_foreign_run(store, file, name, date_us, wait_s, err);
    const char *end = code == BT_BUSY ? strstr(err->msg, " exists already") : NULL;
    if (end) {
        char which[BT_NAME_MAX + 16];
        snprintf(which, sizeof which, "%.*s", (int)(end - err->msg), err->msg);
        return bt_fail(err, BT_BUSY,
                       "%s exists already: '%s' was not imported (--name gives it another name)",
                       which, file);
    }
    return code;
}

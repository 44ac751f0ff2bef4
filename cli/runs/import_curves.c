/* import_curves.c - creates a run for each curve. */
#include "cli/runs/import_curves.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/common/curve_table.h"
#include "engine/base/sink.h"
#include "engine/base/text.h"
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

static bt_code record_curve(bt_writer *w, const char *group, const bt_curve *c, int64_t end_us,
                            bt_err *err) {
    char name[BT_NAME_MAX], note[160], config[160];
    int attempt;
    const int64_t start_us = end_us - (c->n ? (int64_t)(6e7 * c->minutes[c->n - 1]) : 0);
    snprintf(name, sizeof name, "%s.", group);
    append_run_name(name, c->name);
    snprintf(note, sizeof note,
             "%s: mean over %zu seed%s; val_loss in nats a byte; a step is a "
             "validation",
             c->name, c->seeds, c->seeds == 1 ? "" : "s");
    snprintf(config, sizeof config, "{\"run.group\":{\"value\":\"%s\",\"origin\":\"file\"}}",
             group);
    BT_TRY(bt_writer_begin(w,
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
                           &attempt, err));
    put_steps(bt_writer_sink(w), c, start_us);
    BT_TRY(bt_writer_end(w, "done", "imported", 0, err));
    printf("%s\n", name);
    return BT_OK;
}

bt_code bt_curves_import(const char *store, const char *file, double wait_s, bt_err *err) {
    char group[BT_NAME_MAX];
    bt_curves *c = NULL;
    bt_writer *w = NULL;
    struct stat st;
    BT_TRY(bt_curves_read(&c, file, err));
    file_stem_name(group, file);
    const int64_t end_us = stat(file, &st) == 0 ? (int64_t)st.st_mtime * 1000000 : 0;
    bt_code code = bt_writer_open(&w, store, wait_s, err);
    for (size_t i = 0; i < bt_curves_count(c) && code == BT_OK; i++) {
        const bt_curve curve = bt_curves_at(c, i);
        code = record_curve(w, group, &curve, end_us, err);
    }
    bt_writer_close(w);
    bt_curves_free(c);
    return code;
}

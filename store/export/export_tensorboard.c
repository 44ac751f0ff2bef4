/* export_tensorboard.c - event files by hand: TFRecord framing, and the three protobuf messages a
 * scalar needs.
 *
 * record  = u64 length, u32 masked CRC32C of the length, payload, u32 masked CRC32C of the payload
 *         (little endian)
 * Event   {1: wall_time double, 2: step varint, 3: file_version string, 5: Summary{1: Value{1: tag,
 *         2: simple_value float}}}
 * (tensorflow/core/util/event.proto, lib/io/record_writer.cc) */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "store/export/ask.h"
#include "store/export/export.h"

uint32_t bt_crc32c(const void *data, size_t n) {
    static uint32_t table[256];
    const unsigned char *p = data;
    uint32_t crc = 0xFFFFFFFFu;
    if (!table[1]) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = i;
            for (int k = 0; k < 8; k++) c = c & 1 ? 0x82F63B78u ^ (c >> 1) : c >> 1;
            table[i] = c;
        }
    }
    while (n--) crc = table[(crc ^ *p++) & 0xFF] ^ (crc >> 8);
    return crc ^ 0xFFFFFFFFu;
}

static uint32_t masked(const void *data, size_t n) {
    uint32_t crc = bt_crc32c(data, n);
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

/* ---- protobuf ---- */

typedef struct message {
    unsigned char bytes[512];
    size_t n;
} message;

static void put(message *m, const void *p, size_t n) {
    if (m->n + n > sizeof m->bytes) return; /* tags are bounded, so this cannot be */
    memcpy(m->bytes + m->n, p, n);
    m->n += n;
}

static void put_varint(message *m, uint64_t v) {
    do {
        unsigned char b = (unsigned char)((v & 0x7F) | (v > 0x7F ? 0x80 : 0));
        put(m, &b, 1);
        v >>= 7;
    } while (v);
}

static void put_bytes(message *m, unsigned field, const void *p, size_t n) {
    put_varint(m, field << 3 | 2);
    put_varint(m, n);
    put(m, p, n);
}

static void put_double(message *m, unsigned field, double v) {
    put_varint(m, field << 3 | 1);
    put(m, &v, sizeof v);
}

static void put_float(message *m, unsigned field, float v) {
    put_varint(m, field << 3 | 5);
    put(m, &v, sizeof v);
}

static void write_record(FILE *f, const message *m) {
    uint64_t n = m->n;
    uint32_t head = masked(&n, sizeof n), tail = masked(m->bytes, m->n);
    fwrite(&n, sizeof n, 1, f);
    fwrite(&head, sizeof head, 1, f);
    fwrite(m->bytes, 1, m->n, f);
    fwrite(&tail, sizeof tail, 1, f);
}

static void write_version(FILE *f, double wall_s) {
    message m = {.n = 0};
    put_double(&m, 1, wall_s);
    put_bytes(&m, 3, "brain.Event:2", 13);
    write_record(f, &m);
}

static void write_scalar(FILE *f, double wall_s, int64_t step, const char *tag, double value) {
    message v = {.n = 0}, s = {.n = 0}, e = {.n = 0};
    put_bytes(&v, 1, tag, strnlen(tag, 200));
    put_float(&v, 2, (float)value);
    put_bytes(&s, 1, v.bytes, v.n);
    put_double(&e, 1, wall_s);
    put_varint(&e, 2 << 3);
    put_varint(&e, (uint64_t)step);
    put_bytes(&e, 5, s.bytes, s.n);
    write_record(f, &e);
}

/* ---- rows ---- */

typedef struct writing {
    FILE *f;
    double created_s;
    int64_t points;
    /* of the columns from `first_metric` on; NULL: the tag comes from the row */
    const bt_metric *metrics;
    int first_metric;
    const char *prefix; /* "" or "mean_" */
    const bt_export_cfg *cfg;
    double steps;         /* of the run */
    int query, n_queries; /* which of the file's queries writes, of how many of all files */
    int64_t rows;
} writing;

/* every query goes through the run's steps once */
static void tell_progress(writing *w, double step) {
    if (!w->cfg->progress || w->rows++ % 256 || !(w->steps > 0)) return;
    w->cfg->progress(w->cfg->ctx, (w->query + fmin(step / w->steps, 1)) / w->n_queries);
}

/* step, time_s, then metrics in table order */
static bool scalars_of_row(void *ctx, const bt_row *row) {
    writing *w = ctx;
    tell_progress(w, row->nums[0]);
    for (int i = w->first_metric; i < row->n; i++) {
        const bt_metric *m = &w->metrics[i - w->first_metric];
        char tag[160];
        if (row->types[i] == 'n') continue;
        snprintf(tag, sizeof tag, "%s/%s%s", bt_panel_name(m->panel), w->prefix, m->key);
        write_scalar(w->f, w->created_s + row->nums[1], (int64_t)row->nums[0], tag, row->nums[i]);
        w->points++;
    }
    return !ferror(w->f);
}

/* step, time_s, layer, tensor, then layer metrics */
static bool scalars_of_layer(void *ctx, const bt_row *row) {
    writing *w = ctx;
    tell_progress(w, row->nums[0]);
    for (int i = 4; i < row->n; i++) {
        char tag[160];
        if (row->types[i] == 'n') continue;
        snprintf(tag, sizeof tag, "ternary/%s/layer%s.%.60s", bt_layer_metrics[i - 4].key,
                 row->cells[2], row->cells[3]);
        write_scalar(w->f, w->created_s + row->nums[1], (int64_t)row->nums[0], tag, row->nums[i]);
        w->points++;
    }
    return !ferror(w->f);
}

static void columns(bt_text *sql, const char *format, const bt_metric *m, int n) {
    for (int i = 0; i < n; i++) bt_text_printf(sql, format, m[i].key, m[i].key);
}

/* ---- files ---- */

static bt_code make_folder(const char *path, bt_err *err) {
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        return bt_fail_errno(err, BT_IO, errno, "cannot make folder '%s'", path);
    return BT_OK;
}

typedef struct target {
    char path[1200], part[1216];
    FILE *f;
} target;

/* one name a run, so that a second export replaces the first: TensorBoard would show both */
static bt_code begin_file(target *t, const char *folder, double created_s, bt_err *err) {
    snprintf(t->path, sizeof t->path, "%s/events.out.tfevents.%.0f.bitrain.0.0", folder,
             floor(created_s));
    snprintf(t->part, sizeof t->part, "%s.part", t->path);
    t->f = fopen(t->part, "wb");
    if (!t->f) return bt_fail_errno(err, BT_IO, errno, "cannot write '%s'", t->part);
    write_version(t->f, created_s);
    return BT_OK;
}

static bt_code end_file(target *t, bt_code code, bt_err *err) {
    bool bad = fflush(t->f) != 0 || ferror(t->f);
    if (fclose(t->f) != 0) bad = true;
    if (code == BT_OK && (bad || rename(t->part, t->path) != 0))
        code = bt_fail_errno(err, BT_IO, errno, "cannot write '%s'", t->path);
    if (code != BT_OK) remove(t->part);
    return code;
}

static bt_code write_main(bt_db *db, const char *run, writing *w, bt_err *err) {
    bt_text sql;
    bt_text_init(&sql);
    bt_text_put(&sql, "SELECT step, time_s");
    columns(&sql, ", \"%s\"", bt_step_metrics, BT_MS_COUNT);
    bt_text_put(&sql, " FROM steps WHERE run = ?1 ORDER BY attempt, step");
    w->metrics = bt_step_metrics;
    w->first_metric = 2;
    bt_code code = bt_export_ask(db, &sql, &run, 1, scalars_of_row, w, err);
    bt_text_clear(&sql);
    w->query++;
    bt_text_put(&sql, "SELECT s.step, s.time_s, l.layer, l.tensor");
    columns(&sql, ", l.\"%s\"", bt_layer_metrics, BT_ML_COUNT);
    bt_text_put(&sql, " FROM layers l JOIN steps s ON s.run = l.run AND s.attempt = l.attempt AND "
                      "s.step = l.step WHERE l.run = ?1 AND s.run = ?1 ORDER BY l.attempt, l.step");
    if (code == BT_OK) code = bt_export_ask(db, &sql, &run, 1, scalars_of_layer, w, err);
    bt_text_clear(&sql);
    w->query++;
    bt_text_put(&sql, "SELECT r.step, s.time_s");
    columns(&sql, ", avg(r.\"%s\")", bt_rank_metrics, BT_MR_COUNT);
    bt_text_put(&sql,
                " FROM rank_steps r JOIN steps s ON s.run = r.run AND s.attempt = r.attempt AND "
                "s.step = r.step WHERE r.run = ?1 AND s.run = ?1 GROUP BY r.attempt, r.step");
    w->metrics = bt_rank_metrics;
    w->prefix = "mean_";
    if (code == BT_OK) code = bt_export_ask(db, &sql, &run, 1, scalars_of_row, w, err);
    bt_text_release(&sql);
    return code;
}

/* of_run: what the main file was written with */
static bt_code write_rank(bt_db *db, const writing *of_run, int rank, const char *folder,
                          int64_t *n_points, bt_err *err) {
    target t;
    bt_text sql;
    char sub[1100], number[16];
    const char *params[] = {of_run->cfg->run, number};
    writing w = *of_run;
    w.points = w.rows = 0;
    w.metrics = bt_rank_metrics;
    w.first_metric = 2;
    w.prefix = "";
    w.query += 1 + rank;
    snprintf(sub, sizeof sub, "%s/rank%d", folder, rank);
    snprintf(number, sizeof number, "%d", rank);
    BT_TRY(make_folder(sub, err));
    BT_TRY(begin_file(&t, sub, w.created_s, err));
    w.f = t.f;
    bt_text_init(&sql);
    bt_text_put(&sql, "SELECT r.step, s.time_s");
    columns(&sql, ", r.\"%s\"", bt_rank_metrics, BT_MR_COUNT);
    bt_text_put(
        &sql,
        " FROM rank_steps r JOIN steps s ON s.run = r.run AND s.attempt = r.attempt AND s.step = "
        "r.step WHERE r.run = ?1 AND s.run = ?1 AND r.rank = ?2 ORDER BY r.attempt, r.step");
    const bt_code code = bt_export_ask(db, &sql, params, 2, scalars_of_row, &w, err);
    bt_text_release(&sql);
    *n_points += w.points;
    return end_file(&t, code, err);
}

bt_code bt_export_tensorboard(bt_db *db, const bt_export_cfg *cfg, const char *dir, bool per_rank,
                              char path[1200], int64_t *n_points, bt_err *err) {
    const char *run = cfg->run;
    char folder[1060];
    double created_s, ranks;
    target t;
    writing w = {.prefix = "", .cfg = cfg};
    if (strlen(dir) > 960) return bt_fail(err, BT_ARG, "folder name is too long");
    snprintf(folder, sizeof folder, "%s/%s", dir, run);
    BT_TRY(bt_db_value(db, "SELECT started_s FROM runs WHERE run = ?1", run, &created_s, err));
    BT_TRY(
        bt_db_value(db, "SELECT max(rank) + 1 FROM rank_steps WHERE run = ?1", run, &ranks, err));
    BT_TRY(bt_db_value(db, "SELECT steps FROM runs WHERE run = ?1", run, &w.steps, err));
    if (isnan(ranks)) ranks = 0; /* such as a run that was imported */
    w.n_queries = 3 + (per_rank ? (int)ranks : 0);
    BT_TRY(make_folder(dir, err));
    BT_TRY(make_folder(folder, err));
    BT_TRY(begin_file(&t, folder, created_s, err));
    w.f = t.f;
    w.created_s = created_s;
    bt_code code = write_main(db, run, &w, err);
    BT_TRY(end_file(&t, code, err));
    *n_points = w.points;
    for (int r = 0; per_rank && r < ranks; r++)
        BT_TRY(write_rank(db, &w, r, folder, n_points, err));
    snprintf(path, 1200, "%s", t.path);
    return BT_OK;
}

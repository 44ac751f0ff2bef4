// ctest: timeout=60
/* An exported TensorBoard event file, read by a decoder that shares no code with the exporter, has every point of the
 * run once. */
#include <sys/stat.h>

#include "../synth_run.h"
#include "export_runs.h"
#include "store/export/tb_file.h"

/* ---- an event file, decoded byte by byte ---- */

static uint32_t slow_crc32c(const unsigned char *p, size_t n) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        for (int bit = 0; bit < 8; bit++) {
            uint32_t in = (uint32_t)(p[i] >> bit & 1) ^ (crc & 1);
            crc = (crc >> 1) ^ (in ? 0x82F63B78u : 0);
        }
    }
    return ~crc;
}

static uint32_t unmask_crc(uint32_t m) {
    uint32_t rot = m - 0xA282EAD8u;
    return rot >> 17 | rot << 15;
}

static uint64_t varint(const unsigned char **p) {
    uint64_t v = 0;
    for (int shift = 0;; shift += 7) {
        v |= (uint64_t)(**p & 0x7F) << shift;
        if (!(*(*p)++ & 0x80)) return v;
    }
}

typedef struct scalar {
    char tag[128], version[32];
    double wall, value;
    int64_t step;
    bool has_value;
    unsigned other; /* bit mask of fields that are not scalars */
} scalar;

static void decode_message(const unsigned char *p, size_t n, int depth, scalar *s) {
    const unsigned char *end = p + n;
    while (p < end) {
        uint64_t key = varint(&p);
        unsigned field = (unsigned)(key >> 3);
        switch (key & 7) {
        case 0:
            assert_true(depth == 0 && field == 2);
            s->step = (int64_t)varint(&p) - 1; /* The exporter writes step 0 as 1. */
            break;
        case 1:
            assert_true(depth == 0 && field == 1);
            memcpy(&s->wall, p, 8);
            p += 8;
            break;
        case 2: {
            uint64_t m = varint(&p);
            assert_true(m <= (size_t)(end - p));
            if (depth == 0 && field == 3)
                snprintf(s->version, sizeof s->version, "%.*s", (int)m, (const char *)p);
            else if (depth == 0 && field == 5)
                decode_message(p, m, 1, s);
            else if (depth == 1 && field == 1)
                decode_message(p, m, 2, s);
            else if (depth == 2 && field == 1)
                snprintf(s->tag, sizeof s->tag, "%.*s", (int)m, (const char *)p);
            else if (depth == 2 && (field == 5 || field == 8 || field == 9))
                s->other |= 1u << field; /* histograms, texts, settings, plugin data */
            else
                fail_msg("field %u at depth %d", field, depth);
            p += m;
            break;
        }
        case 5: {
            float f;
            assert_true(depth == 2 && field == 2);
            memcpy(&f, p, 4);
            s->value = f;
            s->has_value = true;
            p += 4;
            break;
        }
        default: fail_msg("wire type %u", (unsigned)(key & 7));
        }
    }
    assert_ptr_equal(p, end);
}

typedef struct tally {
    int records, losses, layers, means;
    double last_wall;
    int64_t last_step;
} tally;

static void read_events(const char *path, tally *t) {
    unsigned char head[12], *body = NULL;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    *t = (tally){.last_step = -1};
    while (fread(head, 1, 12, f) == 12) {
        uint64_t n;
        uint32_t crc;
        memcpy(&n, head, 8);
        memcpy(&crc, head + 8, 4);
        assert_true(unmask_crc(crc) == slow_crc32c(head, 8));
        assert_true(n < 4096);
        body = realloc(body, n + 4);
        assert_true(fread(body, 1, n + 4, f) == n + 4);
        memcpy(&crc, body + n, 4);
        assert_true(unmask_crc(crc) == slow_crc32c(body, n));
        scalar s = {.step = 0};
        decode_message(body, n, 0, &s);
        if (t->records++ == 0) {
            assert_string_equal(s.version, "brain.Event:2");
            continue;
        }
        assert_true(s.wall > 1.6e9);
        if (s.other) continue;
        assert_true(s.has_value);
        if (strcmp(s.tag, "train/loss") == 0) {
            /* Steps repeated after a restart are exported once, so the numbers increase by one. */
            assert_int_equal(s.step, t->last_step + 1);
            assert_true(fabs(s.value - bt_synth_loss(s.step)) < 1e-6);
            assert_true(s.wall > t->last_wall);
            t->last_wall = s.wall;
            t->last_step = s.step;
            t->losses++;
        }
        if (strcmp(s.tag, "ternary/zero_frac/layer1.ffn_up") == 0) t->layers++;
        if (strcmp(s.tag, "step/mean_data_ms") == 0) {
            assert_true(fabs(s.value - 11.25) < 1e-5);
            t->means++;
        }
    }
    assert_true(feof(f));
    fclose(f);
    free(body);
}

static void write_two_ranks(const bt_tmp *t) {
    bt_synth s = bt_synth_default("s");
    s.straggler = 2;
    s.excess = 0.5;
    s.fail_at = 120;
    s.resume_from = 100;
    OK(bt_synth_make(t->db, &s, err));
}

/* ctx points to the previous share. */
static void check_progress_increases(void *ctx, double done) {
    double *last = ctx;
    assert_true(done >= *last && done <= 1);
    *last = done;
}

static void tensorboard_files_are_sound(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    char path[1200];
    int64_t points = 0, again = 0;
    double share = 0;
    const bt_export_cfg of_s = {.run = "s", .progress = check_progress_increases, .ctx = &share};
    tally got;
    struct stat st;
    write_two_ranks(t);
    assert_true(bt_crc32c("123456789", 9) == 0xE3069283u); /* published check value of CRC-32C */
    OK(bt_db_open(&db, t->db, err));
    OK(bt_export_tensorboard(db, &of_s, t->dir, true, path, &points, err));
    assert_true(share > 0.5);
    share = 0;
    read_events(path, &got);
    assert_int_equal(got.losses, 200);
    assert_int_equal(got.layers, 10);
    assert_int_equal(got.means, 200);
    assert_int_equal(got.last_step, 199);
    assert_true(points > got.records); /* The total includes the points of the ranks' files. */
    OK(bt_export_tensorboard(db, &of_s, t->dir, true, path, &again, err));
    assert_true(points == again);
    read_events(path, &got); /* The second export replaces the file. */
    assert_int_equal(got.losses, 200);
    char rank[1300], part[1300];
    snprintf(rank, sizeof rank, "%s/s/rank3", t->dir);
    assert_int_equal(stat(rank, &st), 0);
    snprintf(part, sizeof part, "%s.part", path);
    assert_int_not_equal(stat(part, &st), 0);
    bt_db_close(db);
}

/* Lists the steps of train/loss in file order. */
static void losses_of(const char *path, char *out, size_t size) {
    unsigned char head[12], body[8192];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    out[0] = '\0';
    while (fread(head, 1, 12, f) == 12) {
        uint64_t n;
        scalar s = {.step = -1};
        memcpy(&n, head, 8);
        assert_true(n < sizeof body - 4 && fread(body, 1, n + 4, f) == n + 4);
        decode_message(body, n, 0, &s);
        if (strcmp(s.tag, "train/loss") == 0)
            snprintf(out + strlen(out), size - strlen(out), "%lld ", (long long)s.step + 1);
    }
    fclose(f);
}

/* Lists every point of a file, in file order, as "step tag value\n". */
static void points_of(const char *path, char *out, size_t size) {
    unsigned char head[12], body[1024];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    out[0] = '\0';
    for (int k = 0; fread(head, 1, 12, f) == 12; k++) {
        uint64_t n;
        scalar s = {.step = -1};
        memcpy(&n, head, 8);
        assert_true(n < sizeof body - 4 && fread(body, 1, n + 4, f) == n + 4);
        decode_message(body, n, 0, &s);
        if (k && s.other) {
            snprintf(out + strlen(out), size - strlen(out), "%s\n", s.tag);
            continue;
        }
        assert_true(s.wall == (double)began_us / 1e6 + (k ? (double)(s.step + 1) : 0));
        if (k)
            snprintf(out + strlen(out), size - strlen(out), "%lld %s %g\n", (long long)s.step,
                     s.tag, s.value);
    }
    fclose(f);
}

static void event_files_contain_the_record(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    bt_err why = BT_ERR_INIT;
    char dir[128], path[1200], want[1300], rank[1300], points[4000], longest[970];
    int64_t n = 0;
    const bt_export_cfg cfg = {.run = "small", .progress = keep_progress};
    small_run(t);
    OK(bt_db_open(&db, t->db, err));
    snprintf(dir, sizeof dir, "%s/tb", t->dir);
    progress_times = 0;
    OK(bt_export_tensorboard(db, &cfg, dir, true, path, &n, err));
    snprintf(want, sizeof want, "%s/small/events.out.tfevents.1700000000.bitrain.0.0", dir);
    assert_string_equal(path, want);
    points_of(path, points, sizeof points);
    static const char main_points[] =
        "_hparams_/session_start_info\n"
        "0 train/tokens 64\n0 train/loss 3.5\n0 speed/step_ms 250\n"
        "1 train/tokens 128\n1 speed/step_ms 500\n"
        "2 train/tokens 192\n2 train/loss 1.5\n2 speed/tokens_per_s 1000.25\n2 speed/step_ms 750\n"
        "1 ternary/zero_frac/layer3.attn_q 0.25\n1 ternary/scale/layer3.attn_q 0.5\n"
        "0 step/mean_step_ms 225\n0 step/mean_data_ms 10.5\n0 step/mean_fwd_ms 20.5\n0 "
        "step/mean_bwd_ms 30\n"
        "1 step/mean_step_ms 425\n1 step/mean_data_ms 10.5\n1 step/mean_fwd_ms 20.5\n1 "
        "step/mean_bwd_ms 0\n"
        "2 step/mean_step_ms 625\n2 step/mean_data_ms 10.5\n2 step/mean_fwd_ms 20.5\n2 "
        "step/mean_bwd_ms 30\n"
        "distributions/weights/layer3.attn_q\nsamples/text\n_hparams_/session_end_info\n";
    assert_string_equal(points, main_points);
    snprintf(rank, sizeof rank, "%s/small/rank1/events.out.tfevents.1700000000.bitrain.0.0", dir);
    points_of(rank, points, sizeof points);
    assert_string_equal(
        points, "0 step/step_ms 250\n0 step/data_ms 10.5\n0 step/fwd_ms 21\n0 step/bwd_ms 30\n"
                "1 step/step_ms 450\n1 step/data_ms 10.5\n1 step/fwd_ms 21\n1 step/bwd_ms 0\n"
                "2 step/step_ms 650\n2 step/data_ms 10.5\n2 step/fwd_ms 21\n2 step/bwd_ms 30\n");
    assert_int_equal(n, 23 + 2 * 12);
    /* The main file takes five of seven queries and reports progress once per 256 rows. */
    assert_int_equal(progress_times, 3);
    static const double shares[] = {0, 5 / 7.0, 6 / 7.0};
    for (int i = 0; i < 3; i++) assert_true(fabs(progress_said[i] - shares[i]) < 1e-9);
    snprintf(rank, sizeof rank, "%s/small/rank2", dir);
    assert_int_equal(access(rank, F_OK), -1);
    OK(bt_export_tensorboard(db, &(bt_export_cfg){.run = "small"}, dir, false, path, &n, err));
    assert_int_equal(n, 23);
    memset(longest, 'x', sizeof longest);
    longest[961] = '\0';
    assert_int_equal(bt_export_tensorboard(db, &cfg, longest, false, path, &n, &why), BT_ARG);
    longest[960] = '\0';
    assert_int_equal(bt_export_tensorboard(db, &cfg, longest, false, path, &n, &why), BT_IO);
    snprintf(dir, sizeof dir, "%s/file", t->dir);
    fclose(fopen(dir, "w"));
    assert_int_equal(bt_export_tensorboard(db, &cfg, dir, false, path, &n, &why), BT_IO);
    snprintf(want, sizeof want, "cannot make folder '%s/small': Not a directory", dir);
    assert_string_equal(why.msg, want);
    assert_int_equal(unlink(dir), 0);
    OK(bt_export_tensorboard(db, &cfg, dir, false, path, &n, err));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0); /* A folder occupies the name of the file to export. */
    snprintf(rank, sizeof rank, "%s/x", path);
    fclose(fopen(rank, "w"));
    snprintf(want, sizeof want, "%s/small/events.out.tfevents.1700000000.bitrain.0.0.part", dir);
    assert_int_equal(bt_export_tensorboard(db, &cfg, dir, false, path, &n, &why), BT_IO);
    assert_non_null(strstr(why.msg, "cannot write '"));
    assert_int_equal(access(want, F_OK), -1);
    assert_int_equal(mkdir(want, 0700), 0);
    assert_int_equal(bt_export_tensorboard(db, &cfg, dir, false, path, &n, &why), BT_IO);
    assert_int_not_equal(bt_export_tensorboard(db, &(bt_export_cfg){.run = "none"}, dir, false,
                                               path, &n, &why),
                         BT_CHECK);
    bt_db_close(db);
}

typedef struct late_steps {
    bt_writer *w;
    int64_t n;
} late_steps;

/* Adds three steps before each pass, up to nine. */
static bool write_more_steps(void *ctx) {
    late_steps *l = ctx;
    bt_fake f;
    bt_err why = BT_ERR_INIT;
    if (l->n == 9) return false;
    for (int64_t end = l->n + 3; l->n < end; l->n++)
        bt_writer_sink(l->w)->step(bt_writer_sink(l->w)->ctx, bt_fake_step(&f, l->n, 0));
    assert_int_equal(bt_writer_flush(l->w, &why), BT_OK);
    return true;
}

/* An export that follows a growing run writes each point once. */
static void a_growing_run_is_followed(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    char path[1200], points[2][8000];
    int64_t n[2];
    int attempt;
    late_steps late = {0};
    bt_run_start s = bt_fake_run("grows");
    OK(bt_writer_open(&late.w, t->db, 1, err));
    OK(bt_writer_begin(late.w, &s, &attempt, err));
    OK(bt_writer_flush(late.w, err));
    OK(bt_db_open(&db, t->db, err));
    for (int i = 0; i < 2; i++) {
        const bt_export_cfg cfg = {
            .run = "grows", .wait = i ? NULL : write_more_steps, .ctx = &late};
        OK(bt_export_tensorboard(db, &cfg, t->dir, false, path, &n[i], err));
        losses_of(path, points[i], sizeof points[i]);
    }
    assert_true(n[0] > 0);
    assert_int_equal(n[0], n[1]);
    assert_string_equal(points[0], "1 2 3 4 5 6 7 8 9 ");
    assert_string_equal(points[1], points[0]);
    bt_db_close(db);
    bt_writer_close(late.w);
}

/* An export reports progress after each 256th row of a query, as a share of all rows of the file. */
static void long_exports_report_progress(void **state) {
    const bt_tmp *t = *state;
    bt_writer *w = NULL;
    bt_db *db = NULL;
    bt_fake f;
    char path[1200];
    int64_t points = 0;
    int attempt;
    const bt_export_cfg cfg = {.run = "long", .progress = keep_progress};
    bt_run_start s = bt_fake_run("long");
    OK(bt_writer_open(&w, t->db, 1, err));
    OK(bt_writer_begin(w, &s, &attempt, err));
    for (int64_t step = 0; step < 600; step++)
        bt_writer_sink(w)->step(bt_writer_sink(w)->ctx, bt_fake_step(&f, step, 0));
    OK(bt_writer_end(w, "done", "finished", 0, err));
    bt_writer_close(w);
    OK(bt_db_open(&db, t->db, err));
    progress_times = 0;
    OK(bt_export_tensorboard(db, &cfg, t->dir, false, path, &points, err));
    assert_int_equal(progress_times, 3); /* Only the first query returns rows in this run. */
    for (int i = 0; i < 3; i++) assert_true(fabs(progress_said[i] - 256 * i / 600.0 / 5) < 1e-12);
    bt_db_close(db);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(long_exports_report_progress, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_growing_run_is_followed, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(tensorboard_files_are_sound, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(event_files_contain_the_record, bt_tmp_make, bt_tmp_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* timeout: 60
 * event files are read back by a second, independent decoder; traces add up; comparisons know their
 * noise. */
#include <sys/stat.h>

#include "store/export/export.h"
#include "store/read/compare_runs.h"
#include "store_test.h"
#include "synth_run.h"

/* ---- an event file, read bit by bit ---- */

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

static uint32_t unmask(uint32_t m) {
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
} scalar;

static void decode_message(const unsigned char *p, size_t n, int depth, scalar *s) {
    const unsigned char *end = p + n;
    while (p < end) {
        uint64_t key = varint(&p);
        unsigned field = (unsigned)(key >> 3);
        switch (key & 7) {
        case 0:
            assert_true(depth == 0 && field == 2);
            s->step = (int64_t)varint(&p);
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
        assert_true(unmask(crc) == slow_crc32c(head, 8));
        assert_true(n < 4096);
        body = realloc(body, n + 4);
        assert_true(fread(body, 1, n + 4, f) == n + 4);
        memcpy(&crc, body + n, 4);
        assert_true(unmask(crc) == slow_crc32c(body, n));
        scalar s = {.step = 0};
        decode_message(body, n, 0, &s);
        if (t->records++ == 0) {
            assert_string_equal(s.version, "brain.Event:2");
            continue;
        }
        assert_true(s.has_value && s.wall > 1.6e9);
        if (strcmp(s.tag, "train/loss") == 0) {
            /* live steps only: no zigzag at the restart */
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

static void make(const bt_tmp *t) {
    bt_synth s = bt_synth_default("s");
    s.straggler = 2;
    s.excess = 0.5;
    s.fail_at = 120;
    s.resume_from = 100;
    OK(bt_synth_make(t->db, &s, err));
}

/* ctx: the share told last */
static void rises(void *ctx, double done) {
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
    const bt_export_cfg of_s = {.run = "s", .progress = rises, .ctx = &share};
    tally got;
    struct stat st;
    make(t);
    assert_true(bt_crc32c("123456789", 9) == 0xE3069283u); /* the check value of CRC-32C */
    OK(bt_db_open(&db, t->db, err));
    OK(bt_export_tensorboard(db, &of_s, t->dir, true, path, &points, err));
    assert_true(share > 0.5);
    share = 0;
    read_events(path, &got);
    assert_int_equal(got.losses, 200);
    assert_int_equal(got.layers, 10);
    assert_int_equal(got.means, 200);
    assert_int_equal(got.last_step, 199);
    assert_true(points > got.records); /* the ranks' files too */
    OK(bt_export_tensorboard(db, &of_s, t->dir, true, path, &again, err));
    assert_true(points == again);
    read_events(path, &got); /* replaced, not added to */
    assert_int_equal(got.losses, 200);
    char rank[1300], part[1300];
    snprintf(rank, sizeof rank, "%s/s/rank3", t->dir);
    assert_int_equal(stat(rank, &st), 0);
    snprintf(part, sizeof part, "%s.part", path);
    assert_int_not_equal(stat(part, &st), 0);
    bt_db_close(db);
}

/* ---- compare ---- */

static void write_noisy(const char *path, const char *name, double shift, double noise,
                        int64_t steps) {
    bt_writer *w = NULL;
    int attempt;
    double values[BT_MS_COUNT];
    OK(bt_writer_open(&w, path, 1, err));
    bt_run_start s = bt_fake_run(name);
    OK(bt_writer_begin(w, &s, &attempt, err));
    for (int64_t step = 0; step < steps; step++) {
        for (int i = 0; i < BT_MS_COUNT; i++) values[i] = NAN;
        values[BT_MS_TOKENS] = 1000.0 * (double)(step + 1);
        values[BT_MS_LOSS] = 3 - 0.001 * (double)step + shift +
                             noise * bt_synth_noise(step, (int)(shift * 100), 0);
        bt_writer_sink(w)->step(bt_writer_sink(w)->ctx, &(bt_step_record){.step = step,
                                                                          .wall_us = bt_wall_us(),
                                                                          .values = values});
    }
    OK(bt_writer_end(w, "done", "finished", 0, err));
    bt_writer_close(w);
}

static void a_difference_inside_the_noise_is_none(void **state) {
    const bt_tmp *t = *state;
    bt_db *db = NULL;
    bt_gate g;
    bt_level base, same, worse;
    bt_at at = {BT_AT_TOKENS, 500000};
    write_noisy(t->db, "base", 0, 0.1, 1000);
    write_noisy(t->db, "same", 0.01, 0.1, 1000);
    write_noisy(t->db, "worse", 0.5, 0.1, 800);
    OK(bt_db_open(&db, t->db, err));
    OK(bt_db_level(db, "base", "loss", &at, 40, &base, err));
    OK(bt_db_level(db, "same", "loss", &at, 40, &same, err));
    OK(bt_db_level(db, "worse", "loss", &at, 40, &worse, err));
    assert_int_equal(base.n, 40);
    assert_true(base.x == 500000);
    assert_true(fabs(base.value - (3 - 0.001 * 479.5)) < 0.05);
    /* uniform noise, n = 40 */
    assert_true(base.noise > 0.1 / sqrt(3) / sqrt(40) / 2 &&
                base.noise < 0.1 / sqrt(3) / sqrt(40) * 2);
    OK(bt_gate_parse("loss > +0.1% @ tokens=500k", &g, err));
    assert_int_equal(bt_gate_check(&g, &worse, &base), BT_GATE_FAILS);
    assert_int_equal(bt_gate_check(&g, &base, &base), BT_GATE_HOLDS);
    bt_level near = base;
    near.value += 1.5 * base.noise;
    assert_int_equal(bt_gate_check(&g, &near, &base), BT_GATE_NOISE);
    near.value = base.value + 4 * base.noise;
    assert_int_equal(bt_gate_check(&g, &near, &base), BT_GATE_FAILS);
    near.value = NAN;
    /* a run without the figure cannot pass */
    assert_int_equal(bt_gate_check(&g, &near, &base), BT_GATE_FAILS);
    double end = 0;
    OK(bt_db_common_end(db, (const char *[]){"base", "worse"}, 2, BT_AT_TOKENS, &end, err));
    assert_true(end == 800000);
    bt_first_difference d;
    OK(bt_db_first_difference(db, "base", "worse", &d, err));
    assert_int_equal(d.step, 0);
    assert_int_equal(d.common, 800);
    OK(bt_db_first_difference(db, "base", "base", &d, err));
    assert_int_equal(d.step, -1);
    bt_db_close(db);
}

static void conditions_are_parsed(void **state) {
    (void)state;
    static const char *const wrong[] = {"",
                                        "loss",
                                        "loss >",
                                        "> 3",
                                        "loss = 3",
                                        "loss > x",
                                        "loss > 3 @",
                                        "loss > 3 @ tokens",
                                        "loss > 3 @ mood=2",
                                        "loss > 3 4",
                                        "loss > 3 @ step=x"};
    bt_gate g;
    bt_err why;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(bt_gate_parse(wrong[i], &g, &why), BT_ARG);
    OK(bt_gate_parse("tokens_per_s<-5%", &g, err));
    assert_true(!g.greater && g.relative && g.percent && g.limit == -5 && isnan(g.at.x));
    OK(bt_gate_parse("  best_val  >  2.3  @ step = 2k", &g, err));
    assert_true(g.greater && !g.relative && g.limit == 2.3 && g.at.axis == BT_AT_STEP &&
                g.at.x == 2000);
    assert_string_equal(g.metric, "best_val");
    OK(bt_gate_parse("step_ms > +10", &g, err));
    assert_true(g.relative && !g.percent && g.limit == 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tensorboard_files_are_sound, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(a_difference_inside_the_noise_is_none, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test(conditions_are_parsed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_refused.c - each request for memory is refused, alone and with all later ones, while a configuration is read, a
 * checkpoint is written, found and loaded, a database is written, read and viewed, and a layout is planned: the result
 * is one clear error with the code for memory, or success, without a crash or a leak. */
#include "tests/memory/refuse_memory.h"

#include <stdlib.h>
#include <unistd.h>

#include "engine/config/run_cfg.h"
#include "engine/kernels/table/kernels.h"
#include "engine/plan/simulate.h"
#include "store/export/export.h"
#include "tests/engine/ckpt/ckpt_world.h"
#include "tests/store/store_test.h"
#include "tests/store/view_test.h"

static const char settings[] = "model:\n  preset: nano\n  layers: 3\n"
                               "data:\n  path: [a.txt, 'b c.txt', \"d\"]\n"
                               "optim:\n  lr: 1e-3 # a remark\n  schedule: cosine\n"
                               "train:\n  steps: 100\n  batch_tokens: 4096\n";

static bt_opts opts;
static bt_run_cfg cfg;

static bt_code read_configuration(void *ctx, bt_err *err) {
    bool help;
    char *words[] = {ctx, "--threads", "1"};
    BT_TRY(bt_run_cfg_read(&opts, &cfg, 3, words, &help, err));
    return bt_run_cfg_resolve_opts(&opts, &cfg, 2, err);
}

static void reading_a_configuration(void **state) {
    const bt_tmp *t = *state;
    char path[80];
    snprintf(path, sizeof path, "%s/c.yaml", t->dir);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(settings, f) >= 0 && fclose(f) == 0);
    assert_true(survives_refusals("reading a configuration", read_configuration, path, false) > 20);
    assert_int_equal(cfg.model.layers, 3);
}

static bt_code save_checkpoint(void *ctx, bt_err *err) {
    world *s = ctx;
    bt_ckpt_meta meta;
    bt_ckpt_saved saved;
    char cmd[120];
    snprintf(cmd, sizeof cmd, "%s/step-000000000100/manifest.json", s->dir);
    unlink(cmd);
    fill_meta(&meta, 100, 0);
    bt_code code = meta.config.failed || meta.tokenizer.failed || meta.state.failed
                       ? bt_fail(err, BT_NOMEM, "no memory for the test's own texts")
                       : save_world(s, &meta, 3, &saved, err);
    bt_ckpt_meta_release(&meta);
    return code;
}

static bt_code load_checkpoint(void *ctx, bt_err *err) {
    world *s = ctx;
    char path[PATH_MAX];
    bt_ckpt_meta meta = {0};
    bt_text why = {0};
    float w[N_W], m[50];
    const bt_ckpt_slice want[] = {
        {"layers.0.attn_q", "weight", N_W, 0, N_W, w, 0, 0, BT_CKPT_F32, false},
        {"embed", "weight", N_EMBED, 390, 50, m, 0, 0, BT_CKPT_F32, false},
    };
    bt_code code = bt_ckpt_find(bt_comm_world(), s->dir, path, sizeof path, &meta, &why, err);
    if (code == BT_OK) {
        /* The newest checkpoint is not replaced by an older one, and its texts are complete. */
        assert_int_equal(meta.step, 100);
        assert_string_equal(bt_text_str(&meta.tokenizer), "bytes");
        assert_string_equal(bt_text_str(&meta.config),
                            "{\"optim.lr\":0.002,\"model.norm\":\"subln\"}");
        code = bt_ckpt_load(path, want, 2, err);
    }
    if (code == BT_OK) assert_memory_equal(w, s->w, sizeof w);
    bt_ckpt_meta_release(&meta);
    bt_text_release(&why);
    return code;
}

static bt_code save_older(world *s) {
    bt_ckpt_meta meta;
    fill_meta(&meta, 50, 0);
    const bt_code code = save_world(s, &meta, 3, NULL, NULL);
    bt_ckpt_meta_release(&meta);
    return code;
}

static void checkpoints_survive_refused_memory(void **state) {
    const bt_tmp *t = *state;
    world *s = calloc(1, sizeof *s);
    assert_non_null(s);
    snprintf(s->dir, sizeof s->dir, "%s", t->dir);
    bt_rng_normal(s->embed, N_EMBED, 0, 1.0f, 1, 1);
    bt_rng_normal(s->w, N_W, 0, 1.0f, 1, 2);
    bt_rng_normal(s->m, N_W, 0, 1.0f, 1, 3);
    OK(bt_ckpt_begin(s->dir, 0, err));
    assert_int_equal(save_older(s), BT_OK);
    assert_true(survives_refusals("saving a checkpoint", save_checkpoint, s, true) > 20);
    OK(save_checkpoint(s, err));
    assert_true(survives_refusals("loading a checkpoint", load_checkpoint, s, true) > 20);
    free(s);
}

static bt_code write_run(void *ctx, bt_err *err) {
    const bt_tmp *t = ctx;
    static int n;
    static bt_fake fake;
    char name[32];
    int attempt;
    bt_writer *w = NULL;
    bt_err second = BT_ERR_INIT;
    snprintf(name, sizeof name, "run-%d", n++);
    const bt_run_start s = bt_fake_run(name);
    BT_TRY(bt_writer_open(&w, t->db, 1, err));
    bt_code code = bt_writer_begin(w, &s, &attempt, err);
    if (code == BT_OK) {
        const bt_sink *sink = bt_writer_sink(w);
        for (int64_t step = 0; step < 3; step++)
            sink->step(sink->ctx, bt_fake_step(&fake, step, 2));
        code = bt_writer_flush(w, err);
        const bt_code end = bt_writer_end(w, "done", "finished", 0, &second);
        if (code == BT_OK && end != BT_OK) {
            *err = second;
            code = end;
        }
    }
    bt_writer_close(w);
    return code;
}

/* Creates a database with all tables, columns and views, or nothing. */
static bt_code make_database(void *ctx, bt_err *err) {
    const bt_tmp *t = ctx;
    char path[160];
    bt_writer *w = NULL;
    snprintf(path, sizeof path, "%s/new.db", t->dir);
    unlink(path);
    BT_TRY(bt_writer_open(&w, path, 1, err));
    bt_writer_close(w);
    return BT_OK;
}

static bool add_row_number(void *ctx, const bt_row *row) {
    *(int64_t *)ctx += row->n;
    return true;
}

static bt_code read_run(void *ctx, bt_err *err) {
    const bt_tmp *t = ctx;
    char run[BT_NAME_MAX];
    bt_db *db = NULL;
    double steps;
    int64_t cells = 0;
    const char *params[] = {run};
    const bt_query q = {
        .sql = "SELECT * FROM steps WHERE run = ?1", .params = params, .n_params = 1};
    BT_TRY(bt_db_open(&db, t->db, err));
    bt_code code = bt_db_run(db, "last", run, err);
    if (code == BT_OK)
        code = bt_db_value(db, "SELECT steps FROM runs WHERE run = ?1", run, &steps, err);
    if (code == BT_OK) code = bt_db_query(db, &q, add_row_number, &cells, err);
    if (code == BT_OK) assert_true(steps == 3 && cells > 3);
    bt_db_close(db);
    return code;
}

static bt_code view_run(void *ctx, bt_err *err) {
    const bt_tmp *t = ctx;
    bt_db *db = NULL;
    bt_view *v = NULL;
    const bt_view_request ask = ask_all("s");
    BT_TRY(bt_db_open(&db, t->db, err));
    bt_code code = bt_view_open(&v, db, err);
    if (code == BT_OK) code = bt_view_load(v, &ask, err);
    bt_view_close(v);
    bt_db_close(db);
    return code;
}

static bt_code export_run(void *ctx, bt_err *err) {
    const bt_tmp *t = ctx;
    const bt_export_cfg of_s = {.run = "s"};
    char path[1200];
    int64_t points;
    bt_db *db = NULL;
    FILE *to = fopen("/dev/null", "we");
    if (!to) return bt_fail(err, BT_NOMEM, "no memory for the test's own file");
    bt_code code = bt_db_open(&db, t->db, err);
    if (code == BT_OK) code = bt_export_trace(db, &of_s, 100, 103, to, err);
    if (code == BT_OK) code = bt_export_tensorboard(db, &of_s, t->dir, true, path, &points, err);
    bt_db_close(db);
    fclose(to);
    return code;
}

static void views_and_exports(void **state) {
    bt_tmp *t = *state;
    const bt_synth s = slow_five();
    OK(bt_synth_make(t->db, &s, err));
    assert_true(survives_refusals("viewing a run", view_run, t, false) > 100);
    assert_true(survives_refusals("viewing a run", view_run, t, true) > 100);
    assert_true(survives_refusals("exporting a run", export_run, t, true) > 10);
}

static void databases_survive_refused_memory(void **state) {
    bt_tmp *t = *state;
    OK(write_run(t, err));
    assert_true(survives_refusals("making a database", make_database, t, false) > 100);
    assert_true(survives_refusals("making a database", make_database, t, true) > 50);
    assert_true(survives_refusals("reading a database", read_run, t, false) > 20);
    assert_true(survives_refusals("writing a database", write_run, t, true) > 5);
}

static bt_code plan_layout_once(void *ctx, bt_err *err) {
    const bt_layout_search s = {
        .cfg = &cfg,
        .may = bt_layout_freedom_of(&opts),
        .cluster = {.ranks = 4, .ranks_per_host = 2, .simulated = true, .bytes_per_s = 1e8}};
    bt_layouts l = {0};
    bt_part_shape shapes[8];
    bt_code code = bt_layouts_find(&l, &s, err);
    if (code == BT_OK && bt_layouts_shapes(&l, &s, shapes, 8) == 0)
        code = bt_fail(err, BT_NOMEM, "no shapes");
    if (code == BT_OK) code = bt_layouts_predict(&l, &s, ctx, err);
    bt_layouts_release(&l);
    return code;
}

static void planning_survives_refused_memory(void **state) {
    (void)state;
    static bt_rates rates;
    static bt_run_cfg one;
    bool help;
    char *words[] = {"--preset", "nano", "--threads", "1", "--set", "ckpt.minutes=0"};
    OK(bt_run_cfg_read(&opts, &cfg, 6, words, &help, err));
    one = cfg;
    one.train.micro_batch = 1;
    OK(bt_run_cfg_resolve(&one, 1, err));
    rates.codec[0].wire_bytes = 4;
    const bt_part_rate layer = {.shape = bt_part_layer(&one, 1), .fwd_s = 0.02, .bwd_s = 0.04},
                       head = {.shape = bt_part_head(&one, 1), .fwd_s = 1e-4, .bwd_s = 2e-4};
    bt_rates_put_part(&rates, &layer);
    bt_rates_put_part(&rates, &head);
    assert_true(survives_refusals("planning", plan_layout_once, &rates, false) > 20);
}

int main(void) {
    bt_err err = BT_ERR_INIT;
    if (!refuse_memory_works()) return 77;
    if (bt_kernels_select("auto", NULL) != BT_OK || bt_comm_init(&err) != BT_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reading_a_configuration, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(checkpoints_survive_refused_memory, bt_tmp_make,
                                        bt_tmp_drop),
        cmocka_unit_test_setup_teardown(databases_survive_refused_memory, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(views_and_exports, bt_tmp_make, bt_tmp_drop),
        cmocka_unit_test_setup_teardown(planning_survives_refused_memory, bt_tmp_make, bt_tmp_drop),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bt_comm_finalize();
    return failed;
}

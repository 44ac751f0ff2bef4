// ctest: ranks=2
/* Before training, all ranks choose a kernel set that each of them supports and compare their settings. A setting that
 * differs is refused by name, unless setting_scopes.def permits the difference. */
#include <unistd.h>

#include "engine/config/agree/job_agreement.h"
#include "engine/config/setting_scope.h"
#include "engine/kernels/isa/blas.h"
#include "engine/parallel/mpi/comm.h"
#include "tests/mpi/layouts.h"

static int own_rank(void) { return bt_comm_rank(bt_comm_world()); }

/* Changes the field of row i to another value. */
static void change_field(bt_run_cfg *cfg, const bt_opt *opt) {
    char *field = (char *)cfg + opt->offset;
    switch (opt->type) {
    case BT_OPT_INT: *(int64_t *)(void *)field += 1; break;
    case BT_OPT_REAL: *(double *)(void *)field += 0.25; break;
    case BT_OPT_BOOL: *(bool *)field = !*(bool *)field; break;
    case BT_OPT_ENUM: *(int *)(void *)field ^= 1; break;
    default: snprintf(field, opt->size, "%s", "other"); break;
    }
}

static void a_difference_in_a_setting_is_refused_by_name(void **state) {
    (void)state;
    size_t refused = 0, accepted = 0;
    for (size_t i = 0; i < bt_run_opts_n; i++) {
        const bt_opt *opt = &bt_run_opts[i];
        bt_run_cfg cfg;
        bt_err err = BT_ERR_INIT;
        TINY(&cfg, "--steps", "4");
        assert_int_equal(bt_agree_settings(bt_comm_world(), &cfg, &err), BT_OK);
        if (own_rank() == 1) change_field(&cfg, opt);
        bt_code code = bt_agree_settings(bt_comm_world(), &cfg, &err);
        if (bt_setting_scope_of(opt->key).ranks == BT_SETTING_OWN) {
            if (code != BT_OK) fail_msg("%s may differ: %s", opt->key, err.msg);
            accepted++;
            continue;
        }
        char word[80];
        snprintf(word, sizeof word, "in %s: it is '", opt->key);
        if (code != BT_ARG || !strstr(err.msg, word) || err.rank != 1 ||
            !strstr(err.msg, "on rank 1") || !strstr(err.msg, "on rank 0"))
            fail_msg("%s differs, and the ranks return: %d %s", opt->key, (int)code, err.msg);
        refused++;
    }
    assert_int_equal(accepted, 43);
    assert_int_equal(refused, bt_run_opts_n - 43);
}

static void every_scope_is_of_a_setting(void **state) {
    (void)state;
    static const char *const keys[] = {
#define BT_SETTING(key, resumes, ranks, why) key,
#include "engine/config/setting_scopes.def"
#undef BT_SETTING
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (bt_opt_find(bt_run_opts, bt_run_opts_n, keys[i]) == bt_run_opts_n)
            fail_msg("setting_scopes.def: there is no setting '%s'", keys[i]);
}

static void a_long_value_is_compared_to_its_end(void **state) {
    (void)state;
    char value[400];
    bt_err err = BT_ERR_INIT;
    memset(value, 'x', sizeof value);
    value[sizeof value - 1] = '\0';
    assert_int_equal(bt_agree_value(bt_comm_world(), "a text", value, &err), BT_OK);
    value[300] = (char)('a' + own_rank());
    assert_int_equal(bt_agree_value(bt_comm_world(), "a text", value, &err), BT_ARG);
    assert_non_null(strstr(err.msg, "differ in a text"));
}

/* Equal data at different paths are accepted; different data are refused. */
static void data_are_compared_by_content(void **state) {
    (void)state;
    char dir[64], path[96];
    layout_folder(dir);
    for (int other = 0; other < 2; other++) {
        bt_run_cfg cfg;
        bt_err err = BT_ERR_INIT;
        snprintf(path, sizeof path, "%s/text-%d", dir, own_rank());
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        for (int i = 0; i < 400; i++)
            fprintf(f, "line %d of a text that is long enough%s\n", i,
                    other && own_rank() ? "!" : "");
        fclose(f);
        TINY(&cfg, "--steps", "2", "--set", "model.vocab=256", "--set", "data.val_frac=0.2");
        snprintf(cfg.data.path, sizeof cfg.data.path, "%s", path);
        snprintf(cfg.data.cache, sizeof cfg.data.cache, "%s/cache-%d-%d", dir, other, own_rank());
        assert_int_equal(bt_kernels_select(cfg.launch.isa, &err), BT_OK);
        assert_int_equal(bt_threads_init(1, &err), BT_OK);
        const bt_trainer_setup s = {.cfg = &cfg, .resume_dir = "", .attempt = 1};
        bt_trainer *t = NULL;
        bt_code code = bt_trainer_create(&t, &s, &err);
        if (!other && code != BT_OK) fail_msg("%s", err.msg);
        if (other && (code != BT_ARG || !strstr(err.msg, "differ in the data")))
            fail_msg("%d %s", (int)code, err.msg);
        bt_trainer_destroy(t);
        bt_threads_release();
    }
    layout_remove(dir);
}

/* If one rank lacks its data, all ranks return the error before the collective draw of a prompt. */
static void data_missing_on_one_rank_end_the_start_of_all(void **state) {
    (void)state;
    char dir[64];
    layout_folder(dir);
    for (int lacks = 0; lacks < 2; lacks++) {
        bt_run_cfg cfg;
        bt_err err = BT_ERR_INIT;
        char path[96];
        snprintf(path, sizeof path, "%s/text-%d", dir, own_rank());
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        for (int i = 0; i < 400; i++) fprintf(f, "line %d of a text that is long enough\n", i);
        fclose(f);
        TINY(&cfg, "--steps", "2", "--set", "model.vocab=256", "--set", "data.val_frac=0.2",
             "--set", "train.sample_tokens=4");
        snprintf(cfg.data.path, sizeof cfg.data.path, "%s%s", path,
                 own_rank() == lacks ? "-gone" : "");
        snprintf(cfg.data.cache, sizeof cfg.data.cache, "%s/cache-%d-%d", dir, lacks, own_rank());
        assert_int_equal(bt_kernels_select(cfg.launch.isa, &err), BT_OK);
        assert_int_equal(bt_threads_init(1, &err), BT_OK);
        const bt_trainer_setup s = {.cfg = &cfg, .resume_dir = "", .attempt = 1};
        bt_trainer *t = NULL;
        assert_int_equal(bt_trainer_create(&t, &s, &err), BT_NOTFOUND);
        assert_int_equal(err.rank, lacks);
        assert_non_null(strstr(err.msg, "-gone"));
        bt_threads_release();
    }
    layout_remove(dir);
}

/* Agrees on a kernel set with one --isa argument per rank; rank 1's processor is limited to `pretends`. */
static bt_code agree_on_kernels(const char *isa0, const char *isa1, const char *pretends,
                                bt_isa_agreement *out, bt_err *err) {
    char hook[32];
    snprintf(hook, sizeof hook, "1:%s", pretends);
    if (pretends[0]) assert_int_equal(setenv("BITRAIN_TEST_PROCESSOR", hook, 1), 0);
    *err = (bt_err)BT_ERR_INIT;
    bt_code code = bt_agree_isa(bt_comm_world(), own_rank() ? isa1 : isa0, out, err);
    assert_int_equal(unsetenv("BITRAIN_TEST_PROCESSOR"), 0);
    return code;
}

/* The kernel sets of BT_LEVEL_AVX2 on this family of processors, which compute on 8 numbers at once. */
#ifdef __aarch64__
#define EIGHT "neon"
#define EIGHT_PLAIN "neon-plain"
#else
#define EIGHT "avx2"
#define EIGHT_PLAIN "avx2-plain"
#endif

static void ranks_take_the_best_set_that_all_have(void **state) {
    (void)state;
    static const struct {
        bt_isa_level needs; /* this machine must support it */
        const char *isa[2], *pretends, *agreed[2], *note;
    } rows[] = {
        {BT_LEVEL_GENERIC, {"auto", "auto"}, "", {"auto", "auto"}, ""},
        {BT_LEVEL_GENERIC, {"generic", "generic"}, "", {"generic", "generic"}, ""},
        {BT_LEVEL_AVX2, {EIGHT, EIGHT_PLAIN}, "", {EIGHT, EIGHT_PLAIN}, ""},
        {BT_LEVEL_AVX2, {"auto", "generic"}, "", {"generic", "generic"}, "was given --isa generic"},
        {BT_LEVEL_AVX2, {"auto", "auto"}, "generic", {"generic", "generic"}, "processor of rank 1"},
        {BT_LEVEL_AVX512, {"avx2", "avx512"}, "", {"avx2", "avx2"}, "rank 0 on host"},
        {BT_LEVEL_AVX512, {"avx512", "auto"}, "avx2", {"avx2", "avx2"}, "processor of rank 1"},
        {BT_LEVEL_AVX512, {"auto", "avx2-plain"}, "", {"avx2", "avx2-plain"}, "--isa avx2-plain"},
        {BT_LEVEL_AVX512_BF16,
         {"avx512", "avx512-plain"},
         "",
         {"avx512-vnni", "avx512-plain"},
         "--isa avx512-plain"},
        {BT_LEVEL_AVX512_BF16,
         {"auto", "auto"},
         "avx512-vnni",
         {"avx512-vnni", "avx512-vnni"},
         "processor of rank 1"},
    };
    const bt_isa_level here = bt_kernels_level("auto");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_isa_agreement got;
        bt_err err;
        if (here < rows[i].needs) {
            if (own_rank() == 0)
                print_message("row %zu needs a processor with %s\n", i,
                              bt_kernels_level_isa(rows[i].needs));
            continue;
        }
        if (agree_on_kernels(rows[i].isa[0], rows[i].isa[1], rows[i].pretends, &got, &err) != BT_OK)
            fail_msg("row %zu: %s", i, err.msg);
        if (strcmp(got.isa, rows[i].agreed[own_rank()]) != 0 || !strstr(got.note, rows[i].note) ||
            !rows[i].note[0] != !got.note[0])
            fail_msg("row %zu: rank %d takes '%s': '%s'", i, own_rank(), got.isa, got.note);
        assert_int_equal(got.changed, strcmp(got.isa, rows[i].isa[own_rank()]) != 0);
        assert_int_equal(got.int8_attention, bt_kernels_int8_attention_pays(rows[i].agreed[0]) &&
                                                 bt_kernels_int8_attention_pays(rows[i].agreed[1]));
        assert_int_equal(bt_kernels_select(got.isa, &err), BT_OK);
    }
}

static void the_record_states_the_features_of_each_processor(void **state) {
    (void)state;
    bt_isa_agreement got;
    bt_err err;
    char want[96];
    const char *best = bt_kernels_level_isa(bt_kernels_level("auto"));
    assert_int_equal(agree_on_kernels("auto", "auto", "", &got, &err), BT_OK);
    snprintf(want, sizeof want, "%s on ranks 0-1", best);
    assert_string_equal(got.processors, want);
    if (bt_kernels_level("auto") < BT_LEVEL_AVX2) return;
    assert_int_equal(agree_on_kernels("auto", "auto", "generic", &got, &err), BT_OK);
    snprintf(want, sizeof want, "%s on rank 0, generic on rank 1", best);
    assert_string_equal(got.processors, want);
}

static void a_set_that_a_processor_lacks_is_refused_by_rank_and_host(void **state) {
    (void)state;
    bt_isa_agreement got;
    bt_err err;
    char host[BT_HOST_MAX] = "", where[128];
    gethostname(host, sizeof host - 1);
    snprintf(where, sizeof where, "(rank 1 on host '%s')", host);
    if (bt_kernels_level("auto") < BT_LEVEL_AVX2) {
        print_message("needs a processor with " EIGHT "\n");
        return;
    }
    assert_int_equal(agree_on_kernels("auto", EIGHT, "generic", &got, &err), BT_UNSUPPORTED);
    if (err.rank != 1 || !strstr(err.msg, where) || !strstr(err.msg, "kernel set '" EIGHT "'"))
        fail_msg("rank %d: %s", err.rank, err.msg);
    assert_int_equal(agree_on_kernels("auto", "nonsense", "", &got, &err), BT_ARG);
    assert_non_null(strstr(err.msg, "unknown kernel set 'nonsense'"));
}

static void openblas_is_common_where_it_is_the_same(void **state) {
    (void)state;
    bt_isa_agreement got;
    bt_err err = BT_ERR_INIT;
    if (bt_blas_load(&err) != BT_OK) {
        print_message("%s\n", err.msg);
        return;
    }
    assert_int_equal(agree_on_kernels("auto", "blas", "", &got, &err), BT_OK);
    assert_string_equal(got.isa, "blas");
}

/* Trains 6 steps with the kernel set isa[rank], without agreement, and compares the weights after each step. */
static bt_code train_with(const char *const isa[2], const char *precision, bt_err *err) {
    bt_run_cfg cfg;
    TINY(&cfg, "--steps", "6", "--precision", precision, "--isa", isa[own_rank()],
         "--check-weights", "1", "--set", "model.d_model=64");
    cfg.train.grad = BT_GRAD_FLOAT;
    assert_int_equal(bt_kernels_select(cfg.launch.isa, err), BT_OK);
    assert_int_equal(bt_threads_init(1, err), BT_OK);
    const bt_trainer_setup s = {.cfg = &cfg, .resume_dir = "", .attempt = 1};
    bt_trainer *t = NULL;
    bt_train_result r;
    bt_code code = bt_trainer_create(&t, &s, err);
    if (code == BT_OK) code = bt_trainer_run(t, &r, err);
    bt_trainer_destroy(t);
    bt_threads_release();
    return code;
}

/* Kernel sets of one level (for example with and without VNNI) round equally. Sets of different levels round
 * differently, so ranks must agree on one. */
static void sets_of_one_level_train_together(void **state) {
    (void)state;
    static const char *const eight[2] = {EIGHT, EIGHT_PLAIN},
                             *const avx512[2] = {"avx512-vnni", "avx512-plain"},
                             *const apart[2] = {EIGHT, "generic"};
    const bt_isa_level here = bt_kernels_level("auto");
    bt_err err = BT_ERR_INIT;
    if (here < BT_LEVEL_AVX2) {
        print_message("needs a processor with " EIGHT "\n");
        return;
    }
    if (train_with(eight, "bf16", &err) != BT_OK) fail_msg("%s", err.msg);
    if (here >= BT_LEVEL_AVX512 && train_with(avx512, "bf16", &err) != BT_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(train_with(apart, "bf16", &err), BT_DAMAGED);
    assert_non_null(strstr(err.msg, "differ"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_difference_in_a_setting_is_refused_by_name),
        cmocka_unit_test(every_scope_is_of_a_setting),
        cmocka_unit_test(a_long_value_is_compared_to_its_end),
        cmocka_unit_test(data_are_compared_by_content),
        cmocka_unit_test(data_missing_on_one_rank_end_the_start_of_all),
        cmocka_unit_test(ranks_take_the_best_set_that_all_have),
        cmocka_unit_test(the_record_states_the_features_of_each_processor),
        cmocka_unit_test(a_set_that_a_processor_lacks_is_refused_by_rank_and_host),
        cmocka_unit_test(openblas_is_common_where_it_is_the_same),
        cmocka_unit_test(sets_of_one_level_train_together),
    };
    bt_err err = BT_ERR_INIT;
    if (bt_comm_init(&err) != BT_OK) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    /* Other ranks may wait for this rank, so the job is aborted. */
    if (failed) bt_comm_abort(1);
    bt_comm_finalize();
    return failed;
}

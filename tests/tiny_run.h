/* tiny_run.h - settings of a test run that takes a second: two layers, 32 wide, synthetic tokens. */
#ifndef BT_TESTS_TINY_RUN_H
#define BT_TESTS_TINY_RUN_H

#include "engine/base/threads.h"
#include "engine/kernels/table/kernels.h"
#include "engine/train/trainer.h"
#include "tests/fake_sink.h"

/* Sets the tiny defaults, then `words` (options as on the command line, NULL-terminated, may be NULL), resolved for
 * this number of ranks. */
static inline void tiny_cfg_for(bt_run_cfg *cfg, const char *const *words, int ranks) {
    static const char *const base[] = {"--set",          "model.layers=2",
                                       "--set",          "model.d_model=32",
                                       "--set",          "model.heads=4",
                                       "--set",          "model.kv_heads=2",
                                       "--set",          "model.d_ff=64",
                                       "--set",          "model.vocab=64",
                                       "--seq-len",      "32",
                                       "--batch-tokens", "512",
                                       "--micro-batch",  "4",
                                       "--data",         "synth:chain",
                                       "--steps",        "10",
                                       "--lr",           "3e-3",
                                       "--precision",    "fp32",
                                       "--set",          "data.val_frac=0",
                                       "--set",          "islands.ramp=0",
                                       "--set",          "ckpt.final=false",
                                       "--lr-schedule",  "cosine",
                                       "--warmup",       "0",
                                       "--threads",      "1",
                                       "--isa",          "generic"};
    enum { N_BASE = sizeof base / sizeof base[0], MAX = 192 };
    const char *argv[MAX];
    int n = 0;
    for (; n < N_BASE; n++) argv[n] = base[n];
    while (words && *words) argv[n++] = *words++;
    assert_true(n < MAX);

    bt_opts o;
    bool help;
    bt_err err = BT_ERR_INIT;
    if (bt_run_cfg_read(&o, cfg, n, (char *const *)(uintptr_t)argv, &help, &err) != BT_OK)
        fail_msg("%s", err.msg);
    if (bt_run_cfg_resolve_opts(&o, cfg, ranks, &err) != BT_OK) fail_msg("%s", err.msg);
}

/* Resolves the settings for the current number of ranks. */
static inline void tiny_cfg(bt_run_cfg *cfg, const char *const *words) {
    tiny_cfg_for(cfg, words, bt_comm_size(bt_comm_world()));
}
#define TINY(cfg, ...) tiny_cfg(cfg, (const char *const[]){__VA_ARGS__, NULL})

/* The newest run writes its activity here. */
static bt_progress_page tiny_page;

static inline bt_trainer *tiny_create(const bt_run_cfg *cfg, fake_sink *f, bt_request_box *box,
                                      const char *resume_dir) {
    static bt_sink sink;
    bt_err err = BT_ERR_INIT;
    if (bt_kernels_select(cfg->launch.isa, &err) != BT_OK) fail_msg("%s", err.msg);
    if (bt_threads_init((int)cfg->launch.threads, &err) != BT_OK) fail_msg("%s", err.msg);
    if (f) sink = fake_sink_of(f);
    bt_trainer_setup s = {.cfg = cfg,
                          .sink = f ? &sink : NULL,
                          .requests = box,
                          .page = &tiny_page,
                          .resume_dir = resume_dir ? resume_dir : "",
                          .attempt = 1};
    bt_trainer *t = NULL;
    if (bt_trainer_create(&t, &s, &err) != BT_OK) fail_msg("%s", err.msg);
    return t;
}

/* Creates, runs and destroys a trainer; the sink stores its records. */
static inline bt_train_result tiny_run(const bt_run_cfg *cfg, fake_sink *f, bt_request_box *box,
                                       const char *resume_dir) {
    memset(f, 0, offsetof(fake_sink, on_step));
    bt_trainer *t = tiny_create(cfg, f, box, resume_dir);
    bt_train_result r;
    bt_err err = BT_ERR_INIT;
    if (bt_trainer_run(t, &r, &err) != BT_OK) fail_msg("%s", err.msg);
    bt_trainer_destroy(t);
    bt_threads_release();
    return r;
}

#endif

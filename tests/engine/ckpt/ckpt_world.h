/* ckpt_world.h - a folder for checkpoints and arrays to save in them. For tests. */
#ifndef BT_TESTS_CKPT_WORLD_H
#define BT_TESTS_CKPT_WORLD_H

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/rng.h"
#include "engine/ckpt/ckpt.h"

enum { N_EMBED = 1000, N_W = 333 };

typedef struct world {
    char dir[64];
    float embed[N_EMBED], w[N_W], m[N_W];
} world;

static inline int set_up(void **state) {
    world *s = calloc(1, sizeof *s);
    strcpy(s->dir, "/tmp/bt-ckpt-XXXXXX");
    if (!s || !mkdtemp(s->dir)) return -1;
    bt_rng_normal(s->embed, N_EMBED, 0, 1.0f, 1, 1);
    bt_rng_normal(s->w, N_W, 0, 1.0f, 1, 2);
    bt_rng_normal(s->m, N_W, 0, 1.0f, 1, 3);
    *state = s;
    return 0;
}

static inline int tear_down(void **state) {
    world *s = *state;
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", s->dir);
    int rc = system(cmd);
    free(s);
    return rc;
}

static inline void fill_meta(bt_ckpt_meta *m, int64_t step, int attempt) {
    memset(m, 0, sizeof *m);
    m->step = step;
    m->tokens = step * 4096;
    m->attempt = attempt;
    strcpy(m->run, "calm-otter-1");
    bt_text_put(&m->config, "{\"optim.lr\": 0.002, \"model.norm\": \"subln\"}");
    bt_text_put(&m->tokenizer, "bytes");
    bt_text_put(&m->state, "{\"progress\": {\"lr_factor\": 0.30000000000000004}}");
    m->params_hash = 0xfedcba9876543210u;
    m->data_hash = 7;
    m->vocab_hash = UINT64_MAX;
    strcpy(m->isa, "avx512");
    strcpy(m->build, "test");
}

static inline bt_code find(world *s, char *path, bt_ckpt_meta *meta, bt_text *why, bt_err *err) {
    return bt_ckpt_find(bt_comm_world(), s->dir, path, PATH_MAX, meta, why, err);
}

static inline void check_ok(bt_code code, const bt_err *err) {
    if (code != BT_OK) fail_msg("%s: %s", bt_code_name(code), err->msg);
}

/* Saves the weights and a moment of two tensors. saved: receives the result of bt_ckpt_save; may be NULL. */
static inline bt_code save_world(world *s, const bt_ckpt_meta *meta, int keep, bt_ckpt_saved *saved,
                                 bt_err *err) {
    bt_ckpt_slice slices[] = {
        {"embed", "weight", N_EMBED, 0, 400, s->embed, 0, 0, BT_CKPT_F32, false},
        {"embed", "weight", N_EMBED, 400, 600, s->embed + 400, 0, 0, BT_CKPT_F32, false},
        {"layers.0.attn_q", "weight", N_W, 0, N_W, s->w, 0, 0, BT_CKPT_F32, false},
        {"layers.0.attn_q", "exp_avg", N_W, 0, N_W, s->m, 0, 0, BT_CKPT_F32, false},
    };
    const bt_ckpt_job job = {.dir = s->dir, .meta = meta, .slices = slices, .n = 4, .keep = keep};
    return bt_ckpt_save(bt_comm_world(), &job, saved, err);
}

#endif

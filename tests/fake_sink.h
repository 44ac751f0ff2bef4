/* fake_sink.h - a sink for tests that stores everything it receives, and a tiny training run that fills it. */
#ifndef BT_TESTS_FAKE_SINK_H
#define BT_TESTS_FAKE_SINK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/base/sink.h"

enum { FAKE_STEPS = 256, FAKE_RANKS = 8, FAKE_EVENTS = 128, FAKE_FACTS = 128, FAKE_BINS = 8192 };

typedef struct fake_step {
    int64_t step;
    int n_ranks;
    double v[BT_MS_COUNT], r[FAKE_RANKS][BT_MR_COUNT];
} fake_step;

/* Returns the sum of a rank's phases, which is its step time. */
static inline double fake_phases_ms(const double rank[BT_MR_COUNT]) {
    double sum = 0;
    for (int p = 0; p < BT_PHASE_COUNT; p++) sum += rank[bt_phases[p].metric];
    return sum;
}

typedef struct fake_sink {
    fake_step steps[FAKE_STEPS];
    size_t n_steps, n_events, n_facts, n_layers, n_layer_calls, n_ranks, n_checkpoints;
    struct {
        char kind[32], title[256], body[256];
        int64_t step;
        bt_event_level level;
    } events[FAKE_EVENTS];
    struct {
        char key[64], value[128];
    } facts[FAKE_FACTS];
    /* arguments of the newest call */
    struct {
        char tensor[48];
        int layer;
        double v[BT_ML_COUNT];
    } layers[256];
    bt_rank_info ranks[FAKE_RANKS];
    size_t n_comm, n_comm_calls;
    /* arguments of the newest call */
    struct {
        char op[24], axis[16];
        int rank;
        int64_t step;
        double v[BT_MC_COUNT];
    } comm[128];
    size_t n_bins, n_bin_calls;
    /* arguments of the newest call */
    struct {
        char tensor[24];
        int layer, bin;
        double v[BT_MD_COUNT];
    } bins[FAKE_BINS];
    size_t n_pairs, n_pair_calls;
    /* arguments of the newest call */
    struct {
        int rank, peer;
        int64_t step;
        double v[BT_MP_COUNT];
    } pairs[FAKE_RANKS * FAKE_RANKS];
    /* checkpoints recorded before the record of their last step */
    size_t unsaid_checkpoints;
    /* The following members are pointers of this process. */
    bt_ckpt_record last_checkpoint;
    char checkpoint_path[1024];
    void (*on_step)(void *arg, const bt_step_record *r); /* hook of the test */
    void (*on_event)(void *arg, const bt_event *e);
    void *arg;
} fake_sink;

static void fake_on_ranks(void *ctx, const bt_rank_info *ranks, size_t n) {
    fake_sink *f = ctx;
    assert_in_range(n, 1, FAKE_RANKS);
    f->n_ranks = n;
    memcpy(f->ranks, ranks, n * sizeof *ranks);
}

static void fake_on_fact(void *ctx, const char *key, const char *value) {
    fake_sink *f = ctx;
    assert_true(f->n_facts < FAKE_FACTS);
    snprintf(f->facts[f->n_facts].key, 64, "%s", key);
    snprintf(f->facts[f->n_facts++].value, 128, "%s", value);
}

static void fake_on_step(void *ctx, const bt_step_record *r) {
    fake_sink *f = ctx;
    assert_true(f->n_steps < FAKE_STEPS && r->n_ranks <= FAKE_RANKS);
    fake_step *s = &f->steps[f->n_steps++];
    s->step = r->step;
    s->n_ranks = r->n_ranks;
    memcpy(s->v, r->values, sizeof s->v);
    memcpy(s->r, r->rank_values, (size_t)r->n_ranks * sizeof s->r[0]);
    if (f->on_step) f->on_step(f->arg, r);
}

static void fake_layers(fake_sink *f, const bt_row_record *r) {
    assert_true(r->n <= 256);
    f->n_layer_calls++;
    f->n_layers = r->n;
    for (size_t i = 0; i < r->n; i++) {
        f->layers[i].layer = (int)r->keys[2 * i].i;
        snprintf(f->layers[i].tensor, 48, "%s", r->keys[2 * i + 1].s);
        memcpy(f->layers[i].v, r->values + i * BT_ML_COUNT, sizeof f->layers[i].v);
    }
}

static void fake_comm(fake_sink *f, const bt_row_record *r) {
    assert_true(r->n <= 128);
    f->n_comm_calls++;
    f->n_comm = r->n;
    for (size_t i = 0; i < r->n; i++) {
        f->comm[i].rank = (int)r->keys[3 * i].i;
        snprintf(f->comm[i].op, sizeof f->comm[i].op, "%s", r->keys[3 * i + 1].s);
        snprintf(f->comm[i].axis, sizeof f->comm[i].axis, "%s", r->keys[3 * i + 2].s);
        f->comm[i].step = r->step;
        memcpy(f->comm[i].v, r->values + i * BT_MC_COUNT, sizeof f->comm[i].v);
    }
}

static void fake_pairs(fake_sink *f, const bt_row_record *r) {
    assert_true(r->n <= FAKE_RANKS * FAKE_RANKS);
    f->n_pair_calls++;
    f->n_pairs = r->n;
    for (size_t i = 0; i < r->n; i++) {
        f->pairs[i].rank = (int)r->keys[2 * i].i;
        f->pairs[i].peer = (int)r->keys[2 * i + 1].i;
        f->pairs[i].step = r->step;
        memcpy(f->pairs[i].v, r->values + i * BT_MP_COUNT, sizeof f->pairs[i].v);
    }
}

static void fake_bins(fake_sink *f, const bt_row_record *r) {
    assert_true(r->n <= FAKE_BINS);
    f->n_bin_calls++;
    f->n_bins = r->n;
    for (size_t i = 0; i < r->n; i++) {
        f->bins[i].layer = (int)r->keys[3 * i].i;
        snprintf(f->bins[i].tensor, sizeof f->bins[i].tensor, "%s", r->keys[3 * i + 1].s);
        f->bins[i].bin = (int)r->keys[3 * i + 2].i;
        memcpy(f->bins[i].v, r->values + i * BT_MD_COUNT, sizeof f->bins[i].v);
    }
}

static void fake_on_rows(void *ctx, const bt_row_record *r) {
    if (r->scope == BT_SCOPE_LAYER) fake_layers(ctx, r);
    if (r->scope == BT_SCOPE_COMM) fake_comm(ctx, r);
    if (r->scope == BT_SCOPE_PAIR) fake_pairs(ctx, r);
    if (r->scope == BT_SCOPE_DISTRIBUTION) fake_bins(ctx, r);
}

static void fake_on_event(void *ctx, const bt_event *e) {
    fake_sink *f = ctx;
    assert_true(f->n_events < FAKE_EVENTS);
    size_t i = f->n_events++;
    snprintf(f->events[i].kind, 32, "%s", bt_events[e->kind].name);
    snprintf(f->events[i].title, 256, "%s", e->title);
    snprintf(f->events[i].body, 256, "%s", e->body ? e->body : "");
    f->events[i].step = e->step;
    f->events[i].level = bt_events[e->kind].level;
    if (f->on_event) f->on_event(f->arg, e);
}

static void fake_on_checkpoint(void *ctx, const bt_ckpt_record *c) {
    fake_sink *f = ctx;
    f->n_checkpoints++;
    f->unsaid_checkpoints += f->n_steps == 0 || f->steps[f->n_steps - 1].step + 1 < c->step;
    f->last_checkpoint = *c;
    snprintf(f->checkpoint_path, sizeof f->checkpoint_path, "%s", c->path);
    f->last_checkpoint.path = f->checkpoint_path;
}

static inline bt_sink fake_sink_of(fake_sink *f) {
    return (bt_sink){.ctx = f,
                     .ranks = fake_on_ranks,
                     .fact = fake_on_fact,
                     .step = fake_on_step,
                     .rows = fake_on_rows,
                     .event = fake_on_event,
                     .checkpoint = fake_on_checkpoint};
}

static inline size_t fake_events_of(const fake_sink *f, const char *kind) {
    size_t n = 0;
    for (size_t i = 0; i < f->n_events; i++) n += strcmp(f->events[i].kind, kind) == 0;
    return n;
}

static inline const char *fake_fact(const fake_sink *f, const char *key) {
    for (size_t i = 0; i < f->n_facts; i++)
        if (strcmp(f->facts[i].key, key) == 0) return f->facts[i].value;
    return NULL;
}

#endif

/* short_states.c - groups elements by their noise key, and updates and rounds a few hundred elements at once. */
#include "engine/optim/short_states.h"

#include "engine/base/rng.h"
#include "engine/base/small.h"
#include "engine/kernels/ops/ops.h"

/* FEW: number of elements that fit into the first-level cache. KEY: log2 of the number of elements per noise key. */
enum { FEW = 512, GRAIN = 16384, KEY = 16 };

typedef struct step_job {
    const bt_short_states *s;
    const bt_optim_update *u;
} step_job;

static void *state_at(const bt_short_states *s, size_t k, size_t at) {
    return (unsigned char *)s->state[k] +
           at * bt_moment_bytes(bt_optim_form(s->rule, s->cfg->states, k));
}

void bt_short_states_load(const bt_short_states *s, size_t at, size_t n, float *out, size_t apart) {
    for (size_t k = 0; k < s->rule->n_states; k++)
        bt_active_kernels()->moment_load(out + k * apart, state_at(s, k, at),
                                         bt_optim_form(s->rule, s->cfg->states, k), n);
}

float *bt_short_weights_load(const bt_short_states *s, size_t at, size_t n, float *spare) {
    void *w = (unsigned char *)s->w + at * bt_moment_bytes(s->form);
    if (s->form == BT_MOMENT_F32) return w;
    bt_active_kernels()->moment_load(spare, w, s->form, n);
    return spare;
}

typedef struct noise_keys {
    uint32_t states, weights;
} noise_keys;

typedef struct neighbours {
    size_t at, n;  /* range of elements, relative to `begin` */
    uint32_t lane; /* noise lane of the first element */
    noise_keys keys;
} neighbours;

typedef void (*neighbours_use)(void *ctx, const neighbours *some);

/* Returns how many elements from i on are adjacent in the whole tensor; place: position of element i. */
static size_t adjacent_elements(const bt_optim_span *span, size_t i, size_t *place) {
    *place = span->first + i;
    if (span->cols == span->stride) return SIZE_MAX;
    *place = span->first + i / span->cols * span->stride + i % span->cols;
    return span->cols - i % span->cols;
}

/* Calls `use` for elements a to b, a few at a time, with their noise of update t. */
static void each_few(const bt_short_states *s, int64_t t, size_t a, size_t b, neighbours_use use,
                     void *ctx) {
    const uint64_t stream =
                       bt_splitmix64((uint64_t)t), /* differs from the random stream of the data */
        seed = s->cfg->seed ^ s->span->name;
    uint64_t block = UINT64_MAX;
    neighbours some = {.at = a};
    for (; some.at < b; some.at += some.n) {
        size_t place,
            same = adjacent_elements(s->span, s->begin + some.at - s->span->begin, &place),
            lane = place & (((size_t)1 << KEY) - 1);
        if (place >> KEY != block) {
            block = place >> KEY;
            const uint64_t draw = bt_rng_u64(seed, stream, block);
            some.keys = (noise_keys){(uint32_t)draw, (uint32_t)(draw >> 32)};
        }
        some.lane = (uint32_t)lane;
        some.n = bt_min_size(bt_min_size(b - some.at, FEW),
                             bt_min_size(same, ((size_t)1 << KEY) - lane));
        use(ctx, &some);
    }
}

static void store_few(const bt_short_states *s, const neighbours *f, const float *values) {
    uint32_t words[FEW];
    bt_active_kernels()->noise_words(words, f->keys.weights, f->lane, f->n);
    bt_active_kernels()->moment_store((unsigned char *)s->w + f->at * bt_moment_bytes(s->form),
                                      values, s->form, words, 0, f->n);
}

typedef struct store_job {
    const bt_short_states *s;
    const float *values;
} store_job;

static void store_unused_state(void *ctx, const neighbours *f) {
    const store_job *j = ctx;
    store_few(j->s, f, j->values + f->at);
}

void bt_short_weights_store(const bt_short_states *s, const float *values, int64_t t) {
    store_job j = {s, values};
    each_few(s, t, 0, s->n, store_unused_state, &j);
}

static void step_neighbours(void *ctx, const neighbours *f) {
    const step_job *j = ctx;
    const bt_short_states *s = j->s;
    float some[BT_OPTIM_STATES][FEW], w[FEW];
    uint32_t words[FEW];
    bt_optim_elems e = {
        .w = bt_short_weights_load(s, f->at, f->n, w), .g = s->g + f->at, .n = f->n};
    bt_short_states_load(s, f->at, f->n, some[0], FEW);
    for (size_t k = 0; k < BT_OPTIM_STATES; k++) e.state[k] = some[k];
    s->rule->step_few(&e, s->cfg, j->u);
    if (s->cfg->states != BT_STATES_FP32)
        bt_active_kernels()->noise_words(words, f->keys.states, f->lane, f->n);
    for (size_t k = 0; k < s->rule->n_states; k++)
        bt_active_kernels()->moment_store(state_at(s, k, f->at), some[k],
                                          bt_optim_form(s->rule, s->cfg->states, k), words,
                                          16 * (int)k, f->n);
    if (e.w == w && !s->rule->whole_matrix) store_few(s, f, w);
}

static void step_states_range(void *ctx, int thread, size_t a, size_t b) {
    const step_job *j = ctx;
    (void)thread;
    each_few(j->s, j->u->t, a, b, step_neighbours, ctx);
}

void bt_short_states_step(const bt_short_states *s, const bt_optim_update *u) {
    step_job j = {s, u};
    double bytes = 4 + 2 * (double)bt_moment_bytes(s->form);
    for (size_t k = 0; k < s->rule->n_states; k++)
        bytes += 2 * (double)bt_moment_bytes(bt_optim_form(s->rule, s->cfg->states, k));
    bt_ops_run(s->rule->name, bytes * (double)s->n, s->n, GRAIN, step_states_range, &j);
}

/* short_states.c - which elements share a key of the noise, and the step of a few hundred. */
#include "engine/optim/short_states.h"

#include "engine/base/rng.h"
#include "engine/base/small.h"
#include "engine/kernels/ops/ops.h"

/* FEW: elements whose numbers fit the first cache. KEY: log2 of the elements that a key is good for */
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
        bt_k()->moment_load(out + k * apart, state_at(s, k, at),
                            bt_optim_form(s->rule, s->cfg->states, k), n);
}

/* elements at .. at + n, which are neighbours in the whole tensor, `place` the first of them */
static void step_few(const step_job *j, size_t at, size_t n, uint32_t key, uint32_t lane) {
    const bt_short_states *s = j->s;
    float some[BT_OPTIM_STATES][FEW];
    uint32_t words[FEW];
    bt_optim_elems e = {.w = s->w + at, .g = s->g + at, .n = n};
    bt_short_states_load(s, at, n, some[0], FEW);
    for (size_t k = 0; k < BT_OPTIM_STATES; k++) e.state[k] = some[k];
    s->rule->step_few(&e, s->cfg, j->u);
    bt_k()->noise_words(words, key, lane, n);
    for (size_t k = 0; k < s->rule->n_states; k++)
        bt_k()->moment_store(state_at(s, k, at), some[k], bt_optim_form(s->rule, s->cfg->states, k),
                             words, 16 * (int)k, n);
}

/* what follows element i of the span as its neighbours in the whole tensor; place: of element i */
static size_t neighbours(const bt_optim_span *span, size_t i, size_t *place) {
    *place = span->first + i;
    if (span->cols == span->stride) return SIZE_MAX;
    *place = span->first + i / span->cols * span->stride + i % span->cols;
    return span->cols - i % span->cols;
}

static void step_part(void *ctx, int thread, size_t a, size_t b) {
    const step_job *j = ctx;
    const bt_optim_span *span = j->s->span;
    const uint64_t stream = bt_splitmix64((uint64_t)j->u->t), /* other words than the data's */
        seed = j->s->cfg->seed ^ span->name;
    uint64_t block = UINT64_MAX;
    uint32_t key = 0;
    (void)thread;
    for (size_t at = a, n; at < b; at += n) {
        size_t place, same = neighbours(span, j->s->begin + at - span->begin, &place),
                      lane = place & (((size_t)1 << KEY) - 1);
        if (place >> KEY != block) {
            block = place >> KEY;
            key = (uint32_t)bt_rng_u64(seed, stream, block);
        }
        n = bt_min_size(bt_min_size(b - at, FEW), bt_min_size(same, ((size_t)1 << KEY) - lane));
        step_few(j, at, n, key, (uint32_t)lane);
    }
}

void bt_short_states_step(const bt_short_states *s, const bt_optim_update *u) {
    step_job j = {s, u};
    double bytes = 12;
    for (size_t k = 0; k < s->rule->n_states; k++)
        bytes += 2 * (double)bt_moment_bytes(bt_optim_form(s->rule, s->cfg->states, k));
    bt_ops_run(s->rule->name, bytes * (double)s->n, s->n, GRAIN, step_part, &j);
}

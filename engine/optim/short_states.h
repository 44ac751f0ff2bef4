/* short_states.h - a rule's step for states or weights that are stored in fewer bytes than fp32
 * (moment.h): some hundred elements at a time are read, updated in fp32 and rounded, in the first-level
 * cache.
 *
 * The noise of element e of the whole tensor: keys of (seed, tensor, update, e / 2^16), word e % 2^16
 * of each (noise.h); of the states' key state 0 takes the lower 16 bits of the word, state 1 the upper;
 * weights take the lower ones of another key. Private to engine/optim. */
#ifndef BT_ENGINE_OPTIM_SHORT_STATES_H
#define BT_ENGINE_OPTIM_SHORT_STATES_H

#include "engine/optim/optim.h"

typedef struct bt_short_states { /* states of one tensor in one range; all borrowed */
    const bt_optim_rule *rule;
    const bt_optim_cfg *cfg;
    const bt_optim_span *span;
    size_t begin, n; /* elements of the flat array */
    void *w;         /* address of element `begin`, like g and state; stored as `form` */
    bt_moment_form form;
    const float *g;
    void *state[BT_OPTIM_STATES];
} bt_short_states;

/* Updates all elements on the threads of the pool. */
void bt_short_states_step(const bt_short_states *s, const bt_optim_update *u);
/* Reads the states of elements begin + at .. as fp32, state k to out + k * apart; also for fp32 states. Any thread. */
void bt_short_states_load(const bt_short_states *s, size_t at, size_t n, float *out, size_t apart);
/* Returns the weights of elements begin + at ..: in place if they are fp32, otherwise in `spare`. */
float *bt_short_weights_load(const bt_short_states *s, size_t at, size_t n, float *spare);
/* Stores all n weights from values computed in update t; does not read `rule` and `state`. Any thread. */
void bt_short_weights_store(const bt_short_states *s, const float *values, int64_t t);

#endif

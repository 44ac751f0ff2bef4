/* short_states.h - runs a rule's step on states or weights that are stored in fewer bytes than fp32 (moment.h): a few
 * hundred elements at a time are read, updated in fp32 and rounded, in the first-level cache.
 *
 * The noise of element e of the whole tensor is word e % 2^16 of the key (seed, tensor, update, e / 2^16) (noise.h).
 * State 0 uses the lower 16 bits of the word, state 1 the upper 16; weights use the lower bits of another key. Private
 * to engine/optim. */
#ifndef BT_ENGINE_OPTIM_SHORT_STATES_H
#define BT_ENGINE_OPTIM_SHORT_STATES_H

#include "engine/optim/optim.h"

typedef struct bt_short_states { /* states of one tensor in one range; everything is borrowed */
    const bt_optim_rule *rule;
    const bt_optim_cfg *cfg;
    const bt_optim_span *span;
    size_t begin, n; /* range of elements of the flat array */
    void *w;         /* address of element `begin`, like g and state; stored in the form `form` */
    bt_moment_form form;
    const float *g;
    void *state[BT_OPTIM_STATES];
} bt_short_states;

void bt_short_states_step(const bt_short_states *s, const bt_optim_update *u);
/* Reads the states of n elements from begin + at on as fp32, state k to out + k * apart; also of fp32. Any thread. */
void bt_short_states_load(const bt_short_states *s, size_t at, size_t n, float *out, size_t apart);
/* Returns the weights of n elements from begin + at on: in place if they are fp32, otherwise in `spare`. */
float *bt_short_weights_load(const bt_short_states *s, size_t at, size_t n, float *spare);
/* Stores all n weights, whose values were computed in update t; does not use `rule` and `state`. Any thread. */
void bt_short_weights_store(const bt_short_states *s, const float *values, int64_t t);

#endif

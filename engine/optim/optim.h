/* optim.h - optimizers over slices of the flat parameter array, independent of the model.
 *
 *     rule        update of one tensor: AdamW, Lion, Muon (one file each)
 *     optimizer   a rule for the weight matrices of the layers, and a rule for all other tensors
 *                 (embedding, norms, head): a row of optim.def
 *     bt_optim    the optimizer's state for one range of the flat array, which one rank owns
 *
 * A rule with `whole_matrix` needs all of a matrix at once: its step only updates the momentum, and the caller collects
 * each matrix (engine/update/matrix_update.h), computes its direction and applies it range by range. All other rules
 * update ranges independently.
 *
 * States and weights are fp32 or stored in fewer bytes (moment.h): a step reads them, computes in fp32, and rounds
 * stochastically with noise from the counter (seed, update, tensor, state, element of the whole tensor). The noise does
 * not depend on other elements, so layout and threads do not change the bits.
 *
 * Order:    create (plans and commits the states of [begin, end)) -> step* -> destroy.
 * Threads:  the training thread; kernels split over the pool. No allocation in step. */
#ifndef BT_ENGINE_OPTIM_OPTIM_H
#define BT_ENGINE_OPTIM_OPTIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/numbers/moment.h"
#include "engine/base/range.h"
#include "engine/base/status.h"

enum { BT_OPTIM_STATES = 2 }; /* maximum number of states per element */

typedef enum {
#define BT_OPTIM(id, name, matrices, rest, lr_factor, help) BT_OPTIM_##id,
#include "engine/optim/optim.def"
#undef BT_OPTIM
    BT_OPTIM_COUNT
} bt_optim_id;

/* In the order of the words of optim.states; the first two are the words of optim.weights. */
typedef enum { BT_STATES_FP32, BT_STATES_BF16, BT_STATES_LOG8 } bt_states_kind;

typedef struct bt_optim_cfg { /* settings of all rules; each rule uses its own */
    bt_optim_id kind;
    bt_states_kind states;
    uint64_t seed; /* seed of the noise for rounding */
    double beta1, beta2, eps, momentum;
} bt_optim_cfg;

typedef struct
    bt_optim_update { /* parameters of one update, equal for all tensors except for the decay */
    int64_t t;        /* number of the update from 1, for bias correction */
    int64_t held_at;  /* AdamW: the second moment is frozen at this update; 0: it is updated */
    float grad_scale; /* factor on the gradients */
    float lr, decay;  /* decay: decoupled weight decay */
} bt_optim_update;

/* n elements of one tensor: weights, gradients and states begin at the same element. */
typedef struct bt_optim_elems {
    float *w;
    const float *g;
    float *state[BT_OPTIM_STATES];
    size_t n;
} bt_optim_elems;

typedef struct bt_optim_rule {
    const char *name;
    size_t n_states;
    const char *state_names[BT_OPTIM_STATES]; /* names in checkpoints */
    bool never_negative[BT_OPTIM_STATES];
    bool whole_matrix;
    /* Elementwise rules update the weights; whole_matrix rules only the momentum. */
    void (*step)(const bt_optim_elems *e, const bt_optim_cfg *cfg, const bt_optim_update *u);
    /* Updates on one thread, with the same bits for every kernel set. */
    void (*step_few)(const bt_optim_elems *e, const bt_optim_cfg *cfg, const bt_optim_update *u);
    /* Computes the change of each weight by the last update, and the weight before it, for at most BT_OPTIM_UNDO
     * elements. NULL for whole_matrix rules, whose caller measures the change when it applies the direction. */
    void (*undo)(float *change, float *before, const bt_optim_elems *e, const bt_optim_cfg *cfg,
                 const bt_optim_update *u);
} bt_optim_rule;

enum { BT_OPTIM_UNDO = 256 };

extern const bt_optim_rule bt_rule_adamw, bt_rule_lion, bt_rule_muon;

typedef struct bt_optim_info {
    const char *name, *help;
    const bt_optim_rule *matrices, *rest;
    double lr_factor; /* factor of the preset's learning rate if none is given */
} bt_optim_info;

const bt_optim_info *bt_optim_info_of(bt_optim_id id);

/* Range of the flat array within one tensor; spans are ascending without overlap. */
typedef struct bt_optim_span {
    size_t begin, end;
    /* Its weights from element `begin` on, in fp32 or bf16; NULL: in the array given to bt_optim_step. */
    void *weights;
    bt_moment_form form;
    bool decay;
    bool matrix;     /* a weight matrix of a layer */
    float lr_factor; /* factor of the learning rate, and so of the decay; 0 means 1 */
    /* Position of the elements in the whole tensor, for the noise: element i is element first + i / cols * stride + i %
     * cols of the tensor; cols 0: first + i. */
    uint64_t name; /* hash of the tensor's name */
    size_t first, cols, stride;
} bt_optim_span;

typedef struct bt_optim bt_optim;

/* Allocates states for the parts of the spans in the range. The spans are borrowed. */
bt_code bt_optim_create(bt_optim **out, const bt_optim_cfg *cfg, const bt_optim_span *spans,
                        size_t n, bt_range range, bt_err *err) BT_MUST_CHECK;
void bt_optim_destroy(bt_optim *o); /* accepts NULL */
/* Returns the memory used by create. */
size_t bt_optim_bytes(bt_optim_id kind, bt_states_kind states, const bt_optim_span *spans, size_t n,
                      bt_range range);
const bt_optim_rule *bt_optim_rule_of(bt_optim_id kind, const bt_optim_span *span);
const char *bt_states_name(bt_states_kind states);
bt_moment_form bt_optim_form(const bt_optim_rule *rule, bt_states_kind states, size_t k);
/* Returns the update of this tensor, with its learning rate and decay. */
bt_optim_update bt_optim_update_of(const bt_optim_span *span, const bt_optim_update *u);

/* Applies the rules to the spans within the range. w and g: flat arrays; w NULL: every span has its own weights. */
void bt_optim_step(bt_optim *o, float *w, const float *g, const bt_optim_update *u);
/* Rounds fp32 values of update t to the bf16 weights of elements r in span i, like bt_optim_step. It is the last
 * operation when a whole matrix is updated. Any thread. */
void bt_optim_round_weights(const bt_optim *o, size_t i, bt_range r, const float *values,
                            int64_t t);
/* Adds the squares of the changes by the last update in elements [r.begin, r.end) of span i, within the range, and the
 * squares of the weights before it. They are recomputed from the states, approximately if these are rounded. Elements
 * of whole-matrix rules add nothing. */
void bt_optim_change(const bt_optim *o, size_t i, bt_range r, float *w, const float *g,
                     const bt_optim_update *u, double *change, double *before);
/* Returns state k from element `at` of span i to the end of the range or of the span, in the form of bt_optim_form;
 * NULL if the span's rule has no such state. */
void *bt_optim_state(const bt_optim *o, size_t i, size_t k, size_t at);
/* Reads elements [r.begin, r.end) of this state as fp32. Returns false if there is no such state. Any thread. */
bool bt_optim_read(const bt_optim *o, size_t i, size_t k, bt_range r, float *out);
/* Raises elements [r.begin, r.end) of this state, if there is one, to at least `share` of their mean. */
void bt_optim_raise(bt_optim *o, size_t i, size_t k, bt_range r, double share);

#endif

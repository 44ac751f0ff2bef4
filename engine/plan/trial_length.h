/* trial_length.h - how long the steps are with which layouts are raced (trial_race.h), and how many layouts, so that
 * a race takes about the seconds that there are.
 *
 * Whole steps where at least two rounds of two layouts fit; else steps of half as many micro-batches, and half
 * as many again; then models of half as many layers, and half as many again; what they take is multiplied by the
 * predicted ratio. Where even the shortest do not fit twice, one round of them; where not even that, nothing.
 * Threads: none shared. Pure arithmetic but for `predict`. */
#ifndef BT_ENGINE_PLAN_TRIAL_LENGTH_H
#define BT_ENGINE_PLAN_TRIAL_LENGTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bt_trial_length { /* of one layout */
    int64_t fewest, multiple;    /* micro-batches of a step: at least, and a multiple of */
    int64_t chunks; /* of layers: a model has a multiple of so many. 0: it keeps all its layers */
    /* given for a whole step of the model; then of those that are run: micro-batches, layers, predicted seconds of a
     * step, and what making it takes */
    int64_t micros, layers;
    double run_s, make_s;
} bt_trial_length;

typedef struct bt_trial_time {
    double seconds, start_s; /* for all of it; of these, what starting ranks takes */
    /* x: of layout i, with fewer micro-batches or layers; fills its seconds. false: there is no such step */
    bool (*predict)(void *ctx, size_t i, bt_trial_length *x);
    void *ctx;
} bt_trial_time;

/* of the first how many there is time for: 0, or two and more */
size_t bt_trial_lengths(bt_trial_length *all, size_t n, const bt_trial_time *t);
/* steps of a run */
int64_t bt_trial_steps(const bt_trial_length *x);
/* about what so many rounds of the first k of them take */
double bt_trial_race_s(const bt_trial_length *all, size_t k, int rounds, double start_s);

/* steps that are made of a layout before the first that counts: they touch all its memory */
enum { BT_RACE_WARM = 1 };

#endif

/* trial_length.h - chooses the length of trial steps in a race of layouts (trial_race.h), and the number of layouts, so
 * that a race takes about the available time.
 *
 * Steps are whole if two rounds of two layouts fit into the time. Otherwise the micro-batches of a step are halved
 * repeatedly, then the layers of the model; times of shorter steps are multiplied by the predicted ratio. If two rounds
 * of the shortest steps do not fit, there is one round; if that does not fit, there is no race.
 * Threads: no shared state. Pure arithmetic except for `predict`. */
#ifndef BT_ENGINE_PLAN_TRIAL_LENGTH_H
#define BT_ENGINE_PLAN_TRIAL_LENGTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bt_trial_length {
    int64_t fewest,
        multiple;   /* smallest number of micro-batches; it must be a multiple of `multiple` */
    int64_t chunks; /* the number of layers must be a multiple of this; 0 keeps all layers */
    /* In: a whole step of the model. Out: the step to run, its predicted seconds, and seconds to build the model. */
    int64_t micros, layers;
    double run_s, make_s;
} bt_trial_length;

typedef struct bt_trial_time {
    double seconds, start_s; /* total budget; the part of it that starting the ranks takes */
    /* Predicts the seconds of layout i with the micro-batches or layers of *x. false: impossible. */
    bool (*predict)(void *ctx, size_t i, bt_trial_length *x);
    void *ctx;
} bt_trial_time;

/* Shortens steps and returns how many of the first layouts can be raced: 0, or at least 2. */
size_t bt_trial_lengths(bt_trial_length *all, size_t n, const bt_trial_time *t);
int64_t bt_trial_steps(const bt_trial_length *x);
/* Returns the approximate seconds of a race of the first k layouts over so many rounds. */
double bt_trial_race_s(const bt_trial_length *all, size_t k, int rounds, double start_s);

/* Warm-up steps of a layout, which touch all its memory. */
enum { BT_RACE_WARM = 1 };

#endif

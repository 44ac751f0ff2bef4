/* measured.h - speed of the links and peak of the cores, measured by the first attempt of a run and reused by later
 * ones.
 *
 * Both depend on machine and layout and take 0.07 to 0.3 s to measure, which a restart after a fault need not repeat.
 * Rank 0 stores them in a file of the run's scratch folder, with a fingerprint of every rank's host, threads, kernels
 * and coordinates. If the fingerprint differs or the file is unreadable, they are measured again.
 * Ranks:    collective over the world. */
#ifndef BT_ENGINE_TRAIN_MEASURED_H
#define BT_ENGINE_TRAIN_MEASURED_H

#include "engine/parallel/mpi/link.h"

struct bt_trainer;

typedef struct bt_measured {
    int64_t attempt; /* attempt of the run that measured */
    double peak_flops;
    /* mean number of runnable tasks of other programs per processor, on the busiest host before the measurement; NaN
     * if unknown */
    double load;
    bt_link links[BT_AXIS_COUNT];
} bt_measured;

/* Rank 0 only. Returns false if there are no values with this fingerprint. */
bool bt_measured_read(bt_measured *m, const char *dir, uint64_t place);
/* If the file cannot be written, the next attempt measures again. */
void bt_measured_write(const bt_measured *m, const char *dir, uint64_t place);

/* measurement of one rank: host, hash of its allowed processors, their number, its threads */
typedef struct bt_peak_part {
    double flops;
    uint64_t cpus;
    int host, cores, threads;
} bt_peak_part;

/* Peak of all ranks; cores that several ranks share are counted once. */
double bt_measured_peak(const bt_peak_part *all, size_t n);

/* Sets the trainer's peak and link speeds. dir: folder of the stored measurements; NULL or "" stores nothing. */
bt_code bt_trainer_measure(struct bt_trainer *t, const char *dir, bool peak, bt_err *err)
    BT_MUST_CHECK;

#endif

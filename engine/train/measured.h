/* measured.h - the speed of the links and the peak of the cores: measured by the first attempt of a run,
 * taken over by the attempts after it.
 *
 * Both are facts of the machine and of the layout, and take 0.07 to 0.3 s to measure, which a
 * restart after a fault need not spend again. Rank 0 keeps them in a file of the run's scratch
 * folder, with a fingerprint of the place they are true of: every rank's host, threads, kernels and
 * place in the mesh. Another place, or a file that cannot be read, and they are measured again.
 * Ranks:    collective over the world. */
#ifndef BT_ENGINE_TRAIN_MEASURED_H
#define BT_ENGINE_TRAIN_MEASURED_H

#include "engine/parallel/mpi/link.h"

struct bt_trainer;

typedef struct bt_measured {
    int64_t attempt;   /* of the run, that measured */
    double peak_flops; /* of all ranks together; 0: not measured */
    /* runnable tasks of other programs for each processor just before, on the busiest host; NaN: unknown */
    double load;
    bt_link links[BT_AXIS_COUNT];
} bt_measured;

/* of rank 0 alone: false where there is none of this place */
bool bt_measured_read(bt_measured *m, const char *dir, uint64_t place);
/* a file that cannot be written costs the next attempt the time to measure */
void bt_measured_write(const bt_measured *m, const char *dir, uint64_t place);

/* what one rank measured on its own: host, a hash of the processors that it may run on, their cores, its
 * threads */
typedef struct bt_peak_part {
    double flops;
    uint64_t cpus;
    int host, cores, threads;
} bt_peak_part;

/* the peak of ranks together: those that share cores count these cores once */
double bt_measured_peak(const bt_peak_part *all, size_t n);

/* fills the trainer's peak and links. dir: "" or NULL: nothing is kept */
bt_code bt_trainer_measure(struct bt_trainer *t, const char *dir, bool peak, bt_err *err)
    BT_MUST_CHECK;

#endif

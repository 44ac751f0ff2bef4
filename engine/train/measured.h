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
    bt_link links[BT_AXIS_COUNT];
} bt_measured;

/* of rank 0 alone: false where there is none of this place */
bool bt_measured_read(bt_measured *m, const char *dir, uint64_t place);
/* a file that cannot be written costs the next attempt the time to measure */
void bt_measured_write(const bt_measured *m, const char *dir, uint64_t place);

/* fills the trainer's peak and links. dir: "" or NULL: nothing is kept */
bt_code bt_trainer_measure(struct bt_trainer *t, const char *dir, bool peak, bt_err *err)
    BT_MUST_CHECK;

#endif

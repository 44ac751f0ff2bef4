/* average_loops.h - moves n elements of an average by `share` of the difference to the weights. Threads: the training
 * thread, which uses the others. */
#ifndef BT_ENGINE_TRAIN_PARTS_AVERAGE_AVERAGE_LOOPS_H
#define BT_ENGINE_TRAIN_PARTS_AVERAGE_AVERAGE_LOOPS_H

#include <stddef.h>

void bt_average_move(float *average, const float *w, size_t n, float share);

#endif

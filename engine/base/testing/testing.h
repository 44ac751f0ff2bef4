/* testing.h - every hook by which a test or a drill changes the behaviour of a training. Hooks are not settings: they
 * are not validated, recorded or documented for users. Threads: any. Each call reads the environment, so a test may
 * change it between runs. */
#ifndef BT_ENGINE_BASE_TESTING_TESTING_H
#define BT_ENGINE_BASE_TESTING_TESTING_H

#include <stdbool.h>
#include <stdint.h>

/* BITRAIN_TEST_SLOW=RANK:FACTOR slows a rank down by a factor. Returns the factor of this rank; 1: not slowed. */
double bt_testing_slowness(int rank);
/* BITRAIN_TEST_DELAY=MS makes every rank sleep MS milliseconds (at most 1,000) in each forward and backward pass, for
 * tests that need steps of a certain length on any processor. Returns nanoseconds; 0: the variable is not set. */
int64_t bt_testing_delay_ns(void);
/* BITRAIN_TEST_HOSTS=N,N,... makes the gradient exchange treat the first N ranks of the world as one host, the
 * next N as another; the last number repeats. Returns the number of this rank's host, from 0; -1: the variable is not
 * set. */
int bt_testing_host(int rank);
/* BITRAIN_TEST_PROCESSOR=RANK:ISA makes ISA the fastest kernel set of a rank's processor. Returns ISA, or NULL. */
const char *bt_testing_processor(int rank);
/* BITRAIN_TEST_CPU=NAME hides those features of this machine's processor that processors of the kind NAME lack
 * (westmere, haswell, skylake, icelake or zen4: kernels/table/cpu.c). Returns NAME, or NULL. It is read once, with the
 * features. */
const char *bt_testing_cpu(void);
/* BITRAIN_TEST_FLIP=RANK:STEP:TENSOR[:BIT] flips a bit (default 0, the lowest; 30 is in the exponent) of the rank's
 * first weight of TENSOR after this number of steps. Returns true for this rank and step, and writes the tensor's name
 * and the bit. */
bool bt_testing_flip(int rank, int64_t step, char tensor[64], uint32_t *bit);
/* With BITRAIN_TEST_ONCE=FILE a bit is flipped, or a NaN injected, only if FILE does not exist, and FILE is then
 * created, so that a restarted run is not disturbed again. */
/* BITRAIN_TEST_NAN=RANK:STEP:TENSOR replaces a value in the rank's own gradient of TENSOR by NaN when it computes this
 * step (the first step is 0). Returns true for this rank, step and tensor. It is injected once, like a hardware fault;
 * with RANK:STEP-LAST:TENSOR every time one of these steps is computed, like a fault of the data. */
bool bt_testing_nan(int rank, int64_t step, const char *tensor);
/* BITRAIN_TEST_HANG=RANK:STEP:HOW:FILE makes a rank hang in this step; HOW: busy or asleep. It hangs only if FILE does
 * not exist, and then creates FILE. */
void bt_testing_hang(int rank, int64_t step);
/* BITRAIN_TEST_POWERCAP=FOLDER replaces /sys/class/powercap as the folder of energy counters. Returns it, or NULL. */
const char *bt_testing_powercap(void);
/* true: tensor-parallel groups on one host exchange messages, as between hosts */
extern bool bt_testing_tp_messages;
/* true: gradients are not exchanged through shared memory, so ranks of one host send messages */
extern bool bt_testing_exchange_messages;

#endif

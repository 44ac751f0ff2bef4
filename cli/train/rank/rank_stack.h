/* rank_stack.h - prints the call stack of a hanging rank. On SIGUSR2 a rank prints its calls, innermost first, as one
 * warning line, which the supervisor records before it ends the ranks. Only the training thread's stack is printed,
 * because other threads work for it or belong to MPI.
 *
 * Functions of a stripped program or library appear as object and offset (addr2line -e bitrain 0x...). */
#ifndef BT_CLI_TRAIN_RANK_RANK_STACK_H
#define BT_CLI_TRAIN_RANK_RANK_STACK_H

/* Installs the handler. The training thread calls it after MPI has assigned its rank. */
void bt_rank_stack_on_signal(int rank);

#endif

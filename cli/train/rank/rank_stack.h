/* rank_stack.h - the call stack of a hanging rank. On SIGUSR2 a rank prints its calls, the innermost first, as one
 * warning line, which the supervisor records before it ends the ranks. Only the stack of the training thread is
 * printed: the other threads work for it or belong to MPI.
 *
 * A function of a stripped program or of a library without symbols is printed as object and offset (addr2line -e
 * bitrain 0x...). */
#ifndef BT_CLI_TRAIN_RANK_RANK_STACK_H
#define BT_CLI_TRAIN_RANK_RANK_STACK_H

/* Installs the handler. The training thread calls it when its rank is known. */
void bt_rank_stack_on_signal(int rank);

#endif

/* rank_stack.h - a rank that hangs says where: on SIGUSR2 it prints its calls, the innermost first, as one warning
 * line, which the supervisor records before it ends the ranks.
 *
 * The training thread alone is asked: the others work for it, or are MPI's. A function of a
 * stripped program or of a library without its name is printed as object and offset (addr2line -e bitrain 0x...). */
#ifndef BT_CLI_TRAIN_RANK_RANK_STACK_H
#define BT_CLI_TRAIN_RANK_RANK_STACK_H

/* by the training thread, once its rank is known */
void bt_rank_stack_on_signal(int rank);

#endif

/* memory.h - compares a rank's memory plan with the available memory before anything is allocated; the kernel would
 * kill a rank that runs out of memory later, without a message. */
#ifndef BT_ENGINE_PLAN_MEMORY_H
#define BT_ENGINE_PLAN_MEMORY_H

#include "engine/plan/plan.h"

typedef struct bt_memory_room {
    /* Bytes available to this process (RLIMIT_AS), and to this host or container; SIZE_MAX: no known limit. */
    size_t process, host;
    const char *host_limit; /* name of the host's limit: "memory available" or "cgroup limit" */
    /* RLIMIT_AS, including what this process has already mapped; 0: unknown */
    size_t address_space;
} bt_memory_room;

void bt_memory_room_of(bt_memory_room *room);
/* BT_NOMEM: the plan does not fit; the error names the sizes, the largest arenas, and settings under which the plan
 * would fit. cfg must be resolved and the kernel set selected; local_ranks ranks share the host. */
bt_code bt_memory_check(const bt_run_cfg *cfg, int rank, int local_ranks, bt_plan_parts *parts,
                        const bt_memory_room *room, bt_err *err) BT_MUST_CHECK;

#endif

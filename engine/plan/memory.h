/* memory.h - compares a rank's memory plan with the available memory before anything is allocated, because the
 * kernel kills a rank that runs out later without a message. */
#ifndef BT_ENGINE_PLAN_MEMORY_H
#define BT_ENGINE_PLAN_MEMORY_H

#include "engine/plan/plan.h"

typedef struct bt_memory_room {
    /* bytes available to this process (RLIMIT_AS) and to this host or container; SIZE_MAX if no limit is known */
    size_t process, host;
    /* name of the host's limit: "memory available", "cgroup limit" */
    const char *host_limit;
    /* RLIMIT_AS, of which `process` is the part that this process has not mapped yet; 0: unknown */
    size_t address_space;
} bt_memory_room;

void bt_memory_room_of(bt_memory_room *room);
/* Fails with BT_NOMEM if the plan does not fit; the message names the numbers, the largest arenas and settings under
 * which the plan would fit. cfg is resolved, the kernel set is selected, and local_ranks share the host. */
bt_code bt_memory_check(const bt_run_cfg *cfg, int rank, int local_ranks, bt_plan_parts *parts,
                        const bt_memory_room *room, bt_err *err) BT_MUST_CHECK;

#endif

/* memory.h - whether a rank's plan fits the memory that is there, said before it is taken: a rank
 * that runs out later is killed without a word. */
#ifndef BT_ENGINE_PLAN_MEMORY_H
#define BT_ENGINE_PLAN_MEMORY_H

#include "engine/config/run_cfg.h"

typedef struct bt_memory_room {
    /* bytes left to this process (RLIMIT_AS), to all of this host or container; SIZE_MAX: no
     * limit known */
    size_t process, host;
    /* what limits the host: "memory available", "cgroup limit" */
    const char *host_limit;
} bt_memory_room;

void bt_memory_room_of(bt_memory_room *room);
/* BT_NOMEM names the numbers, the largest arenas and the settings under which the plan would fit.
 * cfg is resolved; the kernel set is selected; local_ranks share the host. */
bt_code bt_memory_check(const bt_run_cfg *cfg, int rank, int local_ranks,
                        const bt_memory_room *room, bt_err *err) BT_MUST_CHECK;

#endif

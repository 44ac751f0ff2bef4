/* memory.c - reads the limits of memory, compares the plan with them, and composes the error with remedies. */
#include "engine/plan/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/base/os/control_group.h"
#include "engine/base/os/machine_info.h"
#include "engine/base/os/process_usage.h"
#include "engine/base/small.h"
#include "engine/base/tables/metric.h"
#include "engine/config/rank_setup.h"

void bt_memory_room_of(bt_memory_room *room) {
    struct rlimit limit;
    const bt_machine_memory memory = bt_machine_memory_read();
    size_t address_space, resident;
    *room =
        (bt_memory_room){.process = SIZE_MAX, .host = SIZE_MAX, .host_limit = "memory available"};
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        bt_process_memory(0, &address_space, &resident)) {
        room->address_space = (size_t)limit.rlim_cur;
        room->process = limit.rlim_cur > address_space ? (size_t)limit.rlim_cur - address_space : 0;
    }
    if (!isnan(memory.available))
        room->host = (size_t)memory.available +
                     (isnan(memory.swap_free) ? 0 : (size_t)memory.swap_free);
    const size_t group = bt_group_memory_room();
    if (group < room->host) {
        room->host = group;
        room->host_limit = "cgroup limit";
    }
}

enum { TRIES = 12 };

typedef struct remedy {
    char words[64];
    size_t bytes;
} remedy;

typedef struct remedy_row {
    bool possible;
    const char *words;
    int recompute, zero;
    bool small, by_layers, lean, q8;
} remedy_row;

/* the plan that needs too much memory */
typedef struct planned_rank {
    const bt_run_cfg *cfg;
    int rank;
    bt_plan_parts *parts;
} planned_rank;

static size_t planned_bytes_with_remedy(const planned_rank *p, bt_run_cfg *spare,
                                        const remedy_row *r) {
    const bt_run_cfg *cfg = p->cfg;
    *spare = *cfg;
    if (r->by_layers) spare->parallel.gather = BT_GATHER_LAYER;
    if (r->lean) spare->tune.lean = true;
    if (r->q8) spare->tune.base_type = BT_BASE_Q8;
    spare->train.recompute = r->recompute;
    if (r->zero > 0 && cfg->mesh.dp_replicate * cfg->mesh.dp_shard > 1) {
        spare->mesh.zero = r->zero;
        if (cfg->mesh.zero == 0) {
            spare->mesh.dp_shard = cfg->mesh.dp_replicate * cfg->mesh.dp_shard;
            spare->mesh.dp_replicate = 1;
        }
    }
    if (r->small && !cfg->train.reproducible) spare->train.micro_batch = 1;
    return bt_plan_bytes(spare, p->rank, p->parts);
}

/* Tries settings in the order of their cost in speed. Stores each that reduces it, and the memory then needed. */
static size_t find_memory_remedies(const planned_rank *p, bt_run_cfg *spare, remedy out[TRIES]) {
    const bt_run_cfg *cfg = p->cfg;
    size_t n = 0, now = bt_plan_bytes(cfg, p->rank, p->parts);
    bool many = cfg->mesh.dp_replicate * cfg->mesh.dp_shard > 1;
    int top = many ? 3 : 0;
    const bt_model_setup setup = bt_run_cfg_setup(cfg, p->rank);
    const bool lora = cfg->tune.mode == BT_TUNE_LORA,
               eight = lora && cfg->model.linear == BT_LIN_DENSE &&
                       cfg->tune.base_type != BT_BASE_Q8 && bt_model_fits_q8(&setup);
    const remedy_row rows[] = {
        {cfg->train.micro_batch > 1 && !cfg->train.reproducible, "--micro-batch 1",
         (int)cfg->train.recompute, (int)cfg->mesh.zero, true, false, false, false},
        {cfg->mesh.zero < 1 && many, "--zero 1", (int)cfg->train.recompute, 1, false, false, false,
         false},
        {cfg->mesh.zero < 2 && many, "--zero 2", (int)cfg->train.recompute, 2, false, false, false,
         false},
        {cfg->mesh.zero < 3 && many, "--zero 3", (int)cfg->train.recompute, 3, false, false, false,
         false},
        {cfg->mesh.zero == 3 && many && cfg->parallel.gather != BT_GATHER_LAYER,
         "--set parallel.gather=layer", (int)cfg->train.recompute, (int)cfg->mesh.zero, false, true,
         false, false},
        {cfg->train.recompute < 1, "--recompute selective", 1, (int)cfg->mesh.zero, false, false,
         false, false},
        {cfg->train.recompute < 2, "--recompute full", 2, (int)cfg->mesh.zero, false, false, false,
         false},
        {lora && !cfg->tune.lean, "--recompute full --set tune.lean=true", 2, (int)cfg->mesh.zero,
         false, false, true, false},
        {true,
         many ? "--zero 3 --recompute full --micro-batch 1" : "--recompute full --micro-batch 1", 2,
         top, true, false, false, false},
        {lora && !cfg->tune.lean, "--recompute full --set tune.lean=true --micro-batch 1", 2,
         (int)cfg->mesh.zero, true, false, true, false},
        {eight, "--set tune.base_type=q8", (int)cfg->train.recompute, (int)cfg->mesh.zero, false,
         false, false, true},
        {eight, "--recompute full --set tune.base_type=q8 --micro-batch 1", 2, (int)cfg->mesh.zero,
         true, false, false, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!rows[i].possible) continue;
        size_t bytes = planned_bytes_with_remedy(p, spare, &rows[i]);
        if (bytes >= now) continue;
        snprintf(out[n].words, sizeof out[n].words, "%s", rows[i].words);
        out[n++].bytes = bytes;
    }
    return n;
}

static void append_reason(char *text, size_t size, const char *fmt, const char *a, const char *b) {
    size_t n = strlen(text);
    char piece[160];
    snprintf(piece, sizeof piece, fmt, a, b);
    if (n + strlen(piece) < size) memcpy(text + n, piece, strlen(piece) + 1);
}

static void describe_largest_arenas(const planned_rank *p, char *text, size_t size) {
    bt_arena_row rows[BT_PLAN_MAX];
    char bytes[32];
    size_t n = bt_plan_memory(p->cfg, p->rank, p->parts, rows), first = 0, second = 1;
    for (size_t i = 1; i < n; i++)
        if (rows[i].bytes > rows[first].bytes) first = i;
    if (first == 1) second = 0;
    for (size_t i = 0; i < n; i++)
        if (i != first && rows[i].bytes > rows[second].bytes) second = i;
    text[0] = '\0';
    append_reason(text, size, "%s %s", rows[first].name,
                  bt_metric_format(bytes, sizeof bytes, (double)rows[first].bytes, BT_UNIT_BYTES));
    append_reason(text, size, ", %s %s", rows[second].name,
                  bt_metric_format(bytes, sizeof bytes, (double)rows[second].bytes, BT_UNIT_BYTES));
}

/* Also states the whole address space, which the user has set; the limit is what is not mapped of it. */
static void describe_memory_limit(const bt_memory_room *room, size_t host, char *text,
                                  size_t size) {
    char all[32], mapped[32];
    if (room->process >= host)
        snprintf(text, size, "%s", room->host_limit);
    else if (!room->address_space)
        snprintf(text, size, "address space");
    else
        snprintf(text, size, "address space (ulimit -v is %s, and the program has mapped %s)",
                 bt_metric_format(all, sizeof all, (double)room->address_space, BT_UNIT_BYTES),
                 bt_metric_format(mapped, sizeof mapped,
                                  (double)(room->address_space - room->process), BT_UNIT_BYTES));
}

bt_code bt_memory_check(const bt_run_cfg *cfg, int rank, int local_ranks, bt_plan_parts *parts,
                        const bt_memory_room *room, bt_err *err) {
    const planned_rank plan = {cfg, rank, parts};
    size_t need = bt_plan_bytes(cfg, rank, parts),
           host = room->host == SIZE_MAX ? SIZE_MAX : room->host / (size_t)local_ranks,
           have = bt_min_size(host, room->process);
    if (!cfg->launch.memory_check || need <= have) return BT_OK;

    char needs[32], has[32], bytes[32], largest[64], limit[120], help[160] = "";
    remedy all[TRIES];
    bt_run_cfg *spare = malloc(sizeof *spare); /* too large for the stack */
    size_t n = spare ? find_memory_remedies(&plan, spare, all) : 0, fitting = 0;
    for (size_t i = 0; i < n && fitting < 2; i++) {
        if (all[i].bytes > have) continue;
        append_reason(help, sizeof help, fitting++ ? " or %s (%s)" : "use %s (%s)", all[i].words,
                      bt_metric_format(bytes, sizeof bytes, (double)all[i].bytes, BT_UNIT_BYTES));
    }
    if (fitting == 0 && n > 0) {
        append_reason(help, sizeof help, "even %s needs %s: ", all[n - 1].words,
                      bt_metric_format(bytes, sizeof bytes, (double)all[n - 1].bytes,
                                       BT_UNIT_BYTES));
        append_reason(help, sizeof help, "%s%s", "use more hosts or a smaller model", "");
    }
    free(spare);
    describe_largest_arenas(&plan, largest, sizeof largest);
    describe_memory_limit(room, host, limit, sizeof limit);
    return bt_fail(err, BT_NOMEM, "a rank needs %s (%s), but has %s of %s: %s",
                   bt_metric_format(needs, sizeof needs, (double)need, BT_UNIT_BYTES), largest,
                   bt_metric_format(has, sizeof has, (double)have, BT_UNIT_BYTES), limit, help);
}

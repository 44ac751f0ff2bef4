/* hub_record.h - the run `hub` with two islands, one of which fails after 40 updates of 512 tokens. */
#ifndef BT_TESTS_STORE_HUB_RECORD_H
#define BT_TESTS_STORE_HUB_RECORD_H

#include "tests/store/store_test.h"

#define HUB_BEGAN_US INT64_C(1700000000000000)

static inline void record_hub(const char *path) {
    const bt_run_start start = {.name = "hub",
                                .reason = "start",
                                .argv = "bitrain hub",
                                .config_json = "{}",
                                .host = "h",
                                .user = "",
                                .build = "",
                                .mpi = "",
                                .note = "",
                                .out_dir = "",
                                .world_size = 2,
                                .pid = 1,
                                .started_us = HUB_BEGAN_US};
    static const bt_event_kind kinds[] = {BT_EVENT_ISLAND_JOINED, BT_EVENT_ISLAND_JOINED,
                                          BT_EVENT_ISLAND_LATE, BT_EVENT_REFUSED,
                                          BT_EVENT_ISLAND_LOST};
    static const char *const titles[] = {"island 'north' joined", "island 'south' joined",
                                         "island 'south' sent its update 1 round late",
                                         "an island was refused",
                                         "island 'south' is declared dead"};
    bt_rank_info ranks[2] = {{.rank = 0, .isa = "north", .host = "n1"},
                             {.rank = 1, .isa = "south", .host = "s1", .dp_replicate = 1}};
    double steps[BT_MS_COUNT], of_ranks[2 * BT_MR_COUNT], rows[2][BT_MI_COUNT];
    bt_key names[2] = {{.s = "north"}, {.s = "south"}}, stale[2] = {{.i = 0}, {.i = 3}};
    double updates[2][BT_MA_COUNT] = {{30}, {10}};
    bt_writer *w = NULL;
    int attempt;
    OK(bt_writer_open(&w, path, 1, err));
    OK(bt_writer_begin(w, &start, &attempt, err));
    const bt_sink *to = bt_writer_sink(w);
    to->fact(to->ctx, "islands.settings", "train.steps=100\n");
    to->ranks(to->ctx, ranks, 2);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        to->event(to->ctx, &(bt_event){.kind = kinds[i],
                                       .step = 1,
                                       .rank = 0,
                                       .wall_us = HUB_BEGAN_US + 1000000,
                                       .title = titles[i]});
    for (int64_t s = 0; s < 40; s++) {
        for (int k = 0; k < BT_MS_COUNT; k++) steps[k] = NAN;
        for (int k = 0; k < 2 * BT_MR_COUNT; k++) of_ranks[k] = NAN;
        steps[BT_MS_TOKENS] = 512.0 * (double)(s + 1);
        to->step(to->ctx, &(bt_step_record){.step = s,
                                            .wall_us = HUB_BEGAN_US + 1000000 * (s + 1),
                                            .values = steps,
                                            .n_ranks = 2,
                                            .rank_values = of_ranks});
    }
    for (int i = 0; i < 2; i++) {
        rows[i][BT_MI_TRAINS] = i == 0;
        rows[i][BT_MI_CLOCK] = 25 - 10 * i;
        rows[i][BT_MI_UPDATES] = 30 - 20 * i;
        rows[i][BT_MI_LEFT_OUT] = 2 * i;
        rows[i][BT_MI_TOKENS] = 1000;
        rows[i][BT_MI_BYTES] = 4096;
        rows[i][BT_MI_STALENESS] = 3 * i;
        rows[i][BT_MI_BATCH] = 16;
        rows[i][BT_MI_LOSS] = 2;
    }
    to->rows(
        to->ctx,
        &(bt_row_record){
            .scope = BT_SCOPE_ISLAND, .step = 39, .n = 2, .keys = names, .values = &rows[0][0]});
    to->rows(to->ctx, &(bt_row_record){.scope = BT_SCOPE_STALENESS,
                                       .step = 39,
                                       .n = 2,
                                       .keys = stale,
                                       .values = &updates[0][0]});
    bt_writer_close(w);
}

#endif

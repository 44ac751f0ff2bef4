/* data_facts.c - facts about documents that a prediction needs, computed by the loader of the training. */
#include "cli/layout/choose_layout.h"
#include "engine/data/io/sources.h"
#include "engine/train/data/run_data.h"

/* limit for all files together: a plan must not spend longer on tokenising */
static const double BYTES_MOST = 32e6;
enum { SEQUENCES_MOST = 64 }; /* sequences sampled for the attention length */

static bool is_data_short_enough(const bt_run_cfg *cfg) {
    bt_sources files = {0};
    bt_err ignored = BT_ERR_INIT;
    double bytes = 0;
    if (bt_sources_list_glob(&files, cfg->data.path, cfg->data.glob, cfg->data.cache, &ignored) !=
        BT_OK)
        return false;
    for (size_t i = 0; i < files.n; i++) bytes += (double)files.items[i].bytes;
    bt_sources_release(&files);
    return bytes <= BYTES_MOST;
}

/* Mean attention length relative to unpacked sequences, where a token attends to half the sequence on average. */
static double mean_attention_length(bt_loader *l, const bt_run_cfg *cfg) {
    const int64_t T = cfg->model.seq_len, B = cfg->train.micro_batch, all = bt_loader_sequences(l);
    const int64_t n = all < SEQUENCES_MOST ? all : SEQUENCES_MOST;
    bt_err ignored = BT_ERR_INIT;
    double seen = 0;
    int64_t looked = 0;
    for (bt_batch b; looked < n; looked += B) {
        if (bt_loader_next(l, &b, &ignored) != BT_OK || !b.positions) return 0;
        for (int64_t i = 0; i < B * T; i++) seen += b.positions[i] + 1;
    }
    return looked ? seen / ((double)looked * (double)T * (double)(T + 1) / 2) : 0;
}

bt_data_facts bt_data_facts_of(const bt_run_cfg *cfg) {
    bt_data_facts out = {0};
    bt_loader *l = NULL;
    bt_err ignored = BT_ERR_INIT; /* the ranks report faults of the data */
    bt_loader_cfg data = bt_run_data(cfg);
    if (cfg->data.packing <= BT_PACKED_STREAM || !is_data_short_enough(cfg)) return out;
    data.cache_dir = "";
    data.sequences_per_step = data.n_sequences = data.B;
    if (bt_loader_open(&l, &data, &ignored) != BT_OK) return out;
    const bt_row_facts *f = bt_loader_row_facts(l);
    const double room = (double)bt_loader_sequences(l) * (double)cfg->model.seq_len;
    if (f && room > 0) out.learned_frac = (double)f->counted / room;
    out.attended_frac = mean_attention_length(l, cfg);
    bt_loader_close(l);
    return out;
}

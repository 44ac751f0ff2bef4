/* learned_share.c - what of the data is learned, counted as the training will count it. */
#include "cli/layout/choose_layout.h"
#include "engine/data/io/sources.h"
#include "engine/train/data/run_data.h"

/* of all files together: more would take longer to tokenise than a plan may */
static const double BYTES_MOST = 32e6;

static bool short_enough(const bt_run_cfg *cfg) {
    bt_sources files = {0};
    bt_err ignored = BT_ERR_INIT;
    double bytes = 0;
    if (bt_sources_list_glob(&files, cfg->data, cfg->glob, cfg->cache, &ignored) != BT_OK)
        return false;
    for (size_t i = 0; i < files.n; i++) bytes += (double)files.items[i].bytes;
    bt_sources_release(&files);
    return bytes <= BYTES_MOST;
}

double bt_learned_share(const bt_run_cfg *cfg) {
    bt_loader *l = NULL;
    bt_err ignored = BT_ERR_INIT; /* what is wrong with the data the ranks say */
    bt_loader_cfg data = bt_run_data(cfg);
    if (cfg->tune != BT_TUNE_LORA || cfg->form == BT_FORMED_TEXT || !short_enough(cfg)) return 0;
    data.cache_dir = "";
    data.sequences_per_step = data.n_sequences = data.B;
    if (bt_loader_open(&l, &data, &ignored) != BT_OK) return 0;
    const bt_row_facts *f = bt_loader_row_facts(l);
    const double room = (double)bt_loader_sequences(l) * (double)cfg->seq_len,
                 share = f && room > 0 ? (double)f->counted / room : 0;
    bt_loader_close(l);
    return share;
}

/* run_data.c - converts settings to a loader's configuration. */
#include "engine/train/data/run_data.h"
#include "engine/config/tune_cfg.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/data/shards/encode_pool.h"

_Static_assert((int)BT_PACKED_DOCUMENTS == (int)BT_PACKING_DOCUMENTS &&
                   (int)BT_PACKED_STREAM == (int)BT_PACKING_STREAM,
               "settings and data count packings alike");
_Static_assert((int)BT_FORMED_PREFERENCE == (int)BT_FORM_PREFERENCE &&
                   (int)BT_FORMED_LABEL == (int)BT_FORM_LABEL,
               "settings and data count forms alike");

static bt_fold data_fold(const bt_run_cfg *c) {
    bt_fold fold;
    bt_err checked_when_resolved = BT_ERR_INIT;
    return bt_fold_parse(&fold, c->data.fold, c->data.val_frac, &checked_when_resolved) == BT_OK
               ? fold
               : (bt_fold){0, 0};
}

/* The supervisor tokenises before the ranks start, so it uses the threads of all of them. */
static int tokenising_threads(const bt_run_cfg *c) {
    const int64_t allowed = bt_encode_threads_allowed(),
                  ranks = c->launch.ranks > 0 ? c->launch.ranks : 1,
                  wanted = c->launch.threads > 0 ? ranks * c->launch.threads : allowed;
    return (int)(wanted < allowed ? wanted : allowed);
}

static bt_row_kind preference_rows(const bt_run_cfg *c) {
    const bt_preference how = (bt_preference)c->tune.preference;
    return how == BT_PREFER_KTO        ? BT_ROWS_MISMATCHED
           : how == BT_PREFER_APO_ZERO ? BT_ROWS_SINGLES
                                       : BT_ROWS_PAIRS;
}

bt_loader_cfg bt_run_data(const bt_run_cfg *c) {
    return (bt_loader_cfg){.paths = c->data.path,
                           .val_paths = c->data.val_path,
                           .mixture = c->data.mixture,
                           .glob = c->data.glob,
                           .tokenizer = c->data.tokenizer,
                           .field = c->data.field,
                           .form = {.kind = (bt_form_kind)c->data.form,
                                    .learn = (bt_learn)c->data.train_on,
                                    .template_name = c->data.template,
                                    .field = c->data.field,
                                    .labels = c->data.labels},
                           .preferences = preference_rows(c),
                           .packing = (bt_packing)c->data.packing,
                           .too_long = (bt_too_long)c->data.too_long,
                           .max_rows = (uint64_t)c->data.max_rows,
                           .skip_bad_rows = c->data.bad_rows == BT_BAD_ROWS_SKIP,
                           .threads = tokenising_threads(c),
                           .cache_dir = c->data.cache,
                           .split = BT_SPLIT_TRAIN,
                           .val_frac = c->data.val_frac,
                           .fold = data_fold(c),
                           .shuffle = c->data.shuffle,
                           .B = (int)c->train.micro_batch,
                           .T = (int)c->model.seq_len,
                           .V = (int)c->model.vocab,
                           .seed = (uint64_t)c->run.seed};
}

static void warn_of_long_conversations(const bt_telemetry *t, int64_t step, uint64_t n, int64_t T,
                                       const char *what) {
    if (n)
        bt_telemetry_event(t, BT_EVENT_WARNING, step, NULL,
                           "%" PRIu64 " conversation%s longer than %" PRId64 " tokens %s", n,
                           n == 1 ? "" : "s", T, what);
}

/* Emits warnings about rows and bytes of the files, and the unused keys. */
void bt_run_data_notes(const bt_telemetry *t, const char *of, const char *notes, int64_t step) {
    for (size_t n; *notes; notes += n + (notes[n] == '\n')) {
        n = strcspn(notes, "\n");
        if (n > 1)
            bt_telemetry_event(t, *notes == '!' ? BT_EVENT_WARNING : BT_EVENT_DATA, step, NULL,
                               "%s%.*s", of, (int)n - 1, notes + 1);
    }
}

void bt_run_data_describe(const bt_telemetry *t, const bt_loader *l, const bt_run_cfg *c,
                          int64_t step) {
    const bt_row_facts *f = bt_loader_row_facts(l);
    bt_run_data_notes(t, "", bt_loader_notes(l), step);
    if (!f) return;
    const int64_t rows = bt_loader_sequences(l);
    const double room = (double)rows * (double)c->model.seq_len, tokens = (double)f->tokens;
    char gain[80] = "";
    if (c->data.packing == BT_PACKED_DOCUMENTS && c->data.form != BT_FORMED_PREFERENCE &&
        (int64_t)f->documents > rows)
        snprintf(gain, sizeof gain, " (%.1f %% with one a sequence: %.2f times the steps)",
                 100 * tokens / ((double)f->documents * (double)c->model.seq_len),
                 (double)f->documents / (double)rows);
    bt_telemetry_event(t, BT_EVENT_DATA, step, NULL,
                       "%" PRIu64 " documents in %" PRId64 " sequences of %" PRId64
                       " tokens, %.1f %% full%s; %" PRIu64 " tokens are learned, %.1f %% of all",
                       f->documents, rows, c->model.seq_len, 100 * tokens / room, gain, f->counted,
                       100 * (double)f->counted / tokens);
    warn_of_long_conversations(t, step, f->skipped, c->model.seq_len, "left out");
    warn_of_long_conversations(t, step, f->truncated, c->model.seq_len,
                               "cut off: their ends are not learned");
    if (f->empty)
        bt_telemetry_event(t, BT_EVENT_WARNING, step, NULL,
                           "%" PRIu64 " document%s left out: nothing of them is learned", f->empty,
                           f->empty == 1 ? "" : "s");
}

void bt_run_data_shares(const bt_telemetry *t, const bt_loader *l, int64_t steps_done) {
    uint64_t all = 0;
    const size_t n = bt_loader_sources(l);
    for (size_t k = 0; k < n; k++) all += bt_loader_source(l, k, steps_done).sequences;
    for (size_t k = 0; k < n; k++) {
        const bt_loader_share s = bt_loader_source(l, k, steps_done);
        bt_telemetry_event(t, BT_EVENT_DATA, steps_done - 1, NULL,
                           "source %zu of %zu, '%.160s': %" PRIu64
                           " sequences so far, %.1f %% of all, "
                           "%.2f of its epochs",
                           k + 1, n, s.name, s.sequences,
                           all ? 100 * (double)s.sequences / (double)all : 0,
                           (double)s.sequences / (double)s.epoch);
    }
}

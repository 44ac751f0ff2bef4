/* loader.c - a reader thread fills one batch buffer while the trainer uses the other. */
#include "engine/data/shards/loader.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "engine/base/rng.h"
#include "engine/data/shards/corpus.h"
#include "engine/data/shards/mixture.h"
#include "engine/data/shards/synth.h"
#include "engine/data/tokenizer/tokenizer.h"

/* Number of the random stream that orders the sequences of an epoch. */
enum { STREAM_ORDER = 0x6461746f };
#define SYNTH_VAL_SEED (1ull << 62) /* validation reads the same chain with other noise */

typedef struct slot {                      /* one micro-batch */
    int32_t *inputs, *targets, *positions; /* (B, T) each, in one block */
    int64_t counted;
    bool full; /* guarded by the lock */
} slot;

struct bt_loader {
    int B, T;
    bool shuffle;
    uint64_t seed;
    int64_t step; /* step of the next micro-batch to read */
    /* number of the first sequence of step 0; not 0 if a hub of islands leases the data */
    int64_t base;
    int sequences_per_step, first_sequence, n_sequences, done_sequences;
    bt_corpus **corpora; /* (n_corpora); 0: synthetic data, several: a mixture */
    size_t n_corpora;
    bt_mixture *mixture; /* NULL: one corpus */
    char **names;        /* (n_corpora) first file of each source of a mixture */
    bt_row_facts facts;  /* sum over all packed corpora */
    bt_text notes;
    bt_synth synth;
    uint64_t n_epoch; /* sequences per epoch in all corpora */
    int64_t tokens;   /* -1: unlimited */
    double bytes_per_token;
    uint64_t hash;
    int32_t *row; /* T + 1 ids */

    pthread_t reader;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    slot slots[2];
    int give;        /* index of the slot that `next` returns next */
    bool held, quit; /* held: the trainer uses slots[give ^ 1] */
    bt_code failed;
    bt_err why;
};

/* Finds the corpus and the row of sequence q of the run. q counts the sequences of all epochs. */
static bt_corpus *find_sequence_row(const bt_loader *l, uint64_t q, uint64_t *row) {
    bt_mixture_pick at = l->mixture ? bt_mixture_at(l->mixture, q) : (bt_mixture_pick){0, q};
    bt_corpus *c = l->corpora[at.source];
    uint64_t n = bt_corpus_rows(c), epoch = at.index / n;
    uint64_t order = bt_rng_u64(l->seed, STREAM_ORDER + at.source, epoch);
    *row = l->shuffle ? bt_rng_permute(at.index % n, n, order) : at.index % n;
    return c;
}

static bt_code read_sequence(bt_loader *l, uint64_t q, const bt_corpus_row *out, bt_err *err) {
    size_t T = (size_t)l->T;
    uint64_t row;
    if (l->n_corpora) {
        bt_corpus *c = find_sequence_row(l, q, &row);
        return bt_corpus_read_row(c, row, out, err);
    }
    bt_synth_read(&l->synth, q * (T + 1), T + 1, l->row);
    memcpy(out->inputs, l->row, T * sizeof *l->row);
    memcpy(out->targets, l->row + 1, T * sizeof *l->row);
    return BT_OK;
}

static bt_code make_batch(bt_loader *l, slot *s, bt_err *err) {
    size_t T = (size_t)l->T;
    const int64_t begin = l->step * l->sequences_per_step + l->base + l->first_sequence +
                          l->done_sequences;
    s->counted = bt_loader_counted_in(l, begin, l->B);
    for (size_t b = 0; b < (size_t)l->B; b++) {
        uint64_t g = (uint64_t)l->base + (uint64_t)l->first_sequence + (uint64_t)l->done_sequences +
                     b;
        const bt_corpus_row out = {s->inputs + b * T, s->targets + b * T, s->positions + b * T};
        BT_TRY(
            read_sequence(l, (uint64_t)l->step * (uint64_t)l->sequences_per_step + g, &out, err));
    }
    l->done_sequences += l->B;
    if (l->done_sequences == l->n_sequences) {
        l->done_sequences = 0;
        l->step++;
    }
    return BT_OK;
}

static void *read_ahead(void *arg) {
    bt_loader *l = arg;
    for (int fill = 0;; fill ^= 1) {
        slot *s = &l->slots[fill];
        pthread_mutex_lock(&l->lock);
        while (!l->quit && s->full) pthread_cond_wait(&l->changed, &l->lock);
        bool quit = l->quit;
        pthread_mutex_unlock(&l->lock);
        if (quit) return NULL;
        bt_err err = BT_ERR_INIT;
        bt_code code = make_batch(l, s, &err);
        pthread_mutex_lock(&l->lock);
        if (code == BT_OK) s->full = true;
        l->failed = code;
        l->why = err;
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->lock);
        if (code != BT_OK) return NULL;
    }
}

static bt_code start_reader(bt_loader *l, bt_err *err) {
    sigset_t all, old;
    sigfillset(&all); /* other threads handle signals */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&l->reader, NULL, read_ahead, l);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc) return bt_fail_errno(err, BT_NOMEM, rc, "cannot start the data reader thread");
    l->started = true;
    return BT_OK;
}

bt_code bt_loader_next(bt_loader *l, bt_batch *out, bt_err *err) {
    pthread_mutex_lock(&l->lock);
    if (l->held) { /* returns the previous batch to the reader */
        l->slots[l->give ^ 1].full = false;
        l->held = false;
        pthread_cond_broadcast(&l->changed);
    }
    slot *s = &l->slots[l->give];
    while (!s->full && l->failed == BT_OK) pthread_cond_wait(&l->changed, &l->lock);
    bool full = s->full;
    if (full) {
        l->give ^= 1;
        l->held = true;
    }
    pthread_mutex_unlock(&l->lock);
    if (!full) {
        if (err) *err = l->why;
        return l->failed;
    }
    *out = (bt_batch){s->inputs, s->targets, bt_loader_row_facts(l) ? s->positions : NULL,
                      s->counted};
    return BT_OK;
}

static bt_code check_share(int first, int n, int per_step, int B, bt_err *err) {
    if (n < B || n % B != 0)
        return bt_fail(err, BT_ARG,
                       "%d sequences of this rank are not a multiple of the micro-batch of %d", n,
                       B);
    if (first < 0 || n > per_step - first)
        return bt_fail(err, BT_ARG, "sequences %d..%d are outside a step of %d", first, first + n,
                       per_step);
    return BT_OK;
}

static bt_code check_cfg(const bt_loader_cfg *c, bt_err *err) {
    if (c->B < 1 || c->T < 1 || c->V < 1)
        return bt_fail(err, BT_ARG,
                       "a batch of %d sequences of %d tokens from a vocabulary of %d is not "
                       "possible: all three must be at least 1",
                       c->B, c->T, c->V);
    BT_TRY(check_share(c->first_sequence, c->n_sequences, c->sequences_per_step, c->B, err));
    if (c->first_step < 0)
        return bt_fail(err, BT_ARG, "the first step must be 0 or more, not %lld",
                       (long long)c->first_step);
    if (!(c->val_frac >= 0 && c->val_frac < 1))
        return bt_fail(err, BT_ARG, "data.val_frac must be in 0..1, not %g", c->val_frac);
    return BT_OK;
}

static bt_code open_synth(bt_loader *l, const bt_loader_cfg *cfg, const char *name, bt_err *err) {
    if (cfg->mixture && *cfg->mixture)
        return bt_fail(err, BT_ARG,
                       "'%s' is a single source of unlimited length: data.mixture needs several "
                       "files or folders in data.path",
                       name);
    uint64_t facts[2] = {(uint64_t)cfg->V, cfg->split};
    bt_synth_init(&l->synth, name, cfg->V,
                  cfg->split == BT_SPLIT_VAL ? cfg->seed + SYNTH_VAL_SEED : cfg->seed);
    l->tokens = -1;
    l->bytes_per_token = 1;
    l->hash = XXH3_64bits_withSeed(facts, sizeof facts, bt_hash_name(name));
    return BT_OK;
}

static bt_code fail_too_short(const bt_loader_cfg *cfg, uint64_t count, bool own_val, bt_err *err) {
    if (cfg->split == BT_SPLIT_TRAIN)
        return bt_fail(err, BT_ARG,
                       "the data has %llu tokens for training, but one sequence needs %d (add "
                       "data, or reduce model.seq_len)",
                       (unsigned long long)count, cfg->T + 1);
    return bt_fail(err, BT_ARG,
                   "the validation data has %llu tokens, but one sequence needs %d (%s)",
                   (unsigned long long)count, cfg->T + 1,
                   cfg->val_remedy ? cfg->val_remedy
                   : own_val       ? "pass more --val-data"
                                   : "increase data.val_frac or pass --val-data");
}

static void add_row_facts(bt_row_facts *sum, const bt_row_facts *f) {
    if (!f) return;
    sum->documents += f->documents;
    sum->tokens += f->tokens;
    sum->counted += f->counted;
    sum->skipped += f->skipped;
    sum->truncated += f->truncated;
    sum->cut += f->cut;
    sum->empty += f->empty;
    if (f->longest > sum->longest) sum->longest = f->longest;
}

static bt_code open_corpus(bt_loader *l, const bt_loader_cfg *cfg, const bt_sources *sources,
                           const bt_tokenizer *t, bool whole, bt_err *err) {
    bt_corpus **c = &l->corpora[l->n_corpora];
    BT_TRY(bt_corpus_open(c, sources, cfg, t, whole, err));
    l->n_corpora++;
    bt_text_putn(&l->notes, bt_text_str(bt_corpus_notes(*c)), bt_corpus_notes(*c)->len);
    uint64_t count = bt_corpus_count(*c), rows = bt_corpus_rows(*c), hash = bt_corpus_hash(*c);
    if (!rows) return fail_too_short(cfg, count, whole, err);
    double bytes = l->bytes_per_token * (double)l->tokens +
                   bt_corpus_bytes_per_token(*c) * (double)count;
    l->tokens += (int64_t)count;
    l->bytes_per_token = bytes / (double)l->tokens;
    l->n_epoch += rows;
    l->hash = l->n_corpora > 1 ? XXH3_64bits_withSeed(&hash, sizeof hash, l->hash) : hash;
    add_row_facts(&l->facts, bt_corpus_row_facts(*c));
    return BT_OK;
}

/* Opens a corpus for each word of the paths. */
static bt_code open_mixture(bt_loader *l, const bt_loader_cfg *cfg, const bt_sources *sources,
                            const bt_tokenizer *t, bt_err *err) {
    size_t words = sources->items[sources->n - 1].word + 1;
    l->names = calloc(sources->n, sizeof *l->names);
    if (!l->names) return bt_fail(err, BT_NOMEM, "cannot allocate memory for the mixture");
    BT_TRY(bt_mixture_create(&l->mixture, cfg->mixture, words, cfg->sequences_per_step, err));
    for (size_t i = 0, next; i < sources->n; i = next) {
        for (next = i + 1;
             next < sources->n && sources->items[next].word == sources->items[i].word;)
            next++;
        const bt_sources word = {.items = sources->items + i, .n = next - i};
        l->names[l->n_corpora] = strdup(sources->items[i].path);
        if (!l->names[l->n_corpora])
            return bt_fail(err, BT_NOMEM, "cannot allocate memory for the mixture");
        BT_TRY(open_corpus(l, cfg, &word, t, false, err));
    }
    return BT_OK;
}

static bt_code open_corpora(bt_loader *l, const bt_loader_cfg *cfg, const bt_sources *sources,
                            bool whole, bt_err *err) {
    bt_tokenizer *t;
    BT_TRY(
        bt_tokenizer_load(&t, cfg->tokenizer && *cfg->tokenizer ? cfg->tokenizer : "bytes", err));
    bool mixed = cfg->mixture && *cfg->mixture && cfg->split == BT_SPLIT_TRAIN;
    bt_code code = BT_OK;
    l->corpora = calloc(sources->n, sizeof *l->corpora);
    if (!l->corpora) code = bt_fail(err, BT_NOMEM, "cannot allocate memory for the data");
    if (code == BT_OK && bt_tokenizer_vocab(t) > cfg->V)
        code = bt_fail(err, BT_ARG,
                       "the tokenizer '%s' has %d tokens, but the model has %d: set model.vocab=%d",
                       cfg->tokenizer, bt_tokenizer_vocab(t), cfg->V, bt_tokenizer_vocab(t));
    if (code == BT_OK)
        code = mixed ? open_mixture(l, cfg, sources, t, err)
                     : open_corpus(l, cfg, sources, t, whole, err);
    bt_tokenizer_free(t);
    return code;
}

static bt_code open_sources(bt_loader *l, const bt_loader_cfg *cfg, bt_err *err) {
    bool own_val = cfg->val_paths && *cfg->val_paths, val = cfg->split == BT_SPLIT_VAL;
    bt_sources sources;
    BT_TRY(bt_sources_list_glob(&sources,
                                own_val && val ? cfg->val_paths
                                : cfg->paths   ? cfg->paths
                                               : "",
                                cfg->glob, cfg->cache_dir ? cfg->cache_dir : "", err));
    bt_code code = sources.items[0].kind == BT_SOURCE_SYNTH
                       ? open_synth(l, cfg, sources.items[0].path, err)
                       : open_corpora(l, cfg, &sources, own_val, err);
    bt_sources_release(&sources);
    return code;
}

static bt_code allocate_loader_buffers(bt_loader *l, bt_err *err) {
    size_t n = (size_t)l->B * (size_t)l->T;
    l->row = malloc(((size_t)l->T + 1) * sizeof *l->row);
    bool ok = l->row != NULL;
    for (int i = 0; i < 2 && ok; i++) {
        l->slots[i].inputs = malloc(3 * n * sizeof(int32_t));
        ok = l->slots[i].inputs != NULL;
        l->slots[i].targets = ok ? l->slots[i].inputs + n : NULL;
        l->slots[i].positions = ok ? l->slots[i].inputs + 2 * n : NULL;
    }
    return ok ? BT_OK
              : bt_fail(err, BT_NOMEM,
                        "cannot allocate memory for batches of %d x %d tokens (use a smaller "
                        "train.micro_batch or model.seq_len)",
                        l->B, l->T);
}

bt_code bt_loader_open(bt_loader **out, const bt_loader_cfg *cfg, bt_err *err) {
    *out = NULL;
    BT_TRY(check_cfg(cfg, err));
    bt_loader *l = calloc(1, sizeof *l);
    if (!l) return bt_fail(err, BT_NOMEM, "cannot allocate memory for the data loader");
    l->B = cfg->B;
    l->T = cfg->T;
    l->shuffle = cfg->shuffle;
    l->seed = cfg->seed;
    l->step = cfg->first_step;
    l->sequences_per_step = cfg->sequences_per_step;
    l->first_sequence = cfg->first_sequence;
    l->n_sequences = cfg->n_sequences;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    bt_code code = open_sources(l, cfg, err);
    if (code == BT_OK) code = allocate_loader_buffers(l, err);
    if (code == BT_OK) code = start_reader(l, err);
    if (code != BT_OK) {
        bt_loader_close(l);
        return code;
    }
    *out = l;
    return BT_OK;
}

static void stop_reader(bt_loader *l) {
    if (!l->started) return;
    pthread_mutex_lock(&l->lock);
    l->quit = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->reader, NULL);
    l->started = false;
}

static bt_code restart_reader_at(bt_loader *l, int64_t step, int first_sequence, int n_sequences,
                                 bt_err *err) {
    l->step = step;
    l->first_sequence = first_sequence;
    l->n_sequences = n_sequences;
    l->done_sequences = l->give = 0;
    l->failed = BT_OK;
    l->held = l->quit = l->slots[0].full = l->slots[1].full = false;
    return start_reader(l, err);
}

bt_code bt_loader_move(bt_loader *l, int64_t step, int first_sequence, int n_sequences,
                       bt_err *err) {
    BT_TRY(check_share(first_sequence, n_sequences, l->sequences_per_step, l->B, err));
    stop_reader(l);
    l->base = 0;
    return restart_reader_at(l, step, first_sequence, n_sequences, err);
}

bt_code bt_loader_deal(bt_loader *l, int64_t begin, int stride, int first, int n, bt_err *err) {
    BT_TRY(check_share(first, n, stride, l->B, err));
    stop_reader(l);
    l->base = begin;
    l->sequences_per_step = stride;
    return restart_reader_at(l, 0, first, n, err);
}

void bt_loader_close(bt_loader *l) {
    if (!l) return;
    stop_reader(l);
    for (size_t i = 0; i < l->n_corpora; i++) bt_corpus_close(l->corpora[i]);
    for (size_t i = 0; l->names && i < l->n_corpora; i++) free(l->names[i]);
    free(l->names);
    free(l->corpora);
    bt_mixture_destroy(l->mixture);
    for (int i = 0; i < 2; i++) free(l->slots[i].inputs);
    free(l->row);
    bt_text_release(&l->notes);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

int64_t bt_loader_tokens(const bt_loader *l) { return l->tokens; }
int64_t bt_loader_sequences(const bt_loader *l) { return l->tokens < 0 ? -1 : (int64_t)l->n_epoch; }
double bt_loader_bytes_per_token(const bt_loader *l) { return l->bytes_per_token; }
uint64_t bt_loader_hash(const bt_loader *l) { return l->hash; }
const char *bt_loader_notes(const bt_loader *l) { return bt_text_str(&l->notes); }

const bt_row_facts *bt_loader_row_facts(const bt_loader *l) {
    return l->n_corpora && bt_corpus_row_facts(l->corpora[0]) ? &l->facts : NULL;
}

size_t bt_loader_sources(const bt_loader *l) { return l->mixture ? l->n_corpora : 0; }

bt_loader_share bt_loader_source(const bt_loader *l, size_t k, int64_t step) {
    return (bt_loader_share){
        .name = l->names[k],
        .sequences = bt_mixture_count(l->mixture, k, (uint64_t)(step * l->sequences_per_step)),
        .epoch = bt_corpus_rows(l->corpora[k])};
}

bool bt_loader_mixture_changes_at(const bt_loader *l, int64_t step) {
    return l->mixture &&
           bt_mixture_changes_at(l->mixture, (uint64_t)(step * l->sequences_per_step));
}

int64_t bt_loader_counted_in(const bt_loader *l, int64_t begin, int64_t n) {
    int64_t sum = 0;
    if (!bt_loader_row_facts(l)) return -1;
    for (int64_t q = begin; q < begin + n; q++) {
        uint64_t row;
        const bt_corpus *c = find_sequence_row(l, (uint64_t)q, &row);
        sum += bt_corpus_row_counted(c, row);
    }
    return sum;
}

int64_t bt_loader_counted(const bt_loader *l, int64_t step) {
    return bt_loader_counted_in(l, step * l->sequences_per_step, l->sequences_per_step);
}

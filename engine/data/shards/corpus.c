/* corpus.c - keeps a limited number of shards open and finds the shard of a token by binary search. */
#include "engine/data/shards/corpus.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/hash.h"
#include "engine/data/shards/prepare.h"
#include "engine/data/shards/shard.h"

/* Maximum number of open file descriptors; a further shard is opened when it is read. */
enum { MAX_OPEN = 128 };

/* Ids [from, from + count) of a shard are ids [at, at + count) of the stream. */
typedef struct extent {
    bt_shard *shard;
    uint64_t from, count, at;
} extent;

struct bt_corpus {
    bt_shard **shards;
    size_t n_shards;
    extent *extents;
    size_t n_extents, cap;
    uint64_t count, source_bytes, hash;
    bt_shard *open[MAX_OPEN]; /* a ring: a new shard replaces the oldest */
    size_t oldest, n_open;
    uint64_t T;
    bt_row_set *rows;              /* packed rows; NULL: a stream */
    double learned, learned_bytes; /* packed rows: number of learned ids and their source bytes */
    uint64_t documents, documents_of_split;
    int32_t *ids; /* (T + 1) ids of one row */
    unsigned char *marks;
    bt_text notes;
};

static void keep_shard_open(bt_corpus *c, bt_shard *s) {
    if (c->n_open == MAX_OPEN) {
        bt_shard_park(c->open[c->oldest]);
        c->open[c->oldest] = s;
        c->oldest = (c->oldest + 1) % MAX_OPEN;
    } else {
        c->open[c->n_open++] = s;
    }
}

void bt_corpus_close(bt_corpus *c) {
    if (!c) return;
    for (size_t i = 0; i < c->n_shards; i++) bt_shard_close(c->shards[i]);
    free(c->shards);
    free(c->extents);
    free(c->ids);
    free(c->marks);
    bt_row_set_destroy(c->rows);
    bt_text_release(&c->notes);
    free(c);
}

uint64_t bt_corpus_count(const bt_corpus *c) {
    return c->rows ? bt_row_set_facts(c->rows)->tokens : c->count;
}
uint64_t bt_corpus_hash(const bt_corpus *c) { return c->hash; }
const bt_text *bt_corpus_notes(const bt_corpus *c) { return &c->notes; }

static bt_code add_extent(bt_corpus *c, bt_shard *shard, uint64_t from, uint64_t count,
                          bt_err *err) {
    if (!count) return BT_OK;
    extent *last = c->n_extents ? &c->extents[c->n_extents - 1] : NULL;
    if (last && last->shard == shard && last->from + last->count == from) {
        last->count += count;
    } else {
        if (c->n_extents == c->cap) {
            size_t cap = c->cap ? 2 * c->cap : 16;
            extent *p = realloc(c->extents, cap * sizeof *p);
            if (!p)
                return bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu pieces of data", cap);
            c->extents = p;
            c->cap = cap;
        }
        c->extents[c->n_extents++] = (extent){shard, from, count, c->count};
    }
    c->count += count;
    uint64_t facts[3] = {bt_shard_about(shard)->content_hash, from, count};
    c->hash = XXH3_64bits_withSeed(facts, sizeof facts, c->hash);
    return BT_OK;
}

static uint64_t held_out_part(const bt_loader_cfg *cfg, uint64_t count, uint64_t *first) {
    const uint64_t n = (uint64_t)((double)count * cfg->val_frac);
    const uint64_t end = cfg->fold.of ? count * (uint64_t)cfg->fold.i / (uint64_t)cfg->fold.of
                                      : count;
    *first = end > n ? end - n : 0;
    return n;
}

/* Adds tokens [from, from + n) of a shard, and the number of source bytes that they represent. */
static bt_code add_tokens(bt_corpus *c, bt_shard *s, uint64_t from, uint64_t n,
                          const uint32_t *lengths, bt_err *err) {
    uint64_t begin, end;
    BT_TRY(bt_shard_bytes_before(s, from, lengths, &begin, err));
    BT_TRY(bt_shard_bytes_before(s, from + n, lengths, &end, err));
    c->source_bytes += end - begin;
    return add_extent(c, s, from, n, err);
}

/* Adds those tokens of each segment that belong to the split; whole: all of them. */
static bt_code add_shard(bt_corpus *c, bt_shard *s, const bt_loader_cfg *cfg, bool whole,
                         const uint32_t *lengths, bt_err *err) {
    const bt_shard_info *info = bt_shard_about(s);
    uint64_t at = 0;
    if (info->has_spans)
        return bt_fail(err, BT_ARG,
                       "token shard '%.100s' contains conversations or texts of an instruction "
                       "set, which cannot form a stream: set data.packing=documents or pad",
                       bt_shard_name(s));
    for (uint64_t i = 0; i < info->n_segments; i++) {
        uint64_t count, bytes, first;
        bt_shard_segment(s, i, &count, &bytes);
        const uint64_t held = held_out_part(cfg, count, &first);
        if (whole) {
            BT_TRY(add_tokens(c, s, at, count, lengths, err));
        } else if (cfg->split == BT_SPLIT_VAL) {
            BT_TRY(add_tokens(c, s, at + first, held, lengths, err));
        } else {
            BT_TRY(add_tokens(c, s, at, first, lengths, err));
            BT_TRY(add_tokens(c, s, at + first + held, count - first - held, lengths, err));
        }
        at += count;
    }
    return BT_OK;
}

static bt_code add_rows(bt_corpus *c, bt_shard *s, uint64_t from, uint64_t end, const char *name,
                        bt_err *err) {
    return from < end
               ? bt_row_set_add(c->rows, s, (uint32_t)(c->n_shards - 1), from, end, name, err)
               : BT_OK;
}

/* Adds those documents of each segment that belong to the split; whole: all of them. */
static bt_code add_documents(bt_corpus *c, bt_shard *s, const bt_loader_cfg *cfg, bool whole,
                             const char *name, bt_err *err) {
    const bt_shard_info *info = bt_shard_about(s);
    const uint64_t *ends = bt_shard_document_ends(s);
    const bool pairs = cfg->form.kind == BT_FORM_PREFERENCE;
    const uint64_t singles = cfg->preferences >= BT_ROWS_SINGLES ? cfg->preferences : 0;
    uint64_t at = 0, d = 0,
             facts[4] = {info->content_hash, info->tables_hash, cfg->packing | singles << 8, c->T};
    if (!info->has_documents)
        return bt_fail(
            err, BT_UNSUPPORTED,
            "token shard '%.100s' does not contain the ends of its documents, which packing "
            "needs: create it again with 'bitrain data prepare'",
            bt_shard_name(s));
    for (uint64_t i = 0; i < info->n_segments; i++) {
        uint64_t count, bytes, from = d;
        bt_shard_segment(s, i, &count, &bytes);
        for (at += count; d < info->documents && ends[d] <= at;) d++;
        if (pairs && (d - from) % 2)
            return bt_fail(err, BT_ARG,
                           "token shard '%.100s' has an odd number of documents, but preferences "
                           "are pairs of documents: create it with data.form=preference",
                           bt_shard_name(s));
        const uint64_t each = pairs ? 2 : 1;
        uint64_t first, held = each * held_out_part(cfg, (d - from) / each, &first);
        const bool train = cfg->split == BT_SPLIT_TRAIN;
        first = from + each * first;
        c->documents += d - from;
        c->documents_of_split += whole ? d - from : train ? d - from - held : held;
        if (whole || train) BT_TRY(add_rows(c, s, from, whole ? d : first, name, err));
        if (!whole)
            BT_TRY(
                add_rows(c, s, train ? first + held : first, train ? d : first + held, name, err));
    }
    const bt_shard_span *spans = bt_shard_spans(s);
    for (uint64_t i = 0; i < info->n_spans; i++) {
        c->learned += (double)spans[i].n;
        c->learned_bytes += (double)spans[i].source_bytes;
    }
    if (!info->has_spans) {
        c->learned += (double)info->count;
        c->learned_bytes += (double)info->source_bytes;
    }
    c->hash = XXH3_64bits_withSeed(facts, sizeof facts, c->hash);
    return BT_OK;
}

static bt_row_kind choose_row_kind(const bt_loader_cfg *cfg) {
    if (cfg->form.kind == BT_FORM_LABEL) return BT_ROWS_LABELLED;
    if (cfg->form.kind != BT_FORM_PREFERENCE) return BT_ROWS_TEXTS;
    return cfg->preferences ? cfg->preferences : BT_ROWS_PAIRS;
}

/* Fails if all single answers to train on have the same label. */
static bt_code check_labels_differ(const bt_corpus *c, const bt_loader_cfg *cfg, bt_err *err) {
    const bt_row_facts *f = c->rows ? bt_row_set_facts(c->rows) : NULL;
    if (!f || cfg->split != BT_SPLIT_TRAIN || !f->desirable == !f->undesirable) return BT_OK;
    return bt_fail(err, BT_ARG,
                   "all %llu answers to train on are %s, and tune.preference=kto needs desirable "
                   "and undesirable ones (label or kto_tag: true and false)",
                   (unsigned long long)(f->desirable + f->undesirable),
                   f->desirable ? "desirable" : "undesirable");
}

/* A split without documents is an error; val_frac of only a few documents is rounded to none. */
static bt_code check_split(const bt_corpus *c, const bt_loader_cfg *cfg, bt_err *err) {
    if (!c->rows || c->documents_of_split || !c->documents) return BT_OK;
    return bt_fail(err, BT_ARG,
                   "data.val_frac=%g of %llu document%s leaves none %s: pass --val-data, or change "
                   "data.val_frac (0 disables validation)",
                   cfg->val_frac, (unsigned long long)c->documents, c->documents == 1 ? "" : "s",
                   cfg->split == BT_SPLIT_TRAIN ? "to train on" : "to be held out for validation");
}

static bt_code check_vocab(const bt_shard *s, const bt_tokenizer *t, bt_err *err) {
    const bt_shard_info *info = bt_shard_about(s);
    if (info->vocab_hash == bt_tokenizer_hash(t)) return BT_OK;
    return bt_fail(err, BT_FORMAT,
                   "token shard '%s' was made with another tokenizer (%u tokens, hash %016llx) "
                   "than this run's '%s' (%d tokens, hash %016llx): "
                   "pass that one with --tokenizer",
                   bt_shard_name(s), info->vocab, (unsigned long long)info->vocab_hash,
                   bt_tokenizer_kind(t), bt_tokenizer_vocab(t),
                   (unsigned long long)bt_tokenizer_hash(t));
}

/* Opens one shard for sources[i]: the file itself, or the cached shard of this text file and the following ones of the
 * same word. *next is the index of the first source after them. */
static bt_code open_next_shard(bt_shard **s, const bt_sources *sources, size_t i, size_t *next,
                               const bt_loader_cfg *cfg, const bt_tokenizer *t, bt_text *notes,
                               bt_err *err) {
    const bt_source *items = sources->items;
    *next = i + 1;
    if (items[i].kind == BT_SOURCE_SHARD) {
        BT_TRY(bt_shard_open(s, items[i].path, err));
        bt_code code = check_vocab(*s, t, err);
        if (code != BT_OK) bt_shard_close(*s);
        return code;
    }
    while (*next < sources->n && items[*next].kind != BT_SOURCE_SHARD &&
           items[*next].word == items[i].word)
        ++*next;
    bt_prepare_cfg p = {.files = items + i,
                        .n_files = *next - i,
                        .field = cfg->field,
                        .form = &cfg->form,
                        .max_rows = cfg->max_rows,
                        .skip_bad = cfg->skip_bad_rows,
                        .notes = notes,
                        .tokenizer = t,
                        .threads = cfg->threads,
                        .progress = cfg->progress,
                        .ctx = cfg->ctx};
    return bt_prepare_cached(&p, cfg->cache_dir, s, err);
}

bt_code bt_corpus_open(bt_corpus **out, const bt_sources *sources, const bt_loader_cfg *cfg,
                       const bt_tokenizer *tokenizer, bool whole, bt_err *err) {
    *out = NULL;
    bt_corpus *c = calloc(1, sizeof *c);
    uint32_t *lengths = bt_id_lengths(tokenizer);
    if (c) {
        c->T = (uint64_t)cfg->T;
        c->shards = calloc(sources->n, sizeof *c->shards);
        c->ids = malloc((c->T + 1) * sizeof *c->ids);
        c->marks = malloc(c->T + 1);
    }
    bt_code code = c && lengths && c->shards && c->ids && c->marks
                       ? BT_OK
                       : bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu data files",
                                 sources->n);
    if (code == BT_OK && cfg->packing > BT_PACKING_STREAM)
        code = bt_row_set_create(&c->rows, cfg->T, cfg->packing, cfg->too_long,
                                 choose_row_kind(cfg), err);
    for (size_t i = 0, next; code == BT_OK && i < sources->n; i = next) {
        bt_shard *s;
        code = open_next_shard(&s, sources, i, &next, cfg, tokenizer, &c->notes, err);
        if (code != BT_OK) break;
        c->shards[c->n_shards++] = s;
        keep_shard_open(c, s);
        code = c->rows ? add_documents(c, s, cfg, whole, sources->items[i].path, err)
                       : add_shard(c, s, cfg, whole, lengths, err);
    }
    if (code == BT_OK) code = check_split(c, cfg, err);
    if (code == BT_OK && c->rows) code = bt_row_set_finish(c->rows, err);
    if (code == BT_OK) code = check_labels_differ(c, cfg, err);
    free(lengths);
    if (code != BT_OK) {
        bt_corpus_close(c);
        return code;
    }
    *out = c;
    return BT_OK;
}

static bt_code read_stream_ids(bt_corpus *c, uint64_t first, size_t n, int32_t *out, bt_err *err) {
    if (first > c->count || n > c->count - first)
        return bt_fail(err, BT_ARG, "ids %llu..%llu are outside the data, which have %llu ids",
                       (unsigned long long)first, (unsigned long long)(first + n),
                       (unsigned long long)c->count);
    if (!n) return BT_OK;
    size_t lo = 0, hi = c->n_extents; /* finds the last extent that begins at or before `first` */
    while (hi - lo > 1) {
        size_t mid = (lo + hi) / 2;
        if (c->extents[mid].at <= first)
            lo = mid;
        else
            hi = mid;
    }
    for (; n; lo++) {
        const extent *e = &c->extents[lo];
        uint64_t skip = first - e->at, k = e->count - skip;
        if (k > n) k = n;
        if (bt_shard_is_parked(e->shard)) keep_shard_open(c, e->shard);
        BT_TRY(bt_shard_read(e->shard, e->from + skip, (size_t)k, out, err));
        out += k;
        first += k;
        n -= (size_t)k;
    }
    return BT_OK;
}

uint64_t bt_corpus_rows(const bt_corpus *c) {
    if (c->rows) return bt_row_set_rows(c->rows);
    return c->count ? (c->count - 1) / c->T : 0;
}

uint32_t bt_corpus_row_counted(const bt_corpus *c, uint64_t row) {
    return c->rows ? bt_row_set_counted(c->rows, row) : (uint32_t)c->T;
}

const bt_row_facts *bt_corpus_row_facts(const bt_corpus *c) {
    return c->rows ? bt_row_set_facts(c->rows) : NULL;
}

double bt_corpus_bytes_per_token(const bt_corpus *c) {
    if (c->rows) return c->learned > 0 ? c->learned_bytes / c->learned : 1;
    return (double)c->source_bytes / (double)c->count;
}

static bt_code read_row_piece(bt_corpus *c, const bt_row_piece *p, const bt_corpus_row *out,
                              size_t at, bt_err *err) {
    bt_shard *s = c->shards[p->shard];
    const int32_t position = p->joined ? out->positions[at - 1] + 1 : 0;
    if (bt_shard_is_parked(s)) keep_shard_open(c, s);
    BT_TRY(bt_shard_read(s, p->first, p->n, c->ids, err));
    bt_shard_learned(s, p->first, p->n, c->marks);
    for (size_t i = 0; i < p->n; i++) {
        out->inputs[at + i] = c->ids[i];
        out->targets[at + i] = i + 1 < p->n && c->marks[i + 1] ? c->ids[i + 1] : -1;
        out->positions[at + i] = position + (int32_t)i;
    }
    if (p->joined) out->targets[at - 1] = c->marks[0] ? c->ids[0] : -1;
    return BT_OK;
}

bt_code bt_corpus_read_row(bt_corpus *c, uint64_t row, const bt_corpus_row *out, bt_err *err) {
    size_t n, at = 0, T = (size_t)c->T;
    if (!c->rows) {
        BT_TRY(read_stream_ids(c, row * c->T, T + 1, c->ids, err));
        memcpy(out->inputs, c->ids, T * sizeof *c->ids);
        memcpy(out->targets, c->ids + 1, T * sizeof *c->ids);
        return BT_OK;
    }
    const bt_row_piece *pieces = bt_row_set_pieces(c->rows, row, &n);
    for (size_t i = 0; i < n; at += pieces[i++].n)
        BT_TRY(read_row_piece(c, &pieces[i], out, at, err));
    for (; at < T; at++) {
        out->inputs[at] = 0;
        out->targets[at] = out->positions[at] = -1;
    }
    return BT_OK;
}

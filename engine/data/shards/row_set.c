/* row_set.c - packs the documents of shards into rows: next-fit packing. */
#include "engine/data/shards/row_set.h"

#include <stdlib.h>
#include <string.h>

typedef struct row {
    uint64_t first; /* index of the first piece */
    uint32_t n, counted;
} row;

struct bt_row_set {
    uint32_t T;
    bt_packing packing;
    bt_too_long too_long;
    bt_row_kind kind;
    bt_row_piece *pieces;
    row *rows;
    size_t n_pieces, pieces_cap, n_rows, rows_cap;
    uint32_t used; /* tokens used in the last row */
    bt_row_facts facts;
};

bt_code bt_row_set_create(bt_row_set **out, int T, bt_packing packing, bt_too_long too_long,
                          bt_row_kind kind, bt_err *err) {
    bt_row_set *r = *out = calloc(1, sizeof *r);
    if (!r) return bt_fail(err, BT_NOMEM, "cannot allocate memory for the data");
    *r = (bt_row_set){.T = (uint32_t)T, .packing = packing, .too_long = too_long, .kind = kind};
    return BT_OK;
}

void bt_row_set_destroy(bt_row_set *r) {
    if (!r) return;
    free(r->pieces);
    free(r->rows);
    free(r);
}

/* Returns the first span that ends after `id`. */
static uint64_t span_at(const bt_shard *s, uint64_t id) {
    const bt_shard_span *spans = bt_shard_spans(s);
    uint64_t lo = 0, hi = bt_shard_about(s)->n_spans;
    while (lo < hi) {
        uint64_t mid = (lo + hi) / 2;
        if (spans[mid].first + spans[mid].n > id)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

static uint64_t count_learned(const bt_shard *s, uint64_t first, uint64_t end) {
    const bt_shard_span *spans = bt_shard_spans(s);
    uint64_t sum = 0;
    if (!bt_shard_about(s)->has_spans) return end > first ? end - first : 0;
    for (uint64_t i = span_at(s, first); i < bt_shard_about(s)->n_spans; i++) {
        uint64_t from = spans[i].first, to = from + spans[i].n;
        if (from >= end) break;
        sum += (to < end ? to : end) - (from > first ? from : first);
    }
    return sum;
}

void bt_shard_learned(const bt_shard *s, uint64_t first, size_t n, unsigned char *learned) {
    const bt_shard_span *spans = bt_shard_spans(s);
    const bool all = !bt_shard_about(s)->has_spans;
    memset(learned, all, n);
    for (uint64_t i = all ? 0 : span_at(s, first); !all && i < bt_shard_about(s)->n_spans; i++) {
        uint64_t from = spans[i].first, to = from + spans[i].n;
        if (from >= first + n) break;
        if (from < first) from = first;
        if (to > first + n) to = first + n;
        memset(learned + (from - first), 1, to - from);
    }
}

static bt_code grow_row_items(void **items, size_t *cap, size_t used, size_t each, bt_err *err) {
    if (used < *cap) return BT_OK;
    size_t cap2 = *cap ? 2 * *cap : 256;
    void *p = realloc(*items, cap2 * each);
    if (!p)
        return bt_fail(err, BT_NOMEM, "cannot allocate %zu bytes for the rows of documents",
                       cap2 * each);
    *items = p;
    *cap = cap2;
    return BT_OK;
}

/* The first token of a document is never a target. */
static uint64_t count_targets(const bt_shard *s, uint64_t first, uint64_t n) {
    return n > 1 ? count_learned(s, first + 1, first + n) : 0;
}

/* Makes room for n tokens in the last row, or begins a new one. */
static bt_code make_row_room(bt_row_set *r, uint64_t n, bt_err *err) {
    if (r->n_rows && r->packing != BT_PACKING_PAD && r->used + n <= r->T) return BT_OK;
    void *items = r->rows;
    BT_TRY(grow_row_items(&items, &r->rows_cap, r->n_rows, sizeof *r->rows, err));
    r->rows = items;
    r->rows[r->n_rows++] = (row){.first = r->n_pieces};
    r->used = 0;
    return BT_OK;
}

static bt_code add_piece(bt_row_set *r, bt_row_piece p, uint32_t counts, bt_err *err) {
    void *items = r->pieces;
    BT_TRY(grow_row_items(&items, &r->pieces_cap, r->n_pieces, sizeof *r->pieces, err));
    r->pieces = items;
    row *last = &r->rows[r->n_rows - 1];
    r->pieces[r->n_pieces++] = p;
    last->n++;
    last->counted += counts;
    r->used += p.n;
    r->facts.documents++;
    r->facts.tokens += p.n;
    r->facts.counted += p.counted;
    return BT_OK;
}

static bt_code put_row_piece(bt_row_set *r, const bt_shard *s, uint32_t shard, uint64_t first,
                             uint32_t n, bt_err *err) {
    const uint32_t counted = (uint32_t)count_targets(s, first, n);
    if (!counted) {
        r->facts.empty++;
        return BT_OK;
    }
    BT_TRY(make_row_room(r, n, err));
    return add_piece(r, (bt_row_piece){first, shard, n, counted, false}, counted, err);
}

static bt_code put_pair(bt_row_set *r, const bt_shard *s, uint32_t shard, uint64_t d,
                        const char *name, bt_err *err) {
    const uint64_t *ends = bt_shard_document_ends(s), first = d ? ends[d - 1] : 0,
                   n[2] = {ends[d] - first, ends[d + 1] - ends[d]};
    const uint64_t counted[2] = {count_targets(s, first, n[0]), count_targets(s, ends[d], n[1])};
    for (int i = 0; i < 2; i++)
        if (n[i] > r->facts.longest) r->facts.longest = n[i];
    for (int i = 0; i < 2; i++)
        if (n[i] == 1 && counted[!i])
            return bt_fail(err, BT_ARG,
                           "preference %llu of '%.100s' has a single answer with a label, but this "
                           "tune.preference compares two answers: set tune.preference=kto",
                           (unsigned long long)d / 2 + 1, name);
    if (n[0] + n[1] > r->T) {
        if (r->too_long == BT_TOO_LONG_REFUSE)
            return bt_fail(err, BT_ARG,
                           "preference %llu of '%.100s' has %llu tokens in both answers, but a "
                           "sequence has %u: increase model.seq_len, or set data.too_long=skip",
                           (unsigned long long)d / 2 + 1, name, (unsigned long long)(n[0] + n[1]),
                           r->T);
        r->facts.skipped += 2;
        return BT_OK;
    }
    if (!counted[0] || !counted[1]) {
        r->facts.empty += 2;
        return BT_OK;
    }
    BT_TRY(make_row_room(r, n[0] + n[1], err));
    BT_TRY(add_piece(r, (bt_row_piece){first, shard, (uint32_t)n[0], (uint32_t)counted[0], false},
                     0, err));
    return add_piece(r, (bt_row_piece){ends[d], shard, (uint32_t)n[1], (uint32_t)counted[1], false},
                     1, err);
}

typedef struct pair_span { /* both documents of a pair */
    uint64_t first[2], n[2], counted[2];
} pair_span;

static pair_span read_pair_span(const bt_shard *s, uint64_t d) {
    const uint64_t *ends = bt_shard_document_ends(s), first = d ? ends[d - 1] : 0;
    pair_span p = {.first = {first, ends[d]}, .n = {ends[d] - first, ends[d + 1] - ends[d]}};
    for (int i = 0; i < 2; i++) p.counted[i] = count_targets(s, p.first[i], p.n[i]);
    return p;
}

/* Returns the number of tokens of a document before its first learned target. */
static uint64_t prompt_length(const bt_shard *s, uint64_t first, uint64_t n) {
    const uint64_t i = span_at(s, first + 1);
    if (!bt_shard_about(s)->has_spans || i == bt_shard_about(s)->n_spans) return 1;
    const uint64_t at = bt_shard_spans(s)[i].first;
    return at <= first + 1 ? 1 : at < first + n ? at - first : n;
}

/* Returns the length of an answer without its prompt: of the chosen one if it is learned, else of the rejected one. */
static uint64_t answer_length(const bt_shard *s, const pair_span *q) {
    const int i = q->counted[0] ? 0 : 1;
    return q->n[i] - prompt_length(s, q->first[i], q->n[i]);
}

/* Adds a mismatched example: the prompt of answer `which` of pair p and the answer of pair q, cut to `room` tokens. */
static bt_code put_mismatched(bt_row_set *r, const bt_shard *s, uint32_t shard, const pair_span *p,
                              int which, const pair_span *q, uint64_t room, bt_err *err) {
    const int other = q->counted[0] ? 0 : 1;
    const uint64_t n = prompt_length(s, p->first[which], p->n[which]), rest = answer_length(s, q),
                   answer = q->first[other] + q->n[other] - rest,
                   fits = rest < room - n ? rest : room - n;
    BT_TRY(add_piece(r, (bt_row_piece){p->first[which], shard, (uint32_t)n, 0, false}, 0, err));
    r->facts.documents--; /* both pieces belong to one document */
    return add_piece(
        r, (bt_row_piece){.first = answer, .shard = shard, .n = (uint32_t)fits, .joined = true}, 0,
        err);
}

/* Adds answer `which` of pair d as an example. q: the pair whose answer the mismatched document contains. */
static bt_code put_single_answer(bt_row_set *r, const bt_shard *s, uint32_t shard, uint64_t d,
                                 int which, const pair_span *q, const char *name, bt_err *err) {
    const pair_span p = read_pair_span(s, d);
    const uint64_t n = p.n[which], prompt = prompt_length(s, p.first[which], n);
    const bool mismatched = r->kind == BT_ROWS_MISMATCHED;
    uint64_t all = n + 1 + (mismatched ? prompt + answer_length(s, q) : 0);
    const uint64_t least = n + 1 + (mismatched ? prompt + 1 : 0);
    if (n > r->facts.longest) r->facts.longest = n;
    if (least > r->T && r->too_long == BT_TOO_LONG_REFUSE)
        return bt_fail(err, BT_ARG,
                       "preference %llu of '%.100s' needs %llu tokens for its answer%s, but a "
                       "sequence has %u: increase model.seq_len, or set data.too_long=skip",
                       (unsigned long long)d / 2 + 1, name, (unsigned long long)least,
                       mismatched ? " and for its prompt with another answer" : "", r->T);
    if (least > r->T) {
        r->facts.skipped++;
        return BT_OK;
    }
    if (all > r->T) all = r->T;
    BT_TRY(make_row_room(r, all, err));
    for (int i = 0; i < 2; i++) {
        bt_row_piece piece = {.first = p.first[which], .shard = shard, .n = 1};
        if (i == which) piece.n = (uint32_t)n, piece.counted = (uint32_t)p.counted[which];
        BT_TRY(add_piece(r, piece, i == which, err));
    }
    r->facts.documents--; /* the single token in place of the other answer does not count */
    r->facts.desirable += which == 0;
    r->facts.undesirable += which == 1;
    return mismatched ? put_mismatched(r, s, shard, &p, which, q, all - n - 1, err) : BT_OK;
}

static bool has_learned_answer(const pair_span *p) { return p->counted[0] || p->counted[1]; }

static bt_code put_single_answers(bt_row_set *r, const bt_shard *s, uint32_t shard, uint64_t from,
                                  uint64_t to, const char *name, bt_err *err) {
    uint64_t first = from;
    while (first + 1 < to) {
        const pair_span p = read_pair_span(s, first);
        if (has_learned_answer(&p)) break;
        first += 2;
    }
    for (uint64_t d = from; d + 1 < to; d += 2) {
        const pair_span p = read_pair_span(s, d);
        if (!has_learned_answer(&p)) {
            r->facts.empty++;
            continue;
        }
        uint64_t next = d + 2;
        pair_span q = p;
        for (; next + 1 < to; next += 2) {
            q = read_pair_span(s, next);
            if (has_learned_answer(&q)) break;
        }
        if (next + 1 >= to) q = read_pair_span(s, first);
        for (int which = 0; which < 2; which++)
            if (p.counted[which]) BT_TRY(put_single_answer(r, s, shard, d, which, &q, name, err));
    }
    return BT_OK;
}

static bt_code put_document_pieces(bt_row_set *r, const bt_shard *s, uint32_t shard, uint64_t first,
                                   uint64_t n, bt_err *err) {
    r->facts.cut++;
    for (uint64_t at = 0; at < n; at += r->T)
        BT_TRY(
            put_row_piece(r, s, shard, first + at, (uint32_t)(n - at < r->T ? n - at : r->T), err));
    return BT_OK;
}

bt_code bt_row_set_add(bt_row_set *r, const bt_shard *s, uint32_t shard, uint64_t from, uint64_t to,
                       const char *name, bt_err *err) {
    const uint64_t *ends = bt_shard_document_ends(s);
    const bool pairs = r->kind == BT_ROWS_PAIRS, labelled = r->kind == BT_ROWS_LABELLED;
    if (r->kind >= BT_ROWS_SINGLES) return put_single_answers(r, s, shard, from, to, name, err);
    for (uint64_t d = from; pairs && d + 1 < to; d += 2)
        BT_TRY(put_pair(r, s, shard, d, name, err));
    for (uint64_t d = from; !pairs && d < to; d++) {
        uint64_t first = d ? ends[d - 1] : 0, n = ends[d] - first;
        if (n > r->facts.longest) r->facts.longest = n;
        if (n <= r->T) {
            BT_TRY(put_row_piece(r, s, shard, first, (uint32_t)n, err));
        } else if (count_learned(s, first, ends[d]) == n) {
            BT_TRY(put_document_pieces(r, s, shard, first, n, err));
        } else if (r->too_long == BT_TOO_LONG_SKIP) {
            r->facts.skipped++;
        } else if (r->too_long == BT_TOO_LONG_TRUNCATE) {
            r->facts.truncated++;
            BT_TRY(put_row_piece(r, s, shard, labelled ? ends[d] - r->T : first, r->T, err));
        } else {
            return bt_fail(err, BT_ARG,
                           "%s %llu of '%.100s' has %llu tokens, but a sequence has %u: increase "
                           "model.seq_len, or set data.too_long=skip or truncate",
                           labelled ? "text" : "conversation", (unsigned long long)d + 1, name,
                           (unsigned long long)n, r->T);
        }
    }
    return BT_OK;
}

bt_code bt_row_set_finish(bt_row_set *r, bt_err *err) {
    if (r->n_rows) return BT_OK;
    return bt_fail(err, BT_NOTFOUND,
                   "no document of the data has a token that the loss includes (%llu documents "
                   "longer than %u tokens were skipped)",
                   (unsigned long long)r->facts.skipped, r->T);
}

uint64_t bt_row_set_rows(const bt_row_set *r) { return r->n_rows; }
uint32_t bt_row_set_counted(const bt_row_set *r, uint64_t i) { return r->rows[i].counted; }
const bt_row_facts *bt_row_set_facts(const bt_row_set *r) { return &r->facts; }

const bt_row_piece *bt_row_set_pieces(const bt_row_set *r, uint64_t i, size_t *n) {
    *n = r->rows[i].n;
    return r->pieces + r->rows[i].first;
}

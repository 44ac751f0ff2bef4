/* row_set.c - next-fit packing of the documents of shards. */
#include "engine/data/shards/row_set.h"

#include <stdlib.h>
#include <string.h>

typedef struct row {
    uint64_t first; /* piece */
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
    uint32_t used; /* used tokens of the last row */
    bt_row_facts facts;
};

bt_code bt_row_set_create(bt_row_set **out, int T, bt_packing packing, bt_too_long too_long,
                          bt_row_kind kind, bt_err *err) {
    bt_row_set *r = *out = calloc(1, sizeof *r);
    if (!r) return bt_fail(err, BT_NOMEM, "cannot take memory for the data");
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
    if (!p) return bt_fail(err, BT_NOMEM, "cannot take %zu bytes for the data", cap2 * each);
    *items = p;
    *cap = cap2;
    return BT_OK;
}

/* Number of learned targets of a document; its first token is never a target. */
static uint64_t targets_of(const bt_shard *s, uint64_t first, uint64_t n) {
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
    const uint32_t counted = (uint32_t)targets_of(s, first, n);
    if (!counted) {
        r->facts.empty++;
        return BT_OK;
    }
    BT_TRY(make_row_room(r, n, err));
    return add_piece(r, (bt_row_piece){first, shard, n, counted, false}, counted, err);
}

/* Adds two successive documents as a pair. */
static bt_code put_pair(bt_row_set *r, const bt_shard *s, uint32_t shard, uint64_t d,
                        const char *name, bt_err *err) {
    const uint64_t *ends = bt_shard_document_ends(s), first = d ? ends[d - 1] : 0,
                   n[2] = {ends[d] - first, ends[d + 1] - ends[d]};
    const uint64_t counted[2] = {targets_of(s, first, n[0]), targets_of(s, ends[d], n[1])};
    for (int i = 0; i < 2; i++)
        if (n[i] > r->facts.longest) r->facts.longest = n[i];
    for (int i = 0; i < 2; i++)
        if (n[i] == 1 && counted[!i])
            return bt_fail(err, BT_ARG,
                           "preference %llu of '%.100s' is one answer with a label, and "
                           "tune.preference compares two (set tune.preference=kto)",
                           (unsigned long long)d / 2 + 1, name);
    if (n[0] + n[1] > r->T) {
        if (r->too_long == BT_TOO_LONG_REFUSE)
            return bt_fail(err, BT_ARG,
                           "preference %llu of '%.100s' has %llu tokens, the chosen and the "
                           "rejected answer together, and a sequence %u (raise model.seq_len, or "
                           "set data.too_long=skip)",
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

typedef struct pair_span { /* the two documents of a pair */
    uint64_t first[2], n[2], counted[2];
} pair_span;

static pair_span pair_at(const bt_shard *s, uint64_t d) {
    const uint64_t *ends = bt_shard_document_ends(s), first = d ? ends[d - 1] : 0;
    pair_span p = {.first = {first, ends[d]}, .n = {ends[d] - first, ends[d + 1] - ends[d]}};
    for (int i = 0; i < 2; i++) p.counted[i] = targets_of(s, p.first[i], p.n[i]);
    return p;
}

/* Returns the length of a document before its first learned target. */
static uint64_t prompt_length(const bt_shard *s, uint64_t first, uint64_t n) {
    const uint64_t i = span_at(s, first + 1);
    if (!bt_shard_about(s)->has_spans || i == bt_shard_about(s)->n_spans) return 1;
    const uint64_t at = bt_shard_spans(s)[i].first;
    return at <= first + 1 ? 1 : at < first + n ? at - first : n;
}

/* Returns the length of the first answer of a pair that is learned, behind its prompt. */
static uint64_t answer_length(const bt_shard *s, const pair_span *q) {
    const int i = q->counted[0] ? 0 : 1;
    return q->n[i] - prompt_length(s, q->first[i], q->n[i]);
}

/* Adds the prompt of answer `which` of pair p with an answer of pair q, of at most `room` tokens. */
static bt_code put_mismatched(bt_row_set *r, const bt_shard *s, uint32_t shard, const pair_span *p,
                              int which, const pair_span *q, uint64_t room, bt_err *err) {
    const int other = q->counted[0] ? 0 : 1;
    const uint64_t n = prompt_length(s, p->first[which], p->n[which]), rest = answer_length(s, q),
                   answer = q->first[other] + q->n[other] - rest,
                   fits = rest < room - n ? rest : room - n;
    BT_TRY(add_piece(r, (bt_row_piece){p->first[which], shard, (uint32_t)n, 0, false}, 0, err));
    r->facts.documents--; /* the next piece is of the same document */
    return add_piece(
        r, (bt_row_piece){.first = answer, .shard = shard, .n = (uint32_t)fits, .joined = true}, 0,
        err);
}

/* Adds answer `which` of pair d as an example; q: the pair of the mismatched answer. */
static bt_code put_single(bt_row_set *r, const bt_shard *s, uint32_t shard, uint64_t d, int which,
                          const pair_span *q, const char *name, bt_err *err) {
    const pair_span p = pair_at(s, d);
    const uint64_t n = p.n[which], prompt = prompt_length(s, p.first[which], n);
    const bool mismatched = r->kind == BT_ROWS_MISMATCHED;
    uint64_t all = n + 1 + (mismatched ? prompt + answer_length(s, q) : 0);
    const uint64_t least = n + 1 + (mismatched ? prompt + 1 : 0);
    if (n > r->facts.longest) r->facts.longest = n;
    if (least > r->T && r->too_long == BT_TOO_LONG_REFUSE)
        return bt_fail(err, BT_ARG,
                       "preference %llu of '%.100s' needs %llu tokens, its answer%s, and a "
                       "sequence has %u (raise model.seq_len, or set data.too_long=skip)",
                       (unsigned long long)d / 2 + 1, name, (unsigned long long)least,
                       mismatched ? " and its prompt with another answer" : "", r->T);
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
    r->facts.documents--; /* the token in place of the other answer is none */
    r->facts.desirable += which == 0;
    r->facts.undesirable += which == 1;
    return mismatched ? put_mismatched(r, s, shard, &p, which, q, all - n - 1, err) : BT_OK;
}

static bool has_answer(const pair_span *p) { return p->counted[0] || p->counted[1]; }

static bt_code put_singles(bt_row_set *r, const bt_shard *s, uint32_t shard, uint64_t from,
                           uint64_t to, const char *name, bt_err *err) {
    uint64_t first = from;
    while (first + 1 < to) {
        const pair_span p = pair_at(s, first);
        if (has_answer(&p)) break;
        first += 2;
    }
    for (uint64_t d = from; d + 1 < to; d += 2) {
        const pair_span p = pair_at(s, d);
        if (!has_answer(&p)) {
            r->facts.empty++;
            continue;
        }
        uint64_t next = d + 2;
        pair_span q = p;
        for (; next + 1 < to; next += 2) {
            q = pair_at(s, next);
            if (has_answer(&q)) break;
        }
        if (next + 1 >= to) q = pair_at(s, first);
        for (int which = 0; which < 2; which++)
            if (p.counted[which]) BT_TRY(put_single(r, s, shard, d, which, &q, name, err));
    }
    return BT_OK;
}

static bt_code put_pieces(bt_row_set *r, const bt_shard *s, uint32_t shard, uint64_t first,
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
    if (r->kind >= BT_ROWS_SINGLES) return put_singles(r, s, shard, from, to, name, err);
    for (uint64_t d = from; pairs && d + 1 < to; d += 2)
        BT_TRY(put_pair(r, s, shard, d, name, err));
    for (uint64_t d = from; !pairs && d < to; d++) {
        uint64_t first = d ? ends[d - 1] : 0, n = ends[d] - first;
        if (n > r->facts.longest) r->facts.longest = n;
        if (n <= r->T) {
            BT_TRY(put_row_piece(r, s, shard, first, (uint32_t)n, err));
        } else if (count_learned(s, first, ends[d]) == n) {
            BT_TRY(put_pieces(r, s, shard, first, n, err));
        } else if (r->too_long == BT_TOO_LONG_SKIP) {
            r->facts.skipped++;
        } else if (r->too_long == BT_TOO_LONG_TRUNCATE) {
            r->facts.truncated++;
            BT_TRY(put_row_piece(r, s, shard, labelled ? ends[d] - r->T : first, r->T, err));
        } else {
            return bt_fail(err, BT_ARG,
                           "%s %llu of '%.100s' has %llu tokens, a sequence %u (raise "
                           "model.seq_len, or set data.too_long=skip or truncate)",
                           labelled ? "text" : "conversation", (unsigned long long)d + 1, name,
                           (unsigned long long)n, r->T);
        }
    }
    return BT_OK;
}

bt_code bt_row_set_finish(bt_row_set *r, bt_err *err) {
    if (r->n_rows) return BT_OK;
    return bt_fail(err, BT_NOTFOUND,
                   "the data has no document of which a token is learned (%llu left out as longer "
                   "than %u tokens)",
                   (unsigned long long)r->facts.skipped, r->T);
}

uint64_t bt_row_set_rows(const bt_row_set *r) { return r->n_rows; }
uint32_t bt_row_set_counted(const bt_row_set *r, uint64_t i) { return r->rows[i].counted; }
const bt_row_facts *bt_row_set_facts(const bt_row_set *r) { return &r->facts; }

const bt_row_piece *bt_row_set_pieces(const bt_row_set *r, uint64_t i, size_t *n) {
    *n = r->rows[i].n;
    return r->pieces + r->rows[i].first;
}

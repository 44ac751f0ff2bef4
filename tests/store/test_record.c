/* test_record.c - encoding and decoding of each kind of record, refusal of an invalid head or body, and the queue of
 * records with its limit in bytes. */
#include "store/record/record.h"
#include "store/record/ring.h"
#include "store_test.h"

#include <sys/eventfd.h>

typedef struct told {
    int calls;
    char text[2000];
} told;

static void append_told(told *t, const char *fmt, ...) {
    va_list ap;
    const size_t n = strlen(t->text);
    va_start(ap, fmt);
    vsnprintf(t->text + n, sizeof t->text - n, fmt, ap);
    va_end(ap);
}

static void on_ranks(void *ctx, const bt_rank_info *r, size_t n) {
    told *t = ctx;
    t->calls++;
    for (size_t i = 0; i < n; i++)
        append_told(t, "[%d %d %d %s %s %d %d %d %d]", r[i].rank, r[i].pid, r[i].threads, r[i].host,
                    r[i].isa, r[i].pp, r[i].dp_replicate, r[i].dp_shard, r[i].tp);
}
static void on_fact(void *ctx, const char *key, const char *value) {
    ((told *)ctx)->calls++;
    append_told(ctx, "%s=%s", key, value);
}
static void on_step(void *ctx, const bt_step_record *r) {
    ((told *)ctx)->calls++;
    append_told(ctx, "%lld %lld %g %g %d", (long long)r->step, (long long)r->wall_us, r->values[0],
                r->values[BT_MS_COUNT - 1], r->n_ranks);
    if (r->rank_values)
        append_told(ctx, " %g %g", r->rank_values[0], r->rank_values[r->n_ranks * BT_MR_COUNT - 1]);
}
static void on_rows(void *ctx, const bt_row_record *r) {
    const bt_scope_row *scope = &bt_scopes[r->scope];
    const bt_key *key = r->keys;
    ((told *)ctx)->calls++;
    append_told(ctx, "%s %lld", scope->name, (long long)r->step);
    for (size_t i = 0; i < r->n; i++) {
        append_told(ctx, " [");
        for (int k = 0; k < scope->n_keys; k++, key++) {
            if (scope->key[k].text)
                append_told(ctx, "%s ", key->s);
            else
                append_told(ctx, "%lld ", (long long)key->i);
        }
        append_told(ctx, "%g %g]", r->values[i * (size_t)scope->n],
                    r->values[(i + 1) * (size_t)scope->n - 1]);
    }
}
static void on_event(void *ctx, const bt_event *e) {
    ((told *)ctx)->calls++;
    append_told(ctx, "%s %lld %d %lld '%s' '%s'", bt_events[e->kind].name, (long long)e->step,
                e->rank, (long long)e->wall_us, e->title, e->body ? e->body : "NULL");
}
static void on_ckpt(void *ctx, const bt_ckpt_record *c) {
    ((told *)ctx)->calls++;
    append_told(ctx, "%lld %lld %s %lld %lld %s", (long long)c->step, (long long)c->wall_us,
                c->path, (long long)c->bytes, (long long)c->took_us, c->hash ? c->hash : "NULL");
}
static void on_result(void *ctx, const char *json) {
    ((told *)ctx)->calls++;
    append_told(ctx, "%s", json);
}

static bt_sink sink_of(told *t) {
    return (bt_sink){.ctx = t,
                     .ranks = on_ranks,
                     .fact = on_fact,
                     .step = on_step,
                     .rows = on_rows,
                     .event = on_event,
                     .checkpoint = on_ckpt,
                     .result = on_result};
}

static bool deliver_record(const bt_record_head *head, const void *data, told *t) {
    const bt_sink s = sink_of(t);
    *t = (told){.calls = 0};
    const bool sound = bt_record_deliver(head, data, &s);
    assert_int_equal(t->calls, sound);
    return sound;
}

static double layer_values[2 * BT_ML_COUNT], comm_values[BT_MC_COUNT];
static const bt_key layer_keys[] = {{.i = -1}, {.s = "attn_q"}, {.i = 2147483647}, {.s = ""}};
static const bt_key comm_keys[] = {{.i = 7}, {.s = "all_reduce"}, {.s = NULL}};

enum { KINDS = 11 };

static bt_record *example_of_kind(int i, bt_fake *f) {
    const bt_rank_info ranks[] = {{0, 11, 4, "host-a", "avx2", 1, 2, 3, 4},
                                  {1, 12, 8, "host-b", "amx", 5, 6, 7, 8}};
    bt_fake_step(f, 77, 3);
    f->r.wall_us = 123456;
    for (int k = 0; k < 2 * BT_ML_COUNT; k++) layer_values[k] = k;
    for (int k = 0; k < BT_MC_COUNT; k++) comm_values[k] = 10 + k;
    switch (i) {
    case 0: return bt_record_ranks(ranks, 2);
    case 1: return bt_record_fact("params", "1234567"); /* eight bytes with the terminator */
    case 2: return bt_record_fact("k", NULL);
    case 3: return bt_record_step(&f->r);
    case 4: f->r.n_ranks = 0; return bt_record_step(&f->r);
    case 5: return bt_record_rows(&(bt_row_record){BT_SCOPE_LAYER, 9, 2, layer_keys, layer_values});
    case 6: return bt_record_rows(&(bt_row_record){BT_SCOPE_COMM, 0, 1, comm_keys, comm_values});
    case 7:
        return bt_record_event(
            &(bt_event){BT_EVENT_COUNT - 1, 5, -2147483647 - 1, 99, "title", "{\"a\": 1}"});
    case 8: return bt_record_event(&(bt_event){0, -7, 2147483647, -1, NULL, NULL});
    case 9: return bt_record_ckpt(&(bt_ckpt_record){10, 1111, "/a/b", 2222, 3333, "00ff00ff"});
    default: return bt_record_result("{}");
    }
}

static const struct {
    bt_rec_kind kind;
    int64_t step;
    uint32_t bytes, rows, rank_rows;
    const char *says;
} want[KINDS] = {{BT_REC_RANKS, -1, 2 * ((sizeof(bt_rank_info) + 7) / 8 * 8), 2, 0,
                  "[0 11 4 host-a avx2 1 2 3 4][1 12 8 host-b amx 5 6 7 8]"},
                 {BT_REC_FACT, -1, 8 + 8 + 8 + 8, 0, 0, "params=1234567"},
                 {BT_REC_FACT, -1, 8 + 8 + 8, 0, 0, "k="},
                 {BT_REC_STEP, 77, 8 + 8 * BT_MS_COUNT + 3 * 8 * BT_MR_COUNT, 0, 3, NULL},
                 {BT_REC_STEP, 77, 8 + 8 * BT_MS_COUNT, 0, 0, NULL},
                 {BT_REC_ROWS, 9, 8 + 2 * 8 * BT_ML_COUNT + 8 + 8 + 8 + 8 + 8 + 8, 2, 0, NULL},
                 {BT_REC_ROWS, 0, 8 + 8 * BT_MC_COUNT + 8 + 8 + 16 + 8 + 8, 1, 0, NULL},
                 {BT_REC_EVENT, 5, 3 * 8 + 8 + 8 + 8 + 16, 0, 0, NULL},
                 {BT_REC_EVENT, -1, 3 * 8 + 8 + 8 + 8, 0, 0, NULL},
                 {BT_REC_CKPT, 10, 3 * 8 + 8 + 8 + 8 + 16, 0, 0, "10 1111 /a/b 2222 3333 00ff00ff"},
                 {BT_REC_RESULT, -1, 8 + 8, 0, 0, "{}"}};

static void text_of_record(int i, char out[500]) {
    switch (i) {
    case 3:
        snprintf(out, 500, "77 123456 %g %g 3 %g %g", bt_truth(77, 0),
                 bt_truth(77, BT_MS_COUNT - 1), bt_rank_truth(77, 0, 0),
                 bt_rank_truth(77, 2, BT_MR_COUNT - 1));
        break;
    case 4:
        snprintf(out, 500, "77 123456 %g %g 0", bt_truth(77, 0), bt_truth(77, BT_MS_COUNT - 1));
        break;
    case 5:
        snprintf(out, 500, "layer 9 [-1 attn_q 0 %d] [2147483647  %d %d]", BT_ML_COUNT - 1,
                 BT_ML_COUNT, 2 * BT_ML_COUNT - 1);
        break;
    case 6: snprintf(out, 500, "comm 0 [7 all_reduce  10 %d]", 9 + BT_MC_COUNT); break;
    case 7:
        snprintf(out, 500, "%s 5 -2147483648 99 'title' '{\"a\": 1}'",
                 bt_events[BT_EVENT_COUNT - 1].name);
        break;
    case 8: snprintf(out, 500, "%s -1 2147483647 -1 '' 'NULL'", bt_events[0].name); break;
    default: snprintf(out, 500, "%s", want[i].says);
    }
}

static void each_kind_is_restored(void **state) {
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        bt_fake f;
        told t;
        char says[500];
        bt_record *r = example_of_kind(i, &f);
        assert_non_null(r);
        assert_null(r->next);
        if (r->head.kind != want[i].kind || r->head.step != want[i].step ||
            r->head.bytes != want[i].bytes || r->head.rows != want[i].rows ||
            r->head.rank_rows != want[i].rank_rows)
            fail_msg("example %d: kind %u, step %lld, %u bytes, %u and %u rows", i, r->head.kind,
                     (long long)r->head.step, r->head.bytes, r->head.rows, r->head.rank_rows);
        text_of_record(i, says);
        assert_true(deliver_record(&r->head, r->data, &t));
        assert_string_equal(t.text, says);
        /* A sink need not implement every callback. */
        assert_true(bt_record_deliver(&r->head, r->data, &(bt_sink){.ctx = NULL}));
        bt_records_free(r);
    }
}

/* Refuses records that are shorter or longer than their head states, or that state another kind or number of rows. */
static void invalid_records_are_refused(void **state) {
    (void)state;
    for (int i = 0; i < KINDS; i++) {
        bt_fake f;
        told t;
        bt_record *r = example_of_kind(i, &f);
        const bt_record_head whole = r->head;
        unsigned char *copy = malloc(whole.bytes + 16);
        assert_non_null(copy);
        for (uint32_t n = 0; n < whole.bytes; n++) {
            bt_record_head h = whole;
            /* The buffer has exactly n + 1 bytes, so that a sanitizer detects a read beyond it. */
            unsigned char *cut = malloc(n + 1);
            memcpy(cut, r->data, n);
            h.bytes = n;
            if (deliver_record(&h, cut, &t)) fail_msg("example %d with %u bytes", i, n);
            free(cut);
        }
        memcpy(copy, r->data, whole.bytes);
        memset(copy + whole.bytes, 0, 16);
        for (uint32_t more = 1; more <= 16; more++) {
            bt_record_head h = whole;
            h.bytes += more;
            if (deliver_record(&h, copy, &t)) fail_msg("example %d with %u bytes more", i, more);
        }
        for (uint32_t kind = 0; kind <= BT_REC_COUNT + 1; kind += BT_REC_COUNT) {
            bt_record_head h = whole;
            h.kind = kind;
            assert_false(deliver_record(&h, r->data, &t));
        }
        if (whole.kind == BT_REC_RANKS || whole.kind == BT_REC_ROWS || whole.kind == BT_REC_STEP) {
            const int64_t others[] = {-1, 1, 1 << 28, UINT32_MAX - 1};
            for (size_t k = 0; k < 4; k++) {
                bt_record_head h = whole;
                uint32_t *n = whole.kind == BT_REC_STEP ? &h.rank_rows : &h.rows;
                *n = (uint32_t)(*n + others[k]);
                assert_false(deliver_record(&h, r->data, &t));
            }
        }
        if (whole.kind == BT_REC_ROWS ||
            whole.kind == BT_REC_STEP) { /* Records of these kinds contain a step. */
            bt_record_head h = whole;
            h.step = -1;
            assert_false(deliver_record(&h, r->data, &t));
            h.step = 0;
            assert_true(deliver_record(&h, r->data, &t));
        }
        free(copy);
        bt_records_free(r);
    }
}

/* Replaces one number of the head by a value outside its limits. */
static void numbers_have_limits(void **state) {
    (void)state;
    enum { LAYER_KEY = 8 + 2 * 8 * BT_ML_COUNT };
    static const struct {
        int example;
        size_t at;
        int64_t value;
        bool sound;
    } rows[] = {
        {7, 0, 0, true},
        {7, 0, BT_EVENT_COUNT - 1, true},
        {7, 0, BT_EVENT_COUNT, false},
        {7, 0, -1, false},
        {7, 0, INT64_C(1) << 32, false},
        {7, 8, INT32_MAX, true},
        {7, 8, (int64_t)INT32_MAX + 1, false},
        {7, 8, (int64_t)INT32_MIN - 1, false},
        {7, 16, INT64_MIN, true},
        {5, 0, BT_SCOPE_LAYER, true},
        {5, 0, BT_SCOPE_STEP, false}, /* a scope without rows */
        {5, 0, BT_SCOPE_RANK, false},
        {5, 0, BT_SCOPE_COUNT, false},
        {5, 0, -1, false},
        {5, LAYER_KEY, 0, true},
        {5, LAYER_KEY, -2, false},
        {5, LAYER_KEY, (int64_t)INT32_MAX + 1, false},
        {5, LAYER_KEY + 8, 0, false}, /* a text key that is invalid */
        {5, LAYER_KEY + 8, 6, false}, /* a text key whose terminator is misplaced */
        {5, LAYER_KEY + 8, -1, false},
        {5, LAYER_KEY + 8, INT64_MAX, false},
        {5, LAYER_KEY + 8, INT64_MIN, false},
        {1, 0, 0, false},
        {1, 0, 6, false},
        {1, 16, 0, false},
        {1, 16, 7, false},
        {1, 16, 9, false},
        {1, 16, 8, true},
        {9, 0, INT64_MIN, true},
        {10, 0, 0, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_fake f;
        told t;
        bt_record *r = example_of_kind(rows[i].example, &f);
        memcpy(r->data + rows[i].at, &rows[i].value, 8);
        if (deliver_record(&r->head, r->data, &t) != rows[i].sound) fail_msg("row %zu", i);
        bt_records_free(r);
    }
    /* Names of hosts are terminated within their fields. */
    bt_rank_info full;
    told t;
    char says[200];
    memset(&full, 'x', sizeof full);
    full.rank = full.pid = full.threads = full.pp = full.dp_replicate = full.dp_shard = full.tp = 0;
    bt_record *r = bt_record_ranks(&full, 1);
    assert_true(deliver_record(&r->head, r->data, &t));
    memset(says, 'x', sizeof says);
    snprintf(says, sizeof says, "[0 0 0 %.*s %.*s 0 0 0 0]", BT_HOST_MAX - 1, full.host, 31,
             full.isa);
    assert_string_equal(t.text, says);
    bt_records_free(r);
}

static void rank_values_are_dropped(void **state) {
    (void)state;
    bt_fake f;
    told t;
    char says[500];
    bt_record *r = example_of_kind(3, &f);
    assert_int_equal(bt_record_drop_ranks(r), 3);
    assert_int_equal(r->head.bytes, want[4].bytes);
    assert_int_equal(r->head.rank_rows, 0);
    text_of_record(4, says);
    assert_true(deliver_record(&r->head, r->data, &t));
    assert_string_equal(t.text, says);
    assert_int_equal(bt_record_drop_ranks(r), 0);
    assert_int_equal(r->head.bytes, want[4].bytes);
    bt_records_free(r);
    /* Bytes after a text are zero. */
    r = bt_record_fact("ab", "c");
    static const unsigned char bytes[32] = {3, 0, 0, 0, 0, 0, 0, 0, 'a', 'b', 0, 0,  0,
                                            0, 0, 0, 2, 0, 0, 0, 0, 0,   0,   0, 'c'};
    assert_int_equal(r->head.bytes, 32);
    assert_memory_equal(r->data, bytes, 32);
    bt_records_free(r);
    assert_true(bt_record_mark() == bt_record_mark() && bt_record_mark() != 0);
}

static size_t record_bytes(const bt_record *r) { return sizeof *r + r->head.bytes; }

static size_t sum_of_bytes(const bt_record *r) {
    size_t n = 0;
    for (; r; r = r->next) n += record_bytes(r);
    return n;
}

static bt_record *record_of_kind(bt_rec_kind kind, uint32_t bytes, int64_t step, uint32_t rows) {
    bt_record *r = bt_record_empty(
        &(bt_record_head){.kind = kind, .bytes = bytes, .step = step, .rows = rows});
    assert_non_null(r);
    memset(r->data, 0, bytes);
    return r;
}

/* Returns the steps of a list as "1 2 3 ". */
static const char *steps_in_list(const bt_record *r) {
    static char out[400];
    out[0] = '\0';
    for (; r; r = r->next)
        snprintf(out + strlen(out), sizeof out - strlen(out), "%lld ", (long long)r->head.step);
    return out;
}

static void records_are_taken_in_order(void **state) {
    (void)state;
    bt_queue q;
    const size_t one = sizeof(bt_record) + 80;
    assert_true(bt_queue_init(&q, 1 << 20));
    assert_int_equal(q.wake_fd, -1);
    assert_null(bt_queue_take(&q, 1000));
    assert_true(bt_queue_wait_drained(&q, 0));
    for (int64_t i = 1; i <= 5; i++) bt_queue_push(&q, record_of_kind(BT_REC_FACT, 80, i, 0));
    assert_int_equal(q.bytes, 5 * one);
    assert_false(bt_queue_wait_drained(&q, 0));
    /* Takes at most this many bytes, but at least one record. */
    bt_record *a = bt_queue_take(&q, 2 * one);
    assert_string_equal(steps_in_list(a), "1 2 ");
    assert_true(q.bytes == 3 * one && q.in_flight == 2);
    bt_queue_requeue(&q, a);
    assert_true(q.bytes == 5 * one && q.in_flight == 0);
    a = bt_queue_take(&q, 2 * one + 1);
    assert_string_equal(steps_in_list(a), "1 2 3 ");
    bt_queue_done(&q);
    assert_true(q.in_flight == 0 && q.bytes == 2 * one);
    bt_records_free(a);
    a = bt_queue_take(&q, 0);
    assert_string_equal(steps_in_list(a), "4 ");
    bt_records_free(a);
    a = bt_queue_take(&q, SIZE_MAX);
    assert_string_equal(steps_in_list(a), "5 ");
    assert_true(q.bytes == 0 && !q.head && !q.tail && q.in_flight == 1);
    assert_false(bt_queue_wait_drained(&q, 1000)); /* The taken record has not been acknowledged. */
    bt_queue_push(&q, record_of_kind(BT_REC_FACT, 80, 6, 0));
    bt_queue_requeue(&q, a);
    assert_string_equal(steps_in_list(q.head), "5 6 ");
    bt_queue_push(&q, record_of_kind(BT_REC_FACT, 80, 7, 0));
    assert_string_equal(steps_in_list(q.head), "5 6 7 ");
    assert_int_equal(q.tail->head.step, 7);
    bt_queue_requeue(&q, NULL);
    a = bt_queue_take(&q, SIZE_MAX);
    bt_queue_requeue(&q, a); /* into an empty queue */
    bt_queue_push(&q, record_of_kind(BT_REC_FACT, 80, 8, 0));
    assert_string_equal(steps_in_list(q.head), "5 6 7 8 ");
    assert_true(q.bytes == sum_of_bytes(q.head));
    a = bt_queue_take(&q, SIZE_MAX);
    bt_records_free(a);
    bt_queue_done(&q);
    assert_true(bt_queue_wait_drained(&q, 0));
    assert_int_equal(bt_queue_dropped(&q), 0);
    bt_queue_push(&q, NULL); /* The allocation of a record failed. */
    assert_int_equal(bt_queue_dropped(&q), 1);
    bt_queue_push(&q, record_of_kind(BT_REC_FACT, 80, 9, 0));
    bt_queue_close(&q);
    assert_true(!q.head && !q.tail && q.bytes == 0 && q.closed && !q.sleeping);
    bt_queue_push(&q, record_of_kind(BT_REC_FACT, 80, 9, 0));
    assert_true(!q.head && q.bytes == 0);
    assert_int_equal(bt_queue_dropped(&q), 1);
    bt_queue_release(&q);
    assert_int_equal(q.wake_fd, -1);
}

/* Drops the oldest rows of samples and of ranks until at most seven eighths of the queue are used; steps and facts are
 * kept. */
static void a_full_queue_drops_the_oldest_samples(void **state) {
    (void)state;
    bt_queue q;
    bt_fake f;
    const size_t row = sizeof(bt_record) + 1000, fact = sizeof(bt_record) + 40;
    assert_true(bt_queue_init(&q, 8 * row));
    bt_queue_push(&q, record_of_kind(BT_REC_FACT, 40, 0, 0));
    for (int64_t i = 1; i <= 7; i++) bt_queue_push(&q, record_of_kind(BT_REC_ROWS, 1000, i, 3));
    assert_int_equal(q.bytes, 7 * row + fact); /* exactly full */
    assert_int_equal(bt_queue_dropped(&q), 0);
    bt_queue_push(&q, record_of_kind(BT_REC_ROWS, 1000, 8, 3));
    /* Dropping ends at seven eighths of the capacity. */
    assert_string_equal(steps_in_list(q.head), "0 3 4 5 6 7 8 ");
    assert_int_equal(bt_queue_dropped(&q), 6);
    assert_int_equal(q.bytes, 6 * row + fact);
    assert_true(q.bytes == sum_of_bytes(q.head) && q.tail->head.step == 8);
    bt_record *all = bt_queue_take(&q, SIZE_MAX);
    bt_records_free(all);
    bt_queue_done(&q);
    /* A step loses its rank rows and keeps its own values. */
    bt_record *r = bt_record_step(bt_fake_step(&f, 10, 16));
    const size_t whole = record_bytes(r), bare = whole - 16 * 8 * BT_MR_COUNT;
    q.max_bytes = 4 * whole;
    bt_queue_push(&q, r);
    for (int64_t i = 11; i <= 14; i++)
        bt_queue_push(&q, bt_record_step(bt_fake_step(&f, i, i == 12 ? 0 : 16)));
    assert_string_equal(steps_in_list(q.head), "10 11 12 13 14 ");
    assert_true(q.bytes == sum_of_bytes(q.head) && q.tail->head.step == 14);
    assert_int_equal(q.head->head.rank_rows, 0);
    assert_int_equal(record_bytes(q.head), bare);
    assert_int_equal(q.tail->head.rank_rows, 16);
    assert_true(q.bytes <= q.max_bytes - q.max_bytes / 8);
    const uint64_t dropped = bt_queue_dropped(&q);
    assert_true(dropped > 6 && (dropped - 6) % 16 == 0);
    told t;
    assert_true(deliver_record(&q.head->head, q.head->data, &t));
    /* Records of kinds that are never dropped remain, even above the limit and after a requeue. */
    q.max_bytes = 100;
    all = bt_queue_take(&q, SIZE_MAX);
    bt_queue_requeue(&q, all);
    assert_string_equal(steps_in_list(q.head), "10 11 12 13 14 ");
    for (const bt_record *x = q.head; x; x = x->next) assert_int_equal(x->head.rank_rows, 0);
    assert_true(q.bytes == sum_of_bytes(q.head) && q.bytes > q.max_bytes);
    bt_queue_push(&q, record_of_kind(BT_REC_ROWS, 1000, 15, 5)); /* This row does not fit. */
    assert_string_equal(steps_in_list(q.head), "10 11 12 13 14 ");
    assert_int_equal(q.tail->head.step, 14);
    bt_queue_push(&q, record_of_kind(BT_REC_FACT, 40, 16, 0));
    assert_int_equal(q.tail->head.step, 16);
    bt_queue_release(&q);
}

/* A waiting reader is woken by a condition or, if the queue has one, by an eventfd. */
static void the_reader_is_woken(void **state) {
    (void)state;
    bt_queue q;
    eventfd_t n = 0;
    assert_true(bt_queue_init(&q, 1 << 20));
    q.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    assert_true(q.wake_fd >= 0);
    bt_queue_push(&q, record_of_kind(BT_REC_FACT, 8, 1, 0));
    /* The eventfd is written only while a reader sleeps. */
    assert_int_equal(eventfd_read(q.wake_fd, &n), -1);
    q.sleeping = true;
    bt_queue_push(&q, record_of_kind(BT_REC_FACT, 8, 2, 0));
    assert_int_equal(eventfd_read(q.wake_fd, &n), 0);
    assert_int_equal(n, 1);
    q.sleeping = false;
    bt_queue_set(&q, &q.flush_requested, true);
    assert_true(q.flush_requested && !q.stop);
    assert_int_equal(eventfd_read(q.wake_fd, &n), 0);
    bt_queue_set(&q, &q.flush_requested, false);
    assert_false(q.flush_requested);
    close(q.wake_fd);
    bt_queue_release(&q);
}

/* Each call of the queue's sink appends a record of its kind to the queue and to the ring. */
static void the_sink_of_a_queue(void **state) {
    const bt_tmp *t = *state;
    bt_queue q;
    bt_sink s;
    bt_fake f;
    bt_ring *ring;
    bt_record *kept;
    int attempt;
    char path[128];
    static const bt_rec_kind kinds[] = {BT_REC_RANKS, BT_REC_FACT, BT_REC_STEP,  BT_REC_ROWS,
                                        BT_REC_EVENT, BT_REC_CKPT, BT_REC_RESULT};
    snprintf(path, sizeof path, "%s/ring", t->dir);
    OK(bt_ring_create(&ring, path, 2, BT_RING_BYTES, err));
    assert_true(bt_queue_init(&q, 1 << 20));
    q.ring = ring;
    bt_queue_sink(&q, &s);
    s.ranks(s.ctx, (bt_rank_info[]){{.rank = 3}}, 1);
    s.fact(s.ctx, "key", "value");
    s.step(s.ctx, bt_fake_step(&f, 4, 2));
    s.rows(s.ctx, &(bt_row_record){BT_SCOPE_COMM, 0, 1, comm_keys, comm_values});
    s.event(s.ctx, &(bt_event){.title = "x"});
    s.checkpoint(s.ctx, &(bt_ckpt_record){.path = "p"});
    s.result(s.ctx, "{}");
    OK(bt_ring_read(path, &attempt, &kept, err));
    size_t i = 0;
    for (const bt_record *r = q.head, *k = kept; r; r = r->next, k = k->next, i++) {
        assert_true(i < 7 && r->head.kind == kinds[i] && k);
        assert_memory_equal(&r->head, &k->head, sizeof r->head);
        assert_memory_equal(r->data, k->data, r->head.bytes);
    }
    assert_int_equal(i, 7);
    bt_records_free(kept);
    bt_queue_release(&q);
    bt_ring_close(ring);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_kind_is_restored),
                                       cmocka_unit_test(invalid_records_are_refused),
                                       cmocka_unit_test(numbers_have_limits),
                                       cmocka_unit_test(rank_values_are_dropped),
                                       cmocka_unit_test(records_are_taken_in_order),
                                       cmocka_unit_test(a_full_queue_drops_the_oldest_samples),
                                       cmocka_unit_test(the_reader_is_woken),
                                       cmocka_unit_test_setup_teardown(the_sink_of_a_queue,
                                                                       bt_tmp_make, bt_tmp_drop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

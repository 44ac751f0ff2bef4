/* test_pass_order.c - order of the forward and backward passes of pipeline stages: each pass occurs once, messages
 * arrive before they are needed, and the number of kept activations follows the formula. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/parallel/schedule/pass_order.h"

enum { STAGES = 9, CHUNKS = 5, MICROS = 4 * STAGES, VIRTUAL = STAGES * CHUNKS, DEPTH = 2 };

typedef struct shape {
    int stages, chunks;
    int64_t micros;
} shape;

static void for_all_shapes(void (*check)(const shape *)) {
    for (int n = 1; n < STAGES; n++)
        for (int v = 1; v < CHUNKS; v++)
            for (int64_t m = 1; m <= 4 * n; m++)
                if (v == 1 || m % n == 0) check(&(shape){n, v, m});
}

static bt_pass_order order_of(const shape *s, int stage) {
    return (bt_pass_order){s->stages, stage, s->chunks, s->micros};
}

static void check_each_pass_once(const shape *s) {
    for (int k = 0; k < s->stages; k++) {
        static bool done[2][CHUNKS][MICROS];
        const bt_pass_order o = order_of(s, k);
        memset(done, 0, sizeof done);
        assert_int_equal(bt_pass_count(&o), 2 * s->chunks * s->micros);
        for (int64_t i = 0; i < bt_pass_count(&o); i++) {
            const bt_pass p = bt_pass_at(&o, i);
            assert_in_range(p.chunk, 0, s->chunks - 1);
            assert_in_range(p.micro, 0, s->micros - 1);
            assert_false(done[p.backward][p.chunk][p.micro]);
            done[p.backward][p.chunk][p.micro] = true;
            if (p.backward) assert_true(done[0][p.chunk][p.micro]);
            /* Chunks are in order, and so are the micro-batches of a chunk. */
            const int before = p.backward ? p.chunk + 1 : p.chunk - 1;
            if (before >= 0 && before < s->chunks) assert_true(done[p.backward][before][p.micro]);
            if (p.micro > 0) assert_true(done[p.backward][p.chunk][p.micro - 1]);
        }
    }
}

static void check_last_stage_order(const shape *s) {
    const bt_pass_order o = order_of(s, s->stages - 1);
    for (int64_t i = 0; i < bt_pass_count(&o); i++) {
        const bt_pass p = bt_pass_at(&o, i);
        if (p.backward || p.chunk < s->chunks - 1) continue;
        const bt_pass next = bt_pass_at(&o, i + 1);
        assert_true(next.backward && next.chunk == p.chunk && next.micro == p.micro);
    }
}

/* 1F1B keeps the activations of passes whose gradients have not returned: 2 (n-1-s) + (v-1) n + 1 passes for v
 * chunks. */
static void check_kept_activations(const shape *s) {
    for (int k = 0; k < s->stages; k++) {
        const bt_pass_order o = order_of(s, k);
        const int64_t behind = s->stages - 1 - k, all = s->chunks * s->micros,
                      want = s->chunks == 1 ? behind + 1
                                            : 2 * behind + (s->chunks - 1) * s->stages + 1;
        int64_t kept = 0, most = 0, begun = 0, lowest = 0, micros = 0;
        for (int64_t i = 0; i < bt_pass_count(&o); i++) {
            const bt_pass p = bt_pass_at(&o, i);
            kept += p.backward ? -1 : 1;
            if (kept > most) most = kept;
            if (!p.backward && p.chunk == 0) begun = p.micro + 1;
            if (begun - lowest > micros) micros = begun - lowest;
            if (p.backward && p.chunk == 0) lowest = p.micro + 1;
        }
        assert_int_equal(kept, 0);
        assert_int_equal(most, want < all ? want : all);
        assert_int_equal(bt_passes_in_flight(&o), most);
        assert_int_equal(bt_micros_in_flight(&o), micros);
    }
}

typedef struct channel { /* messages from one stage to a neighbour */
    int64_t sent, taken, expected;
} channel;

typedef struct machine {
    shape s;
    bool forward_only;
    int64_t at[STAGES];                /* number of completed passes */
    channel way[2][STAGES];            /* indexed by the receiving stage */
    int64_t tables_sent, tables_taken; /* embedding gradients of the head, one per micro-batch */
} machine;

/* Each channel has two receives posted in advance and at most two messages that wait to be sent. */
static bool may_send(const channel *c) { return c->sent - DEPTH < c->taken + DEPTH; }

static bt_pass next_pass(const machine *m, int stage) {
    const bt_pass_order o = order_of(&m->s, stage);
    return m->forward_only ? bt_pass_forward(&o, m->at[stage]) : bt_pass_at(&o, m->at[stage]);
}

static bool run_one_pass(machine *m, int stage) {
    const shape *s = &m->s;
    if (m->at[stage] == (m->forward_only ? 1 : 2) * s->chunks * s->micros) return false;
    const bt_pass p = next_pass(m, stage);
    const int virtual = p.chunk * s->stages + stage, last = s->stages * s->chunks - 1,
              from = p.backward ? last : 0, to = last - from;
    channel *in = &m->way[p.backward][stage],
            *out = &m->way[p.backward][(stage + (p.backward ? s->stages - 1 : 1)) % s->stages];
    const bool ties = p.backward && s->chunks > 1 && s->stages > 1;
    /* Messages are received in the order in which the sender sends them. */
    if (virtual != from && in->sent == in->taken) return false;
    if (virtual != to && !may_send(out)) return false;
    /* The first stage receives an embedding gradient; the last stage has at most as many in flight as there are
     * stages. */
    if (ties && virtual == 0 && m->tables_sent == p.micro) return false;
    if (ties && virtual == last && p.micro - s->stages >= m->tables_taken) return false;
    if (virtual != from) in->taken++;
    if (virtual != to) out->sent++;
    if (ties && virtual == last) m->tables_sent++;
    if (ties && virtual == 0) m->tables_taken++;
    m->at[stage]++;
    return true;
}

static void run_all_passes(const shape *s, bool forward_only) {
    machine m = {.s = *s, .forward_only = forward_only};
    for (bool moved = true; moved;) {
        moved = false;
        for (int k = 0; k < s->stages; k++)
            while (run_one_pass(&m, k)) moved = true;
    }
    for (int k = 0; k < s->stages; k++)
        if (m.at[k] != (forward_only ? 1 : 2) * s->chunks * s->micros)
            fail_msg("%d stages, %d chunks, %d micro-batches: stage %d stops after %d passes",
                     s->stages, s->chunks, (int)s->micros, k, (int)m.at[k]);
}

static void check_no_deadlock(const shape *s) { run_all_passes(s, false); }

/* Each stage receives in the order in which its neighbour sends: the n-th message in a direction has the same
 * micro-batch on both sides. */
static void check_message_order(const shape *s) {
    const int last = s->stages * s->chunks - 1;
    for (int k = 0; k < s->stages; k++) {
        for (int back = 0; back < 2; back++) {
            const int before = (k + (back ? 1 : s->stages - 1)) % s->stages;
            const bt_pass_order here = order_of(s, k), there = order_of(s, before);
            int64_t j = 0;
            for (int64_t i = 0; i < bt_pass_count(&here); i++) {
                const bt_pass p = bt_pass_at(&here, i);
                const int at = p.chunk * s->stages + k;
                if (p.backward != back || at == (back ? last : 0)) continue;
                bt_pass q;
                int from;
                do {
                    q = bt_pass_at(&there, j++);
                    from = q.chunk * s->stages + before;
                } while (q.backward != back || from == (back ? 0 : last));
                assert_int_equal(from, back ? at + 1 : at - 1);
                assert_int_equal(q.micro, p.micro);
            }
        }
    }
}

static void each_pass_occurs_once(void **state) {
    (void)state, for_all_shapes(check_each_pass_once);
}
static void the_last_stage_runs_forward_and_backward_at_once(void **state) {
    (void)state, for_all_shapes(check_last_stage_order);
}
static void kept_activations_of_all_shapes(void **state) {
    (void)state, for_all_shapes(check_kept_activations);
}
static void passes_end_without_deadlock(void **state) {
    (void)state, for_all_shapes(check_no_deadlock);
}
static void messages_match_on_both_sides(void **state) {
    (void)state, for_all_shapes(check_message_order);
}

/* An evaluation may have any number of micro-batches. */
static void evaluations_end_without_deadlock(void **state) {
    (void)state;
    for (int n = 1; n < STAGES; n++)
        for (int v = 1; v < CHUNKS; v++)
            for (int64_t m = 1; m <= 3 * n; m++) run_all_passes(&(shape){n, v, m}, true);
}

/* Narayanan et al. 2021, figure 4: four stages of two chunks, eight micro-batches. */
static void first_passes_are_those_of_the_paper(void **state) {
    (void)state;
    const bt_pass_order o = {4, 0, 2, 8};
    static const struct {
        int chunk, micro;
    } forwards[] = {{0, 0}, {0, 1}, {0, 2}, {0, 3}, {1, 0}, {1, 1},
                    {1, 2}, {1, 3}, {0, 4}, {0, 5}, {0, 6}};
    for (int i = 0; i < 11; i++) {
        const bt_pass p = bt_pass_at(&o, i);
        assert_true(!p.backward && p.chunk == forwards[i].chunk && p.micro == forwards[i].micro);
    }
    const bt_pass b = bt_pass_at(&o, 11);
    assert_true(b.backward && b.chunk == 1 && b.micro == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_pass_occurs_once),
        cmocka_unit_test(the_last_stage_runs_forward_and_backward_at_once),
        cmocka_unit_test(kept_activations_of_all_shapes),
        cmocka_unit_test(messages_match_on_both_sides),
        cmocka_unit_test(passes_end_without_deadlock),
        cmocka_unit_test(evaluations_end_without_deadlock),
        cmocka_unit_test(first_passes_are_those_of_the_paper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

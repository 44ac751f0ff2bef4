/* test_slices.c - the layers of a pipeline's stages: each is in one stage, in order, as evenly distributed as the head
 * permits; the tensors of a slice and its chunks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/model/shape/params.h"

enum { LAYERS = 33, STAGES = 9, CHUNKS = 5 };

static bt_model_cfg shape_of_layers(const char *preset, int layers) {
    bt_model_cfg c = bt_preset_find(preset)->model;
    c.L = layers;
    return c;
}

static bt_model_slice slice_of(int stages, int stage, int chunks) {
    return (bt_model_slice){
        .tp_size = 1, .pp_stage = stage, .pp_size = stages, .virtual_stages = chunks};
}

/* Virtual stages in order contain all layers in order, and none is empty. */
static void check_order(const bt_model_cfg *c, int stages, int chunks) {
    int next = 0, most = 0, least = c->L;
    for (int k = 0; k < chunks; k++) {
        for (int s = 0; s < stages; s++) {
            const bt_layer_run run = bt_slice_chunk(c, slice_of(stages, s, chunks), k);
            assert_int_equal(run.first, next);
            assert_true(run.n >= 1);
            next += run.n;
        }
    }
    assert_int_equal(next, c->L);
    /* for the stages without a head */
    for (int s = 0; s + 1 < stages; s++) {
        const int n = bt_slice_layers(c, slice_of(stages, s, chunks));
        most = n > most ? n : most;
        least = n < least ? n : least;
    }
    assert_true(stages == 1 || most - least <= chunks);
    assert_true(chunks > 1 || stages == 1 || most - least <= 1);
}

static void layers_are_distributed_in_order(void **state) {
    (void)state;
    for (int L = 1; L < LAYERS; L++) {
        const bt_model_cfg small = shape_of_layers("small", L),
                           large = shape_of_layers("bitnet-2b4t", L);
        for (int n = 1; n < STAGES; n++)
            for (int v = 1; v < CHUNKS && (n == 1 || n * v <= L); v++)
                check_order(&small, n, n > 1 ? v : 1), check_order(&large, n, n > 1 ? v : 1);
    }
}

/* The head of bitnet-2b4t costs about as much as five of its layers. */
static void the_last_stage_has_fewer_layers(void **state) {
    (void)state;
    const bt_model_cfg c = shape_of_layers("bitnet-2b4t", 30);
    for (int v = 1; v <= 2; v++) {
        const int first = bt_slice_layers(&c, slice_of(4, 0, v)),
                  last = bt_slice_layers(&c, slice_of(4, 3, v));
        assert_in_range(first - last, 3, 6);
    }
    assert_int_equal(bt_slice_layers(&c, slice_of(15, 14, 2)), 2);
}

static void tensors_have_their_numbers_in_the_model(void **state) {
    (void)state;
    bt_err err = BT_ERR_INIT;
    bt_params whole, p;
    const bt_model_cfg c = shape_of_layers("nano", 7);
    assert_int_equal(bt_params_init(&whole, &c, (bt_model_slice){.tp_size = 1}, &err), BT_OK);
    for (int v = 1; v <= 3; v++) {
        size_t found = 0;
        for (int s = 0; s < 2; s++) {
            const bt_model_slice part = slice_of(2, s, v);
            assert_int_equal(bt_params_init(&p, &c, part, &err), BT_OK);
            assert_true(p.whole_n == whole.n && p.hash == whole.hash);
            for (size_t i = 0; i < p.n; i++)
                assert_string_equal(p.tensors[i].name, whole.tensors[p.tensors[i].number].name);
            found += p.n;
            /* The chunks divide the flat array, and each contains its layers. */
            size_t at = 0;
            for (int k = 0; k < v; k++) {
                const bt_range r = bt_params_chunk(&p, &c, part, k);
                const bt_layer_run run = bt_slice_chunk(&c, part, k);
                assert_int_equal(r.begin, at);
                at = r.end;
                for (size_t i = 0; i < p.n; i++) {
                    const bt_tensor *t = &p.tensors[i];
                    if (t->layer < run.first || t->layer >= run.first + run.n) continue;
                    assert_true(t->offset >= r.begin && t->offset + t->count <= r.end);
                }
            }
            assert_int_equal(at, p.total);
            bt_params_release(&p);
        }
        assert_int_equal(found, whole.n);
    }
    bt_params_release(&whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_distributed_in_order),
        cmocka_unit_test(the_last_stage_has_fewer_layers),
        cmocka_unit_test(tensors_have_their_numbers_in_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

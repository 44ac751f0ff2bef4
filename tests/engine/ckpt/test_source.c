/* test_source.c - slices are assembled from sections: random divisions of a tensor into sections and random slices,
 * contiguous and in blocks of columns, compared with a plain search of every element; errors for missing elements and
 * wrong shapes or types; each section is read once. */
#include "engine/ckpt/section_source.h"
#include "tests/engine/ckpt/ckpt_world.h"
#include "tests/message.h"

enum { ELEMS = 120, MOST_SECTIONS = 40, DRAWS = 3000 };

static uint64_t drawn;
static uint64_t draw_under(uint64_t below) { return bt_rng_u64(5, 1, drawn++) % below; }

typedef struct fake_source {
    ckpt_source from; /* must be the first member */
    ckpt_section sections[MOST_SECTIONS];
    size_t reads[MOST_SECTIONS]; /* reads per section, by data_offset */
    bool fails;
} fake_source;

/* Returns the position in the tensor of element i of a section that begins at `first`. */
static uint64_t position_of_element(const section_head *h, uint64_t i) {
    return h->first + (h->width ? i / h->width * h->stride + i % h->width : i);
}

static bt_code fake_read(ckpt_source *from, const ckpt_section *s, void *out, bt_err *err) {
    fake_source *f = (fake_source *)from;
    float *x = out;
    f->reads[s->data_offset]++;
    if (f->fails) return bt_fail(err, BT_IO, "it cannot be read");
    for (uint64_t i = 0; i < s->head.count; i++) x[i] = (float)position_of_element(&s->head, i);
    return BT_OK;
}

static void add_section(fake_source *f, const char *tensor, const char *state, uint64_t first,
                        uint64_t count, uint32_t width, uint32_t stride) {
    ckpt_section *s = &f->sections[f->from.n];
    assert_true(f->from.n < MOST_SECTIONS);
    memset(s, 0, sizeof *s);
    strcpy(s->head.tensor, tensor);
    strcpy(s->head.state, state);
    s->head.elem_bytes = sizeof(float);
    s->head.tensor_elems = ELEMS;
    s->head.first = first, s->head.count = count;
    s->head.width = width, s->head.stride = stride;
    s->data_offset = f->from.n++;
}

static void begin_source(fake_source *f) {
    memset(f, 0, sizeof *f);
    f->from.name = "fake";
    f->from.read = fake_read;
    f->from.sections = f->sections;
}

static void finish_source(fake_source *f) {
    f->from.sections = NULL; /* The array was not allocated by malloc. */
    ckpt_source_release(&f->from);
    assert_null(f->from.scratch);
}

/* Divides the whole tensor into blocks of columns with one stride, or into contiguous ranges, and omits some parts. */
static void draw_sections(fake_source *f, bool has[ELEMS]) {
    const uint64_t leave_out = draw_under(4) ? 1000 : 4; /* one part of this number is omitted */
    memset(has, 0, ELEMS);
    add_section(f, "a", "weight", 0, 10, 0, 0); /* names that are adjacent in sorted order */
    add_section(f, "w", "exp_avg", 0, ELEMS, 0, 0);
    add_section(f, "w", "weight2", 0, ELEMS, 0, 0);
    add_section(f, "x", "weight", 0, ELEMS, 0, 0);
    const size_t first = f->from.n;
    if (draw_under(2)) {
        static const uint32_t strides[] = {6, 8, 10, 12, 20, 30};
        const uint32_t stride = strides[draw_under(6)], rows = ELEMS / stride;
        for (uint32_t at = 0, w; at < stride; at += w) {
            w = 1 + (uint32_t)draw_under(stride - at);
            for (uint32_t row = 0, n; row < rows; row += n) {
                n = 1 + (uint32_t)draw_under(rows - row);
                if (f->from.n < MOST_SECTIONS && draw_under(leave_out) != 1)
                    add_section(f, "w", "weight", at + (uint64_t)row * stride, (uint64_t)n * w, w,
                                stride);
            }
        }
    } else {
        for (uint64_t at = 0, n; at < ELEMS; at += n) {
            n = 1 + draw_under(ELEMS - at < 30 ? ELEMS - at : 30);
            if (draw_under(leave_out) != 1) add_section(f, "w", "weight", at, n, 0, 0);
        }
    }
    for (size_t k = first; k < f->from.n; k++)
        for (uint64_t i = 0; i < f->sections[k].head.count; i++)
            has[position_of_element(&f->sections[k].head, i)] = true;
}

static bt_ckpt_slice draw_slice(float *x) {
    bt_ckpt_slice s = {"w", "weight", ELEMS, 0, 0, x, 0, 0, BT_CKPT_F32, false};
    if (draw_under(2)) {
        s.first = draw_under(ELEMS);
        s.count = 1 + draw_under(ELEMS - s.first);
        return s;
    }
    s.stride = 1 + (uint32_t)draw_under(30);
    s.width = 1 + (uint32_t)draw_under(s.stride);
    s.first = draw_under(ELEMS - s.width + 1);
    s.count = s.width * (1 + draw_under((ELEMS - s.first - s.width) / s.stride + 1));
    return s;
}

static void drawn_slices_of_drawn_sections(void **state) {
    (void)state;
    int whole = 0, partly = 0, none = 0;
    for (int i = 0; i < DRAWS; i++) {
        fake_source f;
        bool has[ELEMS];
        float x[ELEMS + 1];
        bt_err err = BT_ERR_INIT;
        begin_source(&f);
        draw_sections(&f, has);
        ckpt_source_sort(&f.from);
        for (size_t k = 1; k < f.from.n; k++) {
            const section_head *a = &f.sections[k - 1].head, *b = &f.sections[k].head;
            int d = strcmp(a->tensor, b->tensor);
            if (d == 0) d = strcmp(a->state, b->state);
            assert_true(d < 0 || (d == 0 && a->first < b->first));
        }
        /* The second time the scratch memory still contains the last section. */
        for (int again = 0; again < 3; again++) {
            const bt_ckpt_slice want = draw_slice(x);
            const section_head at = {
                .first = want.first, .width = want.width, .stride = want.stride};
            uint64_t found = 0;
            for (uint64_t k = 0; k <= ELEMS; k++) x[k] = -1;
            memset(f.reads, 0, sizeof f.reads);
            for (uint64_t k = 0; k < want.count; k++) found += has[position_of_element(&at, k)];
            assert_int_equal(ckpt_source_touches(&f.from, &want), found > 0);
            const bt_code code = ckpt_source_fill(&f.from, &want, &err);
            assert_int_equal(code, found == want.count ? BT_OK : BT_FORMAT);
            for (uint64_t k = 0; k < want.count; k++) {
                const uint64_t place = position_of_element(&at, k);
                if (x[k] != (has[place] ? (float)place : -1.0f))
                    fail_msg("draw %d: element %d is %g", i, (int)place, (double)x[k]);
            }
            for (uint64_t k = want.count; k <= ELEMS; k++) assert_true(x[k] == -1);
            for (size_t k = 0; k < MOST_SECTIONS; k++) assert_true(f.reads[k] <= 1);
            whole += code == BT_OK, none += found == 0, partly += found > 0 && code != BT_OK;
            if (code == BT_OK) continue;
            char says[120];
            snprintf(says, sizeof says,
                     "the checkpoint 'fake' contains only %d of the %d requested elements of 'w' "
                     "(weight)",
                     (int)found, (int)want.count);
            assert_string_equal(err.msg, says);
        }
        finish_source(&f);
    }
    assert_true(whole > DRAWS && partly > DRAWS / 20 && none > DRAWS / 100);
}

/* Only sections with requested elements are read, each of them once. */
static void sections_are_read_once(void **state) {
    (void)state;
    fake_source f;
    float x[ELEMS];
    bt_err err = BT_ERR_INIT;
    begin_source(&f);
    for (uint64_t at = 0; at < ELEMS; at += 30) add_section(&f, "w", "weight", at, 30, 0, 0);
    ckpt_source_sort(&f.from);
    bt_ckpt_slice want = {"w", "weight", ELEMS, 40, 10, x, 0, 0, BT_CKPT_F32, false};
    for (int k = 0; k < 2; k++, want.first = 52, want.count = 8)
        check_ok(ckpt_source_fill(&f.from, &want, &err), &err);
    assert_true(f.reads[0] == 0 && f.reads[1] == 1 && f.reads[2] == 0 && f.reads[3] == 0);
    want.first = 30, want.count = 60; /* Whole sections are read directly into the destination. */
    check_ok(ckpt_source_fill(&f.from, &want, &err), &err);
    assert_true(f.reads[0] == 0 && f.reads[1] == 2 && f.reads[2] == 1 && f.reads[3] == 0);
    want.first = 31, want.count = 2; /* The section is still in scratch memory. */
    check_ok(ckpt_source_fill(&f.from, &want, &err), &err);
    assert_true(f.reads[1] == 2 && x[0] == 31 && x[1] == 32);
    want.first = 0;
    check_ok(ckpt_source_fill(&f.from, &want, &err), &err);
    want.first = 31;
    check_ok(ckpt_source_fill(&f.from, &want, &err), &err);
    assert_true(f.reads[0] == 1 && f.reads[1] == 3 && x[0] == 31);
    f.fails = true; /* A failed read is not cached. */
    want.first = 61;
    assert_int_equal(ckpt_source_fill(&f.from, &want, &err), BT_IO);
    want.first = 31;
    assert_int_equal(ckpt_source_fill(&f.from, &want, &err), BT_IO);
    want.first = 30, want.count = 30;
    assert_int_equal(ckpt_source_fill(&f.from, &want, &err), BT_IO);
    f.fails = false;
    want.first = 61, want.count = 2;
    check_ok(ckpt_source_fill(&f.from, &want, &err), &err);
    assert_true(x[0] == 61 && f.reads[2] == 3);
    finish_source(&f);
}

/* An absent optional tensor becomes zeros; one that is partly present is an error. */
static void absent_tensors_are_zero_or_an_error(void **state) {
    (void)state;
    fake_source f;
    float x[ELEMS];
    char name[80];
    bt_err err = BT_ERR_INIT;
    begin_source(&f);
    add_section(&f, "w", "weight", 0, 50, 0, 0);
    ckpt_source_sort(&f.from);
    bt_ckpt_slice want = {"w", "exp_avg", ELEMS, 5, 20, x, 0, 0, BT_CKPT_F32, true};
    for (int i = 0; i < ELEMS; i++) x[i] = 7;
    assert_false(ckpt_source_touches(&f.from, &want));
    check_ok(ckpt_source_fill(&f.from, &want, &err), &err);
    for (int i = 0; i < ELEMS; i++) assert_true(x[i] == (i < 20 ? 0 : 7));
    want.state = "weight", want.first = 40;
    assert_true(ckpt_source_touches(&f.from, &want));
    assert_int_equal(ckpt_source_fill(&f.from, &want, &err), BT_FORMAT);
    want.first = 50;
    assert_false(ckpt_source_touches(&f.from, &want));
    assert_int_equal(ckpt_source_fill(&f.from, &want, &err), BT_FORMAT);
    want.first = 0, want.tensor_elems = ELEMS - 1;
    assert_int_equal(ckpt_source_fill(&f.from, &want, &err), BT_FORMAT);
    message_has(err.msg, "'w' of the checkpoint 'fake' has 120 elements");
    /* No section can have these names. */
    for (int of_state = 0; of_state < 2; of_state++) {
        const size_t n = of_state ? 32 : 56;
        memset(name, 'w', n);
        name[n] = '\0';
        want = (bt_ckpt_slice){of_state ? "w" : name,
                               of_state ? name : "weight",
                               ELEMS,
                               0,
                               1,
                               x,
                               0,
                               0,
                               BT_CKPT_F32,
                               true};
        assert_false(ckpt_source_touches(&f.from, &want));
        assert_int_equal(ckpt_source_fill(&f.from, &want, &err), BT_ARG);
        name[n - 1] = '\0';
        assert_false(ckpt_source_touches(&f.from, &want));
        check_ok(ckpt_source_fill(&f.from, &want, &err), &err);
    }
    finish_source(&f);
    begin_source(&f); /* An empty slice is accepted. */
    want.optional = false;
    assert_false(ckpt_source_touches(&f.from, &want));
    assert_int_equal(ckpt_source_fill(&f.from, &want, &err), BT_FORMAT);
    finish_source(&f);
}

/* Elements of another numeric type are converted; bytes are not. */
static void types_are_converted(void **state) {
    (void)state;
    static const bt_ckpt_type types[] = {BT_CKPT_F32, BT_CKPT_BF16, BT_CKPT_U8, BT_CKPT_LOG8,
                                         BT_CKPT_ULOG8};
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        fake_source f;
        unsigned char x[ELEMS * sizeof(float)], want_x[sizeof x];
        float plain[ELEMS];
        bt_moment_form form;
        bt_err err = BT_ERR_INIT;
        begin_source(&f);
        add_section(&f, "w", "weight", 0, ELEMS, 0, 0);
        const size_t bytes = bt_ckpt_type_bytes(types[k]);
        for (int cut = 0; cut < 2; cut++) {
            const uint64_t first = cut ? 7 : 0, count = cut ? 50 : ELEMS;
            const bt_ckpt_slice want = {"w", "weight", ELEMS, first,    count,
                                        x,   0,        0,     types[k], false};
            memset(x, 0x5a, sizeof x);
            const bt_code code = ckpt_source_fill(&f.from, &want, &err);
            if (types[k] == BT_CKPT_U8) {
                assert_int_equal(code, BT_FORMAT);
                message_has(err.msg,
                            "'w' (weight) of the checkpoint 'fake' has elements of 4 bytes");
                continue;
            }
            check_ok(code, &err);
            for (uint64_t i = 0; i < count; i++) plain[i] = (float)(first + i);
            memset(want_x, 0x5a, sizeof want_x);
            assert_true(ckpt_form_of(types[k], &form));
            bt_moment_convert(want_x, form, plain, BT_MOMENT_F32, count);
            assert_memory_equal(x, want_x, sizeof x);
            assert_true(x[count * bytes - 1] != 0x5a || types[k] != BT_CKPT_F32);
        }
        finish_source(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(drawn_slices_of_drawn_sections),
                                       cmocka_unit_test(sections_are_read_once),
                                       cmocka_unit_test(absent_tensors_are_zero_or_an_error),
                                       cmocka_unit_test(types_are_converted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* ternary_floats.c - recognises models whose floats are ternary weights, as programs write them that have no packed
 * format or
 * unpack it; and samples rows of tensors to find their scales. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/interop/model_file.h"

const bt_scales_seen bt_scales_all = {true, true,
                                      1u << BT_SCALE_GROUP32 | 1u << BT_SCALE_GROUP64 |
                                          1u << BT_SCALE_GROUP128 | 1u << BT_SCALE_GROUP256};

bt_scale_kind bt_scales_kind(const bt_scales_seen *one) {
    if (one->row) return BT_SCALE_ROW;
    for (int kind = BT_SCALE_GROUP256; kind >= BT_SCALE_GROUP32; kind--)
        if (one->groups & 1u << kind) return (bt_scale_kind)kind;
    return BT_SCALE_TENSOR;
}

/* True if each group of n inputs of a row has one scale; whole: the row has one. */
static bool has_groups(const bt_stored *t, const unsigned char *row, int8_t *codes, size_t n,
                       bool whole) {
    const size_t cols = (size_t)t->cols;
    bool alike = cols % n == 0 && n % bt_number_at(t->number)->block == 0;
    for (size_t at = 0; at < cols && alike && !whole; at += n) {
        float size = 0;
        alike = bt_number_codes(t->number, codes, row + bt_number_bytes(t->number, at), n, &size);
    }
    return alike;
}

static void sample_row(const bt_stored *t, const unsigned char *row, int8_t *codes, float *first,
                       bt_scales_seen *one) {
    float size = 0;
    const bool whole = bt_number_codes(t->number, codes, row, (size_t)t->cols, &size);
    one->row &= whole;
    one->tensor &= whole && (size == 0 || *first == 0 || size == *first);
    if (size != 0) *first = size;
    for (int kind = BT_SCALE_GROUP32; kind <= BT_SCALE_GROUP256; kind++)
        if (one->groups & 1u << kind &&
            !has_groups(t, row, codes, bt_scale_inputs((bt_scale_kind)kind, 0), whole))
            one->groups &= ~(1u << kind);
}

bt_code bt_scales_sample(const bt_stored_list *all, const bt_stored *t, bt_scales_seen *one,
                         bt_err *err) {
    enum { SAMPLES = 64 };
    const size_t cols = (size_t)t->cols, bytes = bt_number_bytes(t->number, cols);
    unsigned char *raw = malloc(bytes + cols);
    float first = 0;
    bt_code code = raw ? BT_OK
                       : bt_fail(err, BT_NOMEM, "cannot allocate memory to read '%s'", t->name);
    for (uint64_t k = 0; k < SAMPLES && k < t->rows && code == BT_OK && (one->row || one->groups);
         k++) {
        const uint64_t row = t->rows <= SAMPLES ? k : k * (t->rows - 1) / (SAMPLES - 1);
        code = bt_foreign_read(&all->files[t->file], raw, bytes, t->at + row * bytes, err);
        if (code == BT_OK) sample_row(t, raw, (int8_t *)raw + bytes, &first, one);
    }
    free(raw);
    return code;
}

/* The absmean of latent weights has this minimum, so smaller scales would change. */
static const float SCALE_LEAST = 1e-5f;

static void forget_codes(bt_stored_location *p) {
    free(p->s);
    free(p->level);
    p->s = p->level = NULL;
    p->coded = p->counted = false;
    p->inputs = 0;
}

static void forget_all_codes(bt_model_file *s) {
    for (size_t i = 0; i < s->params.n; i++)
        if (s->params.tensors[i].linear) forget_codes(&s->places[i]);
}

static bool is_stored_as_floats(const bt_stored *t) {
    return t->number == BT_NUM_F32 || t->number == BT_NUM_F16 || t->number == BT_NUM_BF16;
}

/* Samples all linear layers. A model of full-precision weights is rejected at its first row. */
static bt_code sample_linear_layers(const bt_model_file *s, bt_scales_seen *one, bt_err *err) {
    for (size_t i = 0; i < s->params.n && (one->row || one->groups); i++) {
        if (!s->params.tensors[i].linear) continue;
        if (!is_stored_as_floats(s->places[i].stored)) *one = (bt_scales_seen){0};
        BT_TRY(bt_scales_sample(&s->stored, s->places[i].stored, one, err));
    }
    return BT_OK;
}

/* Reads tensor i. *exact becomes false if it is not ternary with such scales, or if latent weights cannot represent one
 * of them.
 * *some becomes true if it has elements other than 0. */
static bt_code count_float_codes(bt_model_file *s, size_t i, bt_scale_kind scale, bool *exact,
                                 bool *some, bt_err *err) {
    const bt_tensor *t = &s->params.tensors[i];
    bt_stored_location *p = &s->places[i];
    p->coded = true;
    p->inputs = scale == BT_SCALE_TENSOR ? 0 : bt_scale_inputs(scale, t->cols);
    const size_t n = p->inputs ? t->count / p->inputs : 1;
    BT_TRY(bt_model_file_read_codes(s, i, NULL, exact, err));
    for (size_t k = 0; *exact && k < n; k++) {
        *exact = (p->s[k] == 0 || p->s[k] >= SCALE_LEAST) && isfinite(p->level[k]);
        *some |= p->s[k] != 0;
    }
    return BT_OK;
}

static bt_code count_model_codes(bt_model_file *s, bt_scale_kind scale, bool *exact, bt_err *err) {
    bool some = false;
    *exact = true;
    for (size_t i = 0; i < s->params.n && *exact; i++)
        if (s->params.tensors[i].linear) BT_TRY(count_float_codes(s, i, scale, exact, &some, err));
    *exact &= some;
    if (!*exact) forget_all_codes(s);
    return BT_OK;
}

static bt_code change_linear(bt_model_file *s, bt_linear_kind linear, bt_scale_kind scale,
                             bt_err *err) {
    s->cfg.linear = linear;
    s->cfg.scale = scale;
    bt_params_release(&s->params);
    return bt_params_init(&s->params, &s->cfg, (bt_model_slice){0}, err);
}

static void note_recognised(bt_model_file *s, bt_scale_kind scale) {
    static const char *const units[] = {"tensor", "row"};
    char group[32], word[16];
    const size_t inputs = bt_scale_inputs(scale, 0);
    (void)snprintf(group, sizeof group, "group of %zu inputs", inputs);
    (void)snprintf(word, sizeof word, "group:%zu", inputs);
    bt_text_printf(
        &s->notes,
        "the %s weights of its linear layers are ternary with one scale for each %s: "
        "they are computed as such, with inputs rounded to int8 (model.linear=bitnet158, "
        "model.scale=%s)\n",
        bt_number_at(s->number)->word, scale > BT_SCALE_ROW ? group : units[scale],
        scale > BT_SCALE_ROW ? word : units[scale]);
}

bt_code bt_model_file_recognise(bt_model_file *s, bt_err *err) {
    bt_scales_seen one = bt_scales_all;
    bt_model_cfg ternary = s->cfg;
    bt_err why = BT_ERR_INIT;
    bt_scale_kind scale = BT_SCALE_TENSOR;
    bool exact = false;
    ternary.linear = BT_LIN_BITNET158;
    if (s->cfg.linear != BT_LIN_DENSE || bt_model_cfg_check(&ternary, &why) != BT_OK) return BT_OK;
    BT_TRY(sample_linear_layers(s, &one, err));
    if (one.tensor) BT_TRY(count_model_codes(s, BT_SCALE_TENSOR, &exact, err));
    while (!exact && (scale = bt_scales_kind(&one)) != BT_SCALE_TENSOR) {
        BT_TRY(count_model_codes(s, scale, &exact, err));
        if (scale == BT_SCALE_ROW)
            one.row = false;
        else
            one.groups &= ~(1u << scale);
    }
    if (!exact) return BT_OK;
    s->recognised = true;
    note_recognised(s, scale);
    return change_linear(s, BT_LIN_BITNET158, scale, err);
}

/* The values of elements are in their blocks: codes times the scale of the block, or floats. */
static bool holds_values(const bt_stored_location *p) {
    const bt_number n = p->stored->number;
    return !p->scale && (is_stored_as_floats(p->stored) || n == BT_NUM_Q8_0 || n == BT_NUM_TQ1_0 ||
                         n == BT_NUM_TQ2_0 || n == BT_NUM_Q2_0 || n == BT_NUM_Q2_0_128);
}

bt_code bt_model_file_keep_floats(bt_model_file *s, bt_err *err) {
    for (size_t i = 0; s->places && i < s->params.n; i++) {
        const bt_stored_location *p = &s->places[i];
        if (s->params.tensors[i].linear && (!p->coded || !holds_values(p))) return BT_OK;
    }
    if (!s->places) return BT_OK;
    forget_all_codes(s);
    s->recognised = false;
    bt_text_put(&s->notes, "model.linear=dense: its ternary weights are kept as floats\n");
    return change_linear(s, BT_LIN_DENSE, BT_SCALE_TENSOR, err);
}

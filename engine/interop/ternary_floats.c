/* ternary_floats.c - recognises models whose floats are ternary weights, as programs write them that have no packed
 * format or unpack it; and samples rows of tensors for their scales. */
#include <math.h>
#include <stdlib.h>

#include "engine/interop/model_file.h"

bt_code bt_scales_sample(const bt_stored_list *all, const bt_stored *t, bt_scales_seen *one,
                         bt_err *err) {
    enum { SAMPLES = 64 };
    const size_t cols = (size_t)t->cols, bytes = bt_number_bytes(t->number, cols);
    unsigned char *raw = malloc(bytes + cols);
    float first = 0;
    bt_code code = raw ? BT_OK : bt_fail(err, BT_NOMEM, "cannot take memory to read '%s'", t->name);
    for (uint64_t k = 0; k < SAMPLES && k < t->rows && code == BT_OK && one->row; k++) {
        const uint64_t row = t->rows <= SAMPLES ? k : k * (t->rows - 1) / (SAMPLES - 1);
        float size = 0;
        code = bt_foreign_read(&all->files[t->file], raw, bytes, t->at + row * bytes, err);
        if (code != BT_OK) break;
        one->row = bt_number_codes(t->number, (int8_t *)raw + bytes, raw, cols, &size);
        one->tensor &= one->row && (size == 0 || first == 0 || size == first);
        if (size != 0) first = size;
    }
    free(raw);
    return code;
}

/* ---- floats ---------------------------------------------------------------------------------- */

/* absmean of latent weights has this minimum, so smaller scales would change */
static const float SCALE_LEAST = 1e-5f;

static void forget_codes(bt_stored_location *p) {
    free(p->s);
    free(p->level);
    p->s = p->level = NULL;
    p->coded = p->by_row = p->counted = false;
}

static void forget_all_codes(bt_model_file *s) {
    for (size_t i = 0; i < s->params.n; i++)
        if (s->params.tensors[i].linear) forget_codes(&s->places[i]);
}

static bool holds_floats(const bt_stored *t) {
    return t->number == BT_NUM_F32 || t->number == BT_NUM_F16 || t->number == BT_NUM_BF16;
}

/* Samples all linear layers; a model of full-precision weights is rejected at its first row. */
static bt_code sample_linear_layers(const bt_model_file *s, bt_scales_seen *one, bt_err *err) {
    for (size_t i = 0; i < s->params.n && one->row; i++) {
        if (!s->params.tensors[i].linear) continue;
        one->row = holds_floats(s->places[i].stored);
        if (one->row) BT_TRY(bt_scales_sample(&s->stored, s->places[i].stored, one, err));
    }
    return BT_OK;
}

/* Reads tensor i. *exact becomes false if it is not ternary with such scales, or latent weights cannot represent one of
 * them; *some becomes true if it has elements other than 0 */
static bt_code count_float_codes(bt_model_file *s, size_t i, bool by_row, bool *exact, bool *some,
                                 bt_err *err) {
    bt_stored_location *p = &s->places[i];
    const size_t n = by_row ? s->params.tensors[i].rows : 1;
    p->coded = true;
    p->by_row = by_row;
    BT_TRY(bt_model_file_read_codes(s, i, NULL, exact, err));
    for (size_t k = 0; *exact && k < n; k++) {
        *exact = (p->s[k] == 0 || p->s[k] >= SCALE_LEAST) && isfinite(p->level[k]);
        *some |= p->s[k] != 0;
    }
    return BT_OK;
}

static bt_code count_model_codes(bt_model_file *s, bool by_row, bool *exact, bt_err *err) {
    bool some = false;
    *exact = true;
    for (size_t i = 0; i < s->params.n && *exact; i++)
        if (s->params.tensors[i].linear) BT_TRY(count_float_codes(s, i, by_row, exact, &some, err));
    *exact &= some;
    if (!*exact) forget_all_codes(s);
    return BT_OK;
}

/* Changes the kind of linear layers; the table has the same tensors. */
static bt_code change_linear(bt_model_file *s, bt_linear_kind linear, bt_scale_kind scale,
                             bt_err *err) {
    s->cfg.linear = linear;
    s->cfg.scale = scale;
    bt_params_release(&s->params);
    return bt_params_init(&s->params, &s->cfg, (bt_model_slice){0}, err);
}

bt_code bt_model_file_recognise(bt_model_file *s, bt_err *err) {
    bt_scales_seen one = {true, true};
    bt_model_cfg ternary = s->cfg;
    bt_err why = BT_ERR_INIT;
    bool exact = false, by_row = false;
    ternary.linear = BT_LIN_BITNET158;
    if (s->cfg.linear != BT_LIN_DENSE || bt_model_cfg_check(&ternary, &why) != BT_OK) return BT_OK;
    BT_TRY(sample_linear_layers(s, &one, err));
    if (!one.row) return BT_OK;
    if (one.tensor) BT_TRY(count_model_codes(s, false, &exact, err));
    if (!exact) {
        by_row = true;
        BT_TRY(count_model_codes(s, true, &exact, err));
    }
    if (!exact) return BT_OK;
    s->recognised = true;
    bt_text_printf(
        &s->notes,
        "the %s weights of its linear layers are ternary with one scale for each %s: "
        "they are computed as such, with inputs rounded to int8 (model.linear=bitnet158, "
        "model.scale=%s)\n",
        bt_number_at(s->number)->word, by_row ? "row" : "tensor", by_row ? "row" : "tensor");
    return change_linear(s, BT_LIN_BITNET158, by_row ? BT_SCALE_ROW : BT_SCALE_TENSOR, err);
}

bt_code bt_model_file_keep_floats(bt_model_file *s, bt_err *err) {
    if (!s->recognised) return BT_OK;
    forget_all_codes(s);
    s->recognised = false;
    bt_text_put(&s->notes, "model.linear=dense: they are computed as floats all the same\n");
    return change_linear(s, BT_LIN_DENSE, BT_SCALE_TENSOR, err);
}

/* init_from.c - initial weights of a training from any model file; missing and unused tensors are reported by name. */
#include "engine/interop/init_from.h"

#include <string.h>

typedef struct names { /* the first names of a list, and its length */
    bt_text text;
    size_t n;
} names;

static void add_listed_name(names *l, const char *name) {
    if (++l->n <= 4) bt_text_printf(&l->text, "%s%s", l->n > 1 ? ", " : "", name);
}

static const char *join_listed_names(names *l) {
    if (l->n > 4) bt_text_printf(&l->text, " and %zu more", l->n - 4);
    return bt_text_str(&l->text);
}

static bool holds_adapters(const bt_model_file *s) {
    for (size_t i = 0; i < s->params.n; i++)
        if (strstr(s->params.tensors[i].name, ".lora_")) return true;
    return false;
}

/* missing: names of tensors, not empty */
static bt_code fail_missing_tensors(const bt_model_file *s, names *missing, bt_err *err) {
    const char *list = join_listed_names(missing);
    if (holds_adapters(s))
        return bt_fail(
            err, BT_ARG,
            "model.init_from: '%.200s' contains adapters without the weights of their base "
            "(merge both into a model with 'bitrain convert %.200s --merge --out FOLDER', "
            "or begin with the base and --set tune.adapters=%.200s)",
            s->path, s->path, s->path);
    return bt_fail(err, BT_ARG,
                   "model.init_from: '%.200s' does not have %zu tensor%s of this model: %s",
                   s->path, missing->n, missing->n > 1 ? "s" : "", list);
}

/* Norms and biases may be missing: they begin at one and zero, as in a new model. So may a classifier's head, which
 * begins at zero. Other matrices may not be missing. */
static bt_code compare_tensor_names(const bt_model_file *s, const bt_params *wanted, names *ones,
                                    names *extra, bt_err *err) {
    names missing = {0};
    for (size_t i = 0; i < wanted->n; i++) {
        const bt_tensor *t = &wanted->tensors[i], *f = bt_params_named(&s->params, t->name);
        if (!f && t->id == BT_P_SCORE) continue;
        if (!f)
            add_listed_name(t->linear || t->decay ? &missing : ones, t->name);
        else if (f->whole_rows != t->whole_rows || f->whole_cols != t->whole_cols) {
            bt_text_release(&missing.text);
            return bt_fail(err, BT_ARG,
                           "model.init_from: tensor '%s' is %zu x %zu in '%.200s', but %zu x %zu "
                           "in this model (give the shape of the file)",
                           t->name, f->whole_rows, f->whole_cols, s->path, t->whole_rows,
                           t->whole_cols);
        }
    }
    for (size_t i = 0; i < s->params.n; i++)
        if (!bt_params_named(wanted, s->params.tensors[i].name))
            add_listed_name(extra, s->params.tensors[i].name);
    const bt_code code = missing.n ? fail_missing_tensors(s, &missing, err) : BT_OK;
    bt_text_release(&missing.text);
    return code;
}

static void report_tensors(const bt_model_file *s, const bt_model_cfg *m, names *ones, names *extra,
                           bt_text *notes) {
    if (ones->n > 0)
        bt_text_printf(notes,
                       "model.init_from has no %s: they begin as in a new model, norms at one and "
                       "biases at zero\n",
                       join_listed_names(ones));
    if (extra->n > 0)
        bt_text_printf(notes, "model.init_from holds %s, which this model does not have\n",
                       join_listed_names(extra));
    if (s->cfg.act != m->act)
        bt_text_put(notes, "model.init_from was trained with another activation (model.act)\n");
    if (s->cfg.linear != m->linear)
        bt_text_put(notes, "model.init_from was trained with other linear layers (model.linear)\n");
    else if (s->cfg.scale != m->scale)
        bt_text_put(notes, "model.init_from was trained with other scales (model.scale)\n");
    if (memcmp(&s->cfg.rope, &m->rope, sizeof m->rope) != 0 &&
        (s->cfg.rope.method != BT_ROPE_PLAIN || m->rope.method != BT_ROPE_PLAIN))
        bt_text_put(notes, "model.init_from scales its rotary frequencies in another way than this "
                           "model (model.rope_scaling)\n");
    if (s->cfg.rope_theta != m->rope_theta)
        bt_text_printf(notes, "model.init_from has model.rope_theta %g, this model %g\n",
                       s->cfg.rope_theta, m->rope_theta);
}

bt_code bt_init_from_check(bt_model_file *s, const bt_model_cfg *model, bt_text *notes,
                           bt_err *err) {
    bt_params wanted;
    names ones = {0}, extra = {0};
    if (model->linear == BT_LIN_DENSE) BT_TRY(bt_model_file_keep_floats(s, err));
    BT_TRY(bt_params_init(&wanted, model, (bt_model_slice){0}, err));
    bt_code code = compare_tensor_names(s, &wanted, &ones, &extra, err);
    if (code == BT_OK) report_tensors(s, model, &ones, &extra, notes);
    if (code == BT_OK) bt_text_put(notes, bt_text_str(&s->passed_over));
    bt_text_release(&ones.text);
    bt_text_release(&extra.text);
    bt_params_release(&wanted);
    return code;
}

static bt_code read_elements(bt_model_file *s, size_t i, uint64_t first, uint64_t n,
                             bt_ckpt_type type, void *out, bt_err *err) {
    enum { PIECE = 8192 };
    float some[PIECE];
    if (type == BT_CKPT_F32) return bt_model_file_read(s, i, first, n, out, err);
    for (uint64_t at = 0; at < n; at += PIECE) {
        const uint64_t piece = n - at < PIECE ? n - at : PIECE;
        BT_TRY(bt_model_file_read(s, i, first + at, piece, some, err));
        bt_moment_convert((uint16_t *)out + at, BT_MOMENT_BF16, some, BT_MOMENT_F32, piece);
    }
    return BT_OK;
}

bt_code bt_init_from_fill(bt_model_file *s, const bt_ckpt_slice *slices, size_t n, bt_err *err) {
    for (size_t k = 0; k < n; k++) {
        const bt_ckpt_slice *w = &slices[k];
        const bt_tensor *t = bt_params_named(&s->params, w->tensor);
        if (!t || strcmp(w->state, "weight") != 0) continue;
        const size_t i = (size_t)(t - s->params.tensors);
        const uint64_t width = w->width ? w->width : w->count;
        for (uint64_t done = 0; done < w->count; done += width)
            BT_TRY(read_elements(
                s, i, w->first + (w->width ? done / width * w->stride : 0), width, w->type,
                (unsigned char *)w->data + done * bt_ckpt_type_bytes(w->type), err));
    }
    return BT_OK;
}

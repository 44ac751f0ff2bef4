/* model_file_tables.c - builds and checks tables of tensors for the readers of formats; releases a model file. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/small.h"
#include "engine/interop/model_file.h"

void bt_model_file_give_roles(bt_model_file *s) {
    if (!s->tokenizer || !s->roles.known) return;
    const size_t left_out = bt_tokenizer_set_roles(s->tokenizer, &s->roles);
    if (left_out)
        bt_text_printf(
            &s->notes,
            "%zu of the tokens that the model names as beginning, padding or end are not "
            "in its tokenizer's vocabulary of %d\n",
            left_out, bt_tokenizer_vocab(s->tokenizer));
}

void bt_model_file_close(bt_model_file *s) {
    if (!s) return;
    if (s->view.release) s->view.release(s->view.ctx);
    bt_ckpt_reader_close(s->ckpt);
    bt_ckpt_meta_release(&s->meta);
    bt_stored_release(&s->stored);
    bt_tokenizer_free(s->tokenizer);
    bt_text_release(&s->notes);
    bt_text_release(&s->passed_over);
    for (size_t i = 0; s->places && i < s->params.n; i++) {
        free(s->places[i].s);
        free(s->places[i].level);
    }
    bt_params_release(&s->params);
    free(s->places);
    free(s->row);
    free(s);
}

bt_code bt_model_file_tables(bt_model_file *s, bt_err *err) {
    BT_TRY(bt_params_init(&s->params, &s->cfg, (bt_model_slice){0}, err));
    size_t longest = 0;
    for (size_t i = 0; i < s->params.n; i++) {
        const bt_tensor *t = &s->params.tensors[i];
        longest = bt_max_size(longest, t->cols == 1 ? t->rows : t->cols); /* a vector is one row */
    }
    s->places = calloc(s->params.n, sizeof *s->places);
    s->row = malloc(longest * sizeof *s->row);
    if (s->places && s->row) return BT_OK;
    return bt_fail(err, BT_NOMEM, "cannot allocate memory to read '%s'", s->path);
}

bt_code bt_model_file_check_shape(const bt_tensor *t, const bt_stored *f, bt_row_order order,
                                  bt_err *err) {
    const uint64_t rows = order == BT_ROWS_PACKED ? t->rows / 4 : t->rows;
    if (t->cols == 1 && f->n_dims == 1 && f->cols == t->rows) return BT_OK; /* a bias */
    if (f->rows == rows && f->cols == t->cols && (order != BT_ROWS_PACKED || t->rows % 4 == 0))
        return BT_OK;
    return bt_fail(
        err, BT_FORMAT,
        "tensor '%s' is %llu x %llu, but should be %llu x %zu according to the model's sizes",
        f->name, (unsigned long long)f->rows, (unsigned long long)f->cols, (unsigned long long)rows,
        t->cols);
}

static void add_first_names(bt_text *list, const char *name, size_t *n) {
    if (++*n <= 3) bt_text_printf(list, "%s%s", *n > 1 ? ", " : "", name);
}

bt_code bt_model_file_complete(bt_model_file *s,
                               bool (*extra)(const bt_model_file *s, const char *name),
                               bt_err *err) {
    bt_text list = {0};
    size_t n = 0;
    bt_code code = BT_OK;
    for (size_t i = 0; i < s->params.n; i++)
        if (!s->places[i].stored) add_first_names(&list, s->params.tensors[i].name, &n);
    const char *other = NULL; /* a name that may be the missing one's */
    for (size_t i = 0; n > 0 && i < s->stored.n && !other; i++)
        if (!s->stored.at[i].used && !extra(s, s->stored.at[i].name)) other = s->stored.at[i].name;
    if (n > 0)
        code = bt_fail(err, BT_FORMAT, "%zu tensor%s of the model %s missing: %s%s%s%s%s", n,
                       n > 1 ? "s" : "", n > 1 ? "are" : "is", bt_text_str(&list),
                       n > 3 ? ", ..." : "", other ? " (the file has '" : "", other ? other : "",
                       other ? "', which is none of them)" : "");
    bt_text_clear(&list);
    n = 0;
    for (size_t i = 0; code == BT_OK && i < s->stored.n; i++)
        if (!s->stored.at[i].used && extra(s, s->stored.at[i].name))
            add_first_names(&list, s->stored.at[i].name, &n);
    if (n > 0)
        bt_text_printf(&s->notes, "%zu tensor%s not used: %s%s\n", n, n > 1 ? "s are" : " is",
                       bt_text_str(&list), n > 3 ? ", ..." : "");
    bt_text_clear(&list);
    n = 0;
    for (size_t i = 0; code == BT_OK && i < s->stored.n; i++)
        if (!s->stored.at[i].used && !extra(s, s->stored.at[i].name))
            add_first_names(&list, s->stored.at[i].name, &n);
    if (n > 0)
        code = bt_fail(err, BT_UNSUPPORTED,
                       "the architecture does not have %zu tensor%s of the file: %s%s", n,
                       n > 1 ? "s" : "", bt_text_str(&list), n > 3 ? ", ..." : "");
    bt_text_release(&list);
    return code;
}

/* train_labels.c - the classes of a classifier whose data.labels nobody gave: those that the training data
 * has. They become settings before anything is built, as the model has a row for each, and go into the
 * checkpoint, which so knows their names. */
#include <stdlib.h>

#include "cli/train/train_parts.h"
#include "engine/data/chat/labels.h"

static bt_code scan(const bt_run_cfg *c, bt_text *list, bt_err *err) {
    bt_sources files = {0};
    BT_TRY(bt_sources_list_glob(&files, c->data, c->glob, c->cache, err));
    bt_code code = bt_labels_scan(files.items, files.n, c->bad_rows == BT_BAD_ROWS_SKIP, list, err);
    bt_sources_release(&files);
    return code;
}

bt_code bt_train_labels(bt_train_plan *p, bt_err *err) {
    bt_text list = {0};
    if (p->cfg.form != BT_FORMED_LABEL) return BT_OK;
    if (p->cfg.labels[0]) return bt_labels_check(p->cfg.labels, err);
    bt_code code = scan(&p->cfg, &list, err);
    if (code == BT_OK && list.len >= sizeof p->cfg.labels)
        code = bt_fail(err, BT_ARG, "the names of %zu labels are longer than %zu bytes",
                       bt_labels_count(bt_text_str(&list)), sizeof p->cfg.labels - 1);
    if (code == BT_OK)
        code = bt_opts_set(&p->opts, "data.labels", bt_text_str(&list), BT_FROM_PRESET,
                           "as data.path has them", err);
    bt_text_release(&list);
    return code;
}

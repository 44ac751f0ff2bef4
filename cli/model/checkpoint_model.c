/* checkpoint_model.c - finds the checkpoint, reads its configuration and tokenizer, loads weights.
 * */
#include "cli/model/checkpoint_model.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/common/database.h"
#include "engine/base/threads.h"
#include "engine/kernels/table/cpu.h"
#include "engine/kernels/table/kernels.h"
#include "engine/update/tensor_slices.h"

static bool keep_out(void *ctx, const bt_row *r) {
    if (r->cells[0]) snprintf(ctx, PATH_MAX, "%s", r->cells[0]);
    return false;
}

static bool is_folder(const char *s) {
    struct stat st;
    return strchr(s, '/') || (strcmp(s, "last") != 0 && stat(s, &st) == 0 && S_ISDIR(st.st_mode));
}

static bt_code folder_of(const bt_trained_how *how, char out[PATH_MAX], bt_err *err) {
    if (is_folder(how->which)) {
        snprintf(out, PATH_MAX, "%s", how->which);
        return BT_OK;
    }
    bt_db *db = NULL;
    char run[BT_NAME_MAX];
    out[0] = '\0';
    BT_TRY(bt_cli_open(&db, how->store, err));
    bt_code code = bt_db_run(db, how->which, run, err);
    if (code == BT_OK)
        code = bt_db_query(db,
                           &(bt_question){.sql = "SELECT out_dir FROM runs WHERE run = ?1",
                                          .params = (const char *const[]){run},
                                          .n_params = 1,
                                          .max_rows = 1,
                                          .max_s = 5},
                           keep_out, out, err);
    bt_db_close(db);
    BT_TRY(code);
    return out[0] ? BT_OK : bt_fail(err, BT_NOTFOUND, "run '%s' has no checkpoint folder", run);
}

static bt_code read_config(bt_trained *t, bt_err *err) {
    static bt_opts o;
    json_error_t e;
    BT_TRY(bt_opts_init(&o, bt_run_opts, bt_run_opts_n, &t->cfg, err));
    json_t *config = json_loads(bt_text_str(&t->meta.config), 0, &e), *v;
    const char *key;
    if (!json_is_object(config)) {
        json_decref(config);
        return bt_fail(err, BT_FORMAT, "the settings in checkpoint '%s' cannot be read: %s",
                       t->path, e.text);
    }
    bt_code code = BT_OK;
    json_object_foreach(config, key, v) {
        if (bt_opt_find(o.table, o.n, key) == o.n) continue; /* of another version */
        if (code == BT_OK && json_is_string(v))
            code = bt_opts_set(&o, key, json_string_value(v), BT_FROM_FILE, "the checkpoint", err);
    }
    json_decref(config);
    return code;
}

bt_code bt_trained_load(bt_trained *t, const bt_trained_how *how, bt_err *err) {
    char folder[PATH_MAX];
    memset(t, 0, sizeof *t);
    BT_TRY(folder_of(how, folder, err));
    BT_TRY(bt_ckpt_open_meta(folder, t->path, sizeof t->path, &t->meta, err));
    BT_TRY(read_config(t, err));
    BT_TRY(bt_tokenizer_parse(&t->tokenizer, bt_text_str(&t->meta.tokenizer), t->meta.tokenizer.len,
                              err));
    BT_TRY(bt_kernels_select(how->isa[0] ? how->isa : t->cfg.isa, err));
    BT_TRY(bt_threads_init(how->threads ? (int)how->threads : bt_cpu_get()->cores, err));
    bt_model_setup setup = {.B = how->B ? how->B : (int)t->cfg.micro_batch,
                            .prec = (bt_prec)t->cfg.precision,
                            .train = false,
                            .n_threads = bt_threads_count()};
    bt_run_cfg_model(&t->cfg, &setup.cfg);
    BT_TRY(bt_model_create(&t->model, &setup, err));
    BT_TRY(bt_load_weights(t->model, t->path, &t->meta, err));
    bt_model_quantise(t->model);
    return BT_OK;
}

void bt_trained_release(bt_trained *t) {
    bt_model_destroy(t->model);
    bt_tokenizer_free(t->tokenizer);
    bt_ckpt_meta_release(&t->meta);
    bt_threads_release();
    memset(t, 0, sizeof *t);
}

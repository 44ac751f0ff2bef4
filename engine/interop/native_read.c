/* native_read.c - our checkpoint as a source. */
#include <string.h>

#include "engine/config/run_cfg.h"
#include "engine/interop/model_file.h"
#include "engine/interop/native.h"

bt_code bt_model_file_open_native(bt_model_file *s, bt_err *err) {
    static bt_run_cfg cfg;
    char path[4096];
    BT_TRY(bt_ckpt_find(NULL, s->path, path, sizeof path, &s->meta, &s->passed_over, err));
    memcpy(s->path, path, sizeof s->path);
    BT_TRY(bt_native_settings(&cfg, &s->meta, s->path, err));
    bt_run_cfg_model(&cfg, &s->cfg);
    BT_TRY(bt_model_file_tables(s, err));
    if (s->meta.params_hash != bt_params_hash(&s->params))
        return bt_fail(err, BT_FORMAT,
                       "checkpoint '%s' does not hold the model its settings describe", s->path);
    BT_TRY(bt_tokenizer_parse(&s->tokenizer, bt_text_str(&s->meta.tokenizer), s->meta.tokenizer.len,
                              err));
    s->number = BT_NUM_F32;
    return bt_ckpt_reader_open(&s->ckpt, s->path, err);
}

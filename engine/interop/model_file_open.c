/* model_file_open.c - detects the format of a path and opens it with the reader of that format. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/interop/model_file.h"

static bool file_exists(const char *folder, const char *name) {
    char path[4400];
    snprintf(path, sizeof path, "%.4000s/%s", folder, name);
    return access(path, F_OK) == 0;
}

bt_container bt_model_file_kind(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) return BT_IN_NATIVE;
    if (!S_ISDIR(st.st_mode)) return BT_IN_GGUF;
    return file_exists(path, "config.json") && !file_exists(path, "manifest.json") ? BT_IN_HF
                                                                                   : BT_IN_NATIVE;
}

/* Returns true for adapters of PEFT without a model beside them (engine/tune reads these). */
static bool has_only_adapters(const char *path) {
    return file_exists(path, "adapter_config.json") && !file_exists(path, "manifest.json") &&
           !file_exists(path, "model.safetensors") &&
           !file_exists(path, "model.safetensors.index.json");
}

bt_code bt_model_file_open(bt_model_file **out, const char *path, bt_err *err) {
    *out = NULL;
    if (has_only_adapters(path))
        return bt_fail(err, BT_ARG,
                       "'%.300s' contains only adapters of PEFT: use it in serve, generate, eval "
                       "or convert with --base MODEL, or begin a training with it (tune.adapters)",
                       path);
    bt_model_file *s = *out = calloc(1, sizeof *s);
    if (!s) return bt_fail(err, BT_NOMEM, "cannot allocate memory to read '%s'", path);
    s->arch = BT_ARCH_COUNT;
    s->container = bt_model_file_kind(path);
    snprintf(s->path, sizeof s->path, "%s", path);
    bt_code code = s->container == BT_IN_HF     ? bt_model_file_open_hf(s, err)
                   : s->container == BT_IN_GGUF ? bt_model_file_open_gguf(s, err)
                                                : bt_model_file_open_native(s, err);
    if (code == BT_OK && s->tokenizer && bt_tokenizer_vocab(s->tokenizer) > s->cfg.V)
        code = bt_fail(err, BT_FORMAT,
                       "'%.300s': the tokenizer has %d tokens, but the model's vocabulary only %d",
                       path, bt_tokenizer_vocab(s->tokenizer), s->cfg.V);
    if (code == BT_OK) return BT_OK;
    bt_model_file_close(s);
    *out = NULL;
    return code;
}

/* tokenizer_file.c - recognises Hugging Face's tokenizer.json and loads tokenizers of both kinds. */
#include "cli/model/tokenizer_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/model/model_notes.h"
#include "engine/data/io/file_io.h"
#include "engine/data/io/json.h"
#include "engine/interop/hf_config.h"

enum { MAX_FILE = 128 << 20 };

bool bt_tokenizer_is_foreign(const char *name, char path[PATH_MAX]) {
    struct stat is;
    char *text = NULL;
    size_t n = 0;
    json_t *root = NULL;
    bt_err ignored = BT_ERR_INIT;
    const bool folder = stat(name, &is) == 0 && S_ISDIR(is.st_mode);
    (void)snprintf(path, PATH_MAX, folder ? "%.4000s/tokenizer.json" : "%.4000s", name);
    if (bt_file_slurp(path, MAX_FILE, &text, &n, &ignored) != BT_OK) return false;
    const bool parsed = bt_json_parse(&root, text, n, &ignored) == BT_OK;
    const bool foreign = parsed && json_is_object(json_object_get(root, "model")) &&
                         !json_object_get(root, "format");
    json_decref(root);
    free(text);
    return foreign;
}

bt_code bt_tokenizer_of_json(bt_tokenizer **out, const char *path, bt_err *err) {
    bt_text notes = {0}, told = {0};
    bt_code code = bt_hf_tokenizer_read(out, path, &notes, err);
    bt_notes_collect(&told, &notes, path);
    bt_text_release(&notes);
    bt_text_release(&told);
    return code;
}

bt_code bt_tokenizer_open(bt_tokenizer **out, const char *name, bt_err *err) {
    char path[PATH_MAX];
    return strcmp(name, "bytes") != 0 && bt_tokenizer_is_foreign(name, path)
               ? bt_tokenizer_of_json(out, path, err)
               : bt_tokenizer_load(out, name, err);
}

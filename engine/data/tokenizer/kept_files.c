/* kept_files.c - stores a tokenizer's original files byte for byte, compressed. */
#include <stdlib.h>
#include <string.h>

#include "engine/data/io/packed.h"
#include "engine/data/tokenizer/tokenizer_impl.h"

enum { MAX_FILE = 128 << 20 };

static const char *const names[] = {"tokenizer.json",          "tokenizer_config.json",
                                    "special_tokens_map.json", "added_tokens.json",
                                    "chat_template.jinja",     "chat_template.json",
                                    "generation_config.json"};
_Static_assert(sizeof names / sizeof *names == BT_KEPT_FILES, "one place for each name");

const char *bt_kept_file_name(size_t i) { return i < BT_KEPT_FILES ? names[i] : NULL; }

static size_t file_index(const char *name) {
    size_t i = 0;
    while (i < BT_KEPT_FILES && strcmp(names[i], name) != 0) i++;
    return i;
}

bt_code bt_kept_file_set(bt_tokenizer *t, const char *name, const char *packed, bt_err *err) {
    const size_t i = file_index(name);
    if (i == BT_KEPT_FILES)
        return bt_fail(err, BT_FORMAT, "'%.60s' is not the name of a tokenizer file", name);
    char *copy = strdup(packed);
    if (!copy) return bt_fail(err, BT_NOMEM, "cannot allocate memory for '%s'", names[i]);
    free(t->kept[i]);
    t->kept[i] = copy;
    return BT_OK;
}

bt_code bt_tokenizer_keep_file(bt_tokenizer *t, const char *name, const char *data, size_t n,
                               bt_err *err) {
    bt_text packed = {0};
    bt_code code = bt_packed_put(&packed, data, n, err);
    if (code == BT_OK) code = bt_kept_file_set(t, name, bt_text_str(&packed), err);
    bt_text_release(&packed);
    return code;
}

bt_code bt_tokenizer_kept_file(const bt_tokenizer *t, const char *name, bt_text *out, bt_err *err) {
    const size_t i = file_index(name);
    if (i == BT_KEPT_FILES || !t->kept[i])
        return bt_fail(err, BT_NOTFOUND, "the tokenizer has no stored file '%.60s'", name);
    return bt_packed_get(out, t->kept[i], MAX_FILE, err);
}

bool bt_tokenizer_keeps(const bt_tokenizer *t, const char *name) {
    const size_t i = file_index(name);
    return i < BT_KEPT_FILES && t->kept[i];
}

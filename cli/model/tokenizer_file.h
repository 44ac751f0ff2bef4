/* tokenizer_file.h - the tokenizers that commands take: "bytes", files of bitrain and Hugging Face's tokenizer.json. */
#ifndef BT_CLI_MODEL_TOKENIZER_FILE_H
#define BT_CLI_MODEL_TOKENIZER_FILE_H

#include <limits.h>
#include <stdbool.h>

#include "engine/base/status.h"
#include "engine/data/tokenizer/tokenizer.h"

/* Returns true if `name` is a tokenizer.json of Hugging Face, or a folder that contains one; writes its path. */
bool bt_tokenizer_is_foreign(const char *name, char path[PATH_MAX]);
/* Reads a tokenizer.json and the files beside it that describe it; prints notes on standard error. The caller frees
 * *out. */
bt_code bt_tokenizer_of_json(bt_tokenizer **out, const char *path, bt_err *err) BT_MUST_CHECK;
/* Loads a tokenizer of either kind. The caller frees *out. */
bt_code bt_tokenizer_open(bt_tokenizer **out, const char *name, bt_err *err) BT_MUST_CHECK;

#endif

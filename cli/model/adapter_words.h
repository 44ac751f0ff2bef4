/* adapter_words.h - options for several adapters: --weight of the first one, --add for further ones (convert --merge,
 * generate, eval, serve). */
#ifndef BT_CLI_MODEL_ADAPTER_WORDS_H
#define BT_CLI_MODEL_ADAPTER_WORDS_H

#include <limits.h>

#include "engine/tune/adapter_sum.h"

/* Appends the adapters named in `words`, RUN[:WEIGHT],.., to the *n existing parts. The caller closes all of them, also
 * after an error. store: "": the default. */
bt_code bt_adapter_words_open(bt_adapter_part parts[BT_ADAPTER_PARTS], size_t *n, const char *words,
                              const char *store, bt_err *err) BT_MUST_CHECK;

/* Finds the base model of a folder of PEFT adapters: `word` (RUN or a path) or, if it is empty, the path in the
 * folder's configuration, if that exists. Otherwise fails with BT_ARG and the remedy. */
bt_code bt_peft_base_of(const char *folder, const char *word, const char *store,
                        char path[PATH_MAX], bt_err *err) BT_MUST_CHECK;

#endif

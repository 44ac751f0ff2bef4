/* adapter_words.h - adapters that are used together, as people name them: --weight of the first, --add of
 * the others (convert --merge, generate, eval, serve). */
#ifndef BT_CLI_MODEL_ADAPTER_WORDS_H
#define BT_CLI_MODEL_ADAPTER_WORDS_H

#include <limits.h>

#include "engine/tune/adapter_sum.h"

/* Appends what `words` name, RUN[:WEIGHT],.., to the *n parts that there are. The caller closes all, also
 * after an error. store: "" default */
bt_code bt_adapter_words_open(bt_adapter_part parts[BT_ADAPTER_PARTS], size_t *n, const char *words,
                              const char *store, bt_err *err) BT_MUST_CHECK;

/* The model beside which the adapters in a folder of PEFT are used: `word` (RUN or a path), or if that is empty what
 * the folder's configuration names, where it exists. BT_ARG says what to do otherwise */
bt_code bt_peft_base_of(const char *folder, const char *word, const char *store,
                        char path[PATH_MAX], bt_err *err) BT_MUST_CHECK;

#endif

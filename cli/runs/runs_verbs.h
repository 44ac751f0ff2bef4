/* runs_verbs.h - `bitrain runs rm|tag|note|rename|gc|repair|import`: changes recorded runs. Private to cli. */
#ifndef BT_CLI_RUNS_RUNS_VERBS_H
#define BT_CLI_RUNS_RUNS_VERBS_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/status.h"

typedef struct bt_runs_verb_cfg {
    const char *store;
    const char *name; /* import: name of the run; "": from the file */
    bool clear, yes, checkpoints, rebuild, json;
    int64_t keep_steps; /* -1: unchanged */
} bt_runs_verb_cfg;

/* True if the first word is a verb. No run can be searched for by a verb's name. */
bool bt_runs_is_verb(const char *word);
/* Returns the verb most similar to the word; NULL: none is similar. */
const char *bt_runs_nearest_verb(const char *word);
bt_code bt_runs_verb(const char *verb, const char *const *words, size_t n,
                     const bt_runs_verb_cfg *cfg, bt_err *err) BT_MUST_CHECK;

#endif

/* adapter_words.c - parses RUN:WEIGHT lists and opens the adapters. */
#include "cli/model/adapter_words.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/model/checkpoint_folder.h"
#include "engine/tune/adapters_read.h"
#include "engine/tune/peft_config.h"

/* Opens an adapter given as RUN[:WEIGHT]. */
static bt_code open_adapter_part(bt_adapter_part *p, char *word, const bt_model_cfg *model,
                                 const char *store, bt_err *err) {
    char path[PATH_MAX], *colon = strrchr(word, ':'), *end = NULL;
    p->weight = colon ? strtod(colon + 1, &end) : 1;
    if (colon && (end == colon + 1 || *end || !(fabs(p->weight) <= 100)))
        return bt_fail(err, BT_ARG, "--add '%.100s': '%.40s' is no weight (-100 to 100)", word,
                       colon + 1);
    if (colon) *colon = '\0';
    BT_TRY(bt_trained_folder(word, store, path, err));
    BT_TRY(bt_peft_is(path) ? bt_adapters_open_peft(&p->adapters, path, model, NULL, err)
                            : bt_model_file_open(&p->adapters, path, err));
    BT_TRY(bt_trained_check_newest(&p->adapters->passed_over, p->adapters->path, false, err));
    if (p->adapters->cfg.lora.rank && !p->adapters->cfg.classes) return BT_OK;
    return bt_fail(err, BT_ARG, "--add: '%.200s' holds no adapters to add", p->adapters->path);
}

bt_code bt_adapter_words_open(bt_adapter_part parts[BT_ADAPTER_PARTS], size_t *n, const char *words,
                              const char *store, bt_err *err) {
    char list[2048], *rest = NULL;
    (void)snprintf(list, sizeof list, "%s", words);
    for (char *w = strtok_r(list, ", ", &rest); w; w = strtok_r(NULL, ", ", &rest)) {
        if (*n == BT_ADAPTER_PARTS)
            return bt_fail(err, BT_ARG, "--add: more than %d adapters", (int)BT_ADAPTER_PARTS - 1);
        parts[*n] = (bt_adapter_part){0};
        BT_TRY(open_adapter_part(&parts[(*n)++], w, &parts[0].adapters->cfg, store, err));
    }
    return BT_OK;
}

bt_code bt_peft_base_of(const char *folder, const char *word, const char *store,
                        char path[PATH_MAX], bt_err *err) {
    struct stat st;
    if (word && word[0]) return bt_trained_folder(word, store ? store : "", path, err);
    bt_peft *p = malloc(sizeof *p);
    if (!p) return bt_fail(err, BT_NOMEM, "cannot take memory to read '%s'", folder);
    bt_code code = bt_peft_read(p, folder, NULL, err);
    (void)snprintf(path, PATH_MAX, "%s", code == BT_OK ? p->base : "");
    free(p);
    BT_TRY(code);
    if (path[0] && stat(path, &st) == 0) return BT_OK;
    return bt_fail(err, BT_ARG,
                   "'%.200s' holds adapters of PEFT: give the path of their model with "
                   "--base%s%.200s%s",
                   folder, path[0] ? " (their configuration names '" : "", path,
                   path[0] ? "')" : "");
}

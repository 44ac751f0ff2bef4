/* job_settings.c - writes and reads the settings that all islands of a job share. */
#include "engine/islands/rules/job_settings.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/islands/wire/island_message.h"

enum { VALUE = 4097, WORD_END = 0x1f }; /* VALUE: room for the longest text of a setting. */

/* A prefix that ends with '.' includes all settings that begin with it. */
static const char *const shared[] = {
    "model.",         "optim.",   "islands.",           "data.",
    "parallel.codec", "run.seed", "train.reproducible", "train.parts",
    "train.steps"};
static const char *const own[] = {"model.init_from",     "model.preset",     "islands.hub",
                                  "islands.keys",        "islands.patience", "islands.link_timeout",
                                  "data.path",           "data.val_path",    "data.cache",
                                  "data.glob",           "data.tokenizer",   "data.other",
                                  "data.other_tokenizer"};

static bool is_in_key_list(const char *const *list, size_t n, const char *key) {
    for (size_t i = 0; i < n; i++) {
        const size_t k = strlen(list[i]);
        if (list[i][k - 1] == '.' ? strncmp(key, list[i], k) == 0 : strcmp(key, list[i]) == 0)
            return true;
    }
    return false;
}

static bool is_shared(const char *key) {
    return is_in_key_list(shared, sizeof shared / sizeof *shared, key) &&
           !is_in_key_list(own, sizeof own / sizeof *own, key);
}

/* A list has one word per line (opt.h), but a setting here is one line, so it is separated otherwise. */
static void replace_line_breaks(char *text, char from, char to) {
    for (; *text; text++) *text = *text == from ? to : *text;
}

void bt_job_settings_put(bt_text *out, const bt_run_cfg *cfg, const bt_job_hashes *hashes) {
    const bt_opts o = {.table = bt_run_opts, .n = bt_run_opts_n, .values = (void *)(uintptr_t)cfg};
    bt_text_printf(out, "program=" BITRAIN_VERSION "\nmodel=%016" PRIx64 "\ndata=%016" PRIx64 "\n",
                   hashes->model, hashes->data);
    for (size_t i = 0; i < o.n; i++) {
        if (!is_shared(o.table[i].key)) continue;
        bt_text_printf(out, "%s=", o.table[i].key);
        const size_t begin = out->len;
        bt_opt_value(&o, i, out);
        if (!out->failed) replace_line_breaks(out->data + begin, '\n', WORD_END);
        bt_text_put(out, "\n");
    }
}

bt_code bt_job_settings_read(bt_run_cfg *out, const char *text, size_t n, bt_err *err) {
    bt_opts o;
    char value[VALUE];
    BT_TRY(bt_opts_init(&o, bt_run_opts, bt_run_opts_n, out, err));
    for (size_t i = 0; i < o.n; i++) {
        const char *key = o.table[i].key;
        if (!is_shared(key)) continue;
        if (!bt_island_line(text, n, key, value, sizeof value))
            return bt_fail(
                err, BT_ARG,
                "the line '%s' of the island's settings is not a setting of this program", key);
        replace_line_breaks(value, WORD_END, '\n');
        BT_TRY(bt_opts_set(&o, key, value, BT_FROM_FLAG, "island", err));
    }
    out->train.micro_batch = out->train.accum = 1;
    out->train.batch_tokens = out->model.seq_len;
    out->mesh.dp_replicate = out->mesh.dp_shard = out->mesh.tp = out->mesh.pp = out->launch.ranks =
        1;
    out->mesh.zero = 0;
    return BT_OK;
}

bt_code bt_job_settings_compare(const char *job, const char *other, bt_err *err) {
    char mine[VALUE], theirs[VALUE], key[64];
    for (const char *line = job; *line;) {
        const char *end = strchr(line, '\n'), *equals = strchr(line, '=');
        if (!end || !equals || equals > end || (size_t)(equals - line) >= sizeof key) break;
        snprintf(key, sizeof key, "%.*s", (int)(equals - line), line);
        line = end + 1;
        const bool hash = strcmp(key, "model") == 0 || strcmp(key, "data") == 0 ||
                          strcmp(key, "program") == 0;
        if (!hash && !is_shared(key))
            continue; /* settings such as the island's name and host are not shared */
        if (!bt_island_line(job, strlen(job), key, mine, sizeof mine)) continue;
        if (!bt_island_line(other, strlen(other), key, theirs, sizeof theirs)) theirs[0] = 0;
        if (strcmp(mine, theirs) == 0) continue;
        replace_line_breaks(mine, WORD_END, ' ');
        replace_line_breaks(theirs, WORD_END, ' ');
        const char *what = strcmp(key, "model") == 0  ? "the model (by hash)"
                           : strcmp(key, "data") == 0 ? "the data or the tokenizer (by hash)"
                                                      : key;
        return bt_fail(err, BT_ARG,
                       "islands of one job must have the same settings: %s is '%s' here and '%s' "
                       "in the job of the hub",
                       what, theirs, mine);
    }
    return BT_OK;
}

/* metric_names.c - the metric that a name of another program means. */
#include <stdio.h>
#include <string.h>

#include "engine/base/system/ascii.h"
#include "store/import/foreign_run.h"

static const struct {
    const char *name;
    int metric, of_validation; /* -1: none */
} names[] = {
    {"loss", BT_MS_LOSS, BT_MS_VAL_LOSS},
    {"accuracy", BT_MS_ACCURACY, BT_MS_VAL_ACCURACY},
    {"acc", BT_MS_ACCURACY, BT_MS_VAL_ACCURACY},
    {"mean_token_accuracy", BT_MS_ACCURACY, BT_MS_VAL_ACCURACY},
    {"f1", -1, BT_MS_VAL_F1},
    {"rewards/margins", BT_MS_REWARD_MARGIN, BT_MS_VAL_MARGIN},
    {"lr", BT_MS_LR, -1},
    {"learning_rate", BT_MS_LR, -1},
    {"learning-rate", BT_MS_LR, -1},
    {"grad_norm", BT_MS_GRAD_NORM, -1},
    {"grad-norm", BT_MS_GRAD_NORM, -1},
    {"gradient_norm", BT_MS_GRAD_NORM, -1},
    {"loss_scale", BT_MS_LOSS_SCALE, -1},
    {"loss-scale", BT_MS_LOSS_SCALE, -1},
    {"tokens", BT_MS_TOKENS, -1},
    {"num_tokens", BT_MS_TOKENS, -1},
    {"total_tokens", BT_MS_TOKENS, -1},
    {"consumed_tokens", BT_MS_TOKENS, -1},
    {"num_input_tokens_seen", BT_MS_TOKENS, -1},
    {"tokens_per_s", BT_MS_TOKENS_PER_S, -1},
    {"tokens_per_second", BT_MS_TOKENS_PER_S, -1},
    {"tokens_per_sec", BT_MS_TOKENS_PER_S, -1},
};
static const char *const step_names[] = {"step",      "_step", "global_step", "trainer/global_step",
                                         "iteration", "iter",  "steps",       "current_steps"};
static const char *const wall_names[] = {"wall_time", "wall time", "timestamp", "_timestamp"};
static const char *const training[] = {"train", "training"};
static const char *const validation[] = {"eval", "val", "valid", "validation", "test", "dev"};

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* Copies the name in lower case, without the run's name of a CSV file of Weights & Biases. */
static void lower_name(char *out, size_t size, const char *name) {
    const char *from = name;
    for (const char *cut = strstr(name, " - "); cut; cut = strstr(cut + 3, " - ")) from = cut + 3;
    size_t n = 0;
    for (; from[n] && n + 1 < size; n++) out[n] = bt_ascii_lower(from[n]);
    out[n] = '\0';
}

static bool is_among(const char *name, const char *const *list, size_t n) {
    char lower[160];
    lower_name(lower, sizeof lower, name);
    for (size_t i = 0; i < n; i++)
        if (strcmp(lower, list[i]) == 0) return true;
    return false;
}

bool bt_is_step_name(const char *name) { return is_among(name, step_names, COUNT(step_names)); }
bool bt_is_wall_name(const char *name) { return is_among(name, wall_names, COUNT(wall_names)); }

/* Returns the name behind `word` and '/' or '_'; NULL: the name does not begin with them. */
static char *strip_leading_word(char *name, const char *word) {
    const size_t n = strlen(word);
    return strncmp(name, word, n) == 0 && (name[n] == '/' || name[n] == '_') ? name + n + 1 : NULL;
}

static char *strip_any_leading_word(char *name, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char *rest = strip_leading_word(name, words[i]);
        if (rest) return rest;
    }
    return NULL;
}

/* "loss/eval": cuts the name at '/', and returns true, if one of the words ends it. */
static bool cut_last_word(char *name, const char *const *words, size_t n) {
    char *slash = strrchr(name, '/');
    for (size_t i = 0; slash && i < n; i++)
        if (strcmp(slash + 1, words[i]) == 0) {
            *slash = '\0';
            return true;
        }
    return false;
}

static int find_step_metric(const char *name) {
    for (int i = 0; i < BT_MS_COUNT; i++)
        if (strcmp(bt_scopes[BT_SCOPE_STEP].metric[i].key, name) == 0) return i;
    return -1;
}

int bt_metric_of_name(const char *name) {
    char lower[160], *base = lower, *rest;
    lower_name(lower, sizeof lower, name);
    if (find_step_metric(base) >= 0) return find_step_metric(base);
    bool evaluated = cut_last_word(base, validation, COUNT(validation));
    if (!evaluated) (void)cut_last_word(base, training, COUNT(training));
    if ((rest = strip_any_leading_word(base, training, COUNT(training)))) base = rest;
    for (int p = 0; p < BT_PANEL_COUNT && base == lower; p++) {
        char *slash = strchr(base, '/');
        const size_t n = strlen(bt_panel_name((bt_metric_panel)p));
        if (slash == base + n && strncmp(base, bt_panel_name((bt_metric_panel)p), n) == 0)
            base = slash + 1;
    }
    if (!evaluated && find_step_metric(base) >= 0) return find_step_metric(base);
    if ((rest = strip_any_leading_word(base, validation, COUNT(validation)))) {
        base = rest;
        evaluated = true;
    }
    for (size_t i = 0; i < COUNT(names); i++)
        if (strcmp(base, names[i].name) == 0)
            return evaluated ? names[i].of_validation : names[i].metric;
    return -1;
}

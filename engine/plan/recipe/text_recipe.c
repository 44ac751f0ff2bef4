/* text_recipe.c - settings for a run on little text: tables of fitted values, and their lookup. */
#include "engine/plan/recipe/text_recipe.h"

#include <math.h>
#include <stdio.h>

/* Number of tokens in the vocabulary that is trained on a text of at least so many bytes, for a training of less than
 * LONG_MINUTES and for a longer one; 0: bytes are the tokens. Larger tokens let a step read more text, but the model
 * sees each token less often. */
static const struct {
    uint64_t bytes;
    int tokens, tokens_of_long;
} vocabs[] = {{64 << 20, 8192, 8192}, {16 << 20, 4096, 4096}, {2 << 20, 2048, 4096},
              {1 << 20, 1024, 1024},  {1 << 17, 512, 512},    {0, 0, 0}};
static const double LONG_MINUTES = 5;

/* Models to choose from, smallest first: layers, width, heads, feed-forward width. The largest model is chosen that
 * trains at least TOKENS_PER_PARAM tokens per parameter in the available time, or else the smallest. */
static const bt_recipe_shape shapes[] = {
    {4, 128, 4, 344}, {6, 192, 6, 512}, {6, 256, 8, 688}, {8, 320, 10, 856}, {8, 384, 12, 1024}};
static const double TOKENS_PER_PARAM = 1.2;

/* Tokens per step for a run with fewer tokens in total than this. Small steps learn more from each token, but optimizer
 * and gradient exchange take a larger share of the time. */
static const struct {
    double run_tokens;
    int64_t step_tokens;
} batches[] = {{1.5e6, 512}, {3e6, 1024}, {16e6, 2048}, {INFINITY, 4096}};

/* Values of settings for a run whose pressure to memorise is up to 8, 100, 300, 600, 1500, or above. The pressure is
 * the number of passes over the text times the parameters per token of the text. "": the default. The values were
 * fitted to tests/bench/results/little_text.md. */
enum { COLUMNS = 6 };
static const double PRESSURES[COLUMNS - 1] = {8, 100, 300, 600, 1500};
static const struct {
    const char *key, *value[COLUMNS];
} strengths[] = {
    {"train.token_noise", {"", "0.1", "0.1", "0.2", "0.3", "0.5"}},
    {"train.dropout", {"", "", "0.1", "0.1", "0.2", "0.3"}},
    {"optim.weight_decay", {"", "", "", "", "", "0.5"}},
    /* noise would begin after these steps */
    {"train.share_steps", {"", "", "", "0", "0", "0"}},
};
/* For up to this many passes repeated text is as useful as new text, and a run needs no regulariser. */
static const double FREE_PASSES = 4;
/* The average of the weights has a half-life of this share of the steps. */
static const char *const AVERAGE = "optim.average";
static const double AVERAGE_SHARE = 1.0 / 15;

int bt_recipe_vocab(uint64_t text_bytes, double minutes) {
    size_t i = 0;
    while (text_bytes < vocabs[i].bytes) i++;
    return minutes < LONG_MINUTES ? vocabs[i].tokens : vocabs[i].tokens_of_long;
}

size_t bt_recipe_shapes(void) { return sizeof shapes / sizeof shapes[0]; }
const bt_recipe_shape *bt_recipe_shape_at(size_t i) { return &shapes[i]; }

size_t bt_recipe_choose(const double *tokens, const double *params) {
    size_t best = 0;
    for (size_t i = 0; i < bt_recipe_shapes(); i++)
        if (tokens[i] >= TOKENS_PER_PARAM * params[i]) best = i;
    return best;
}

int64_t bt_recipe_batch(double run_tokens, int64_t unit) {
    size_t i = 0;
    while (run_tokens >= batches[i].run_tokens) i++;
    return (batches[i].step_tokens + unit - 1) / unit * unit;
}

enum { TABLE = sizeof strengths / sizeof strengths[0] };

size_t bt_recipe_strengths(void) { return TABLE + 1; }

bt_recipe_strength bt_recipe_strength_at(size_t i, const bt_recipe_run *r) {
    bt_recipe_strength s = {.key = i < TABLE ? strengths[i].key : AVERAGE};
    const double pressure = r->passes * r->params / r->text_tokens;
    const double half_life = round(AVERAGE_SHARE * r->steps);
    size_t column = 0;
    if (r->passes <= FREE_PASSES) return s;
    while (column < COLUMNS - 1 && pressure > PRESSURES[column]) column++;
    if (i < TABLE)
        snprintf(s.value, sizeof s.value, "%s", strengths[i].value[column]);
    else if (half_life >= 1)
        snprintf(s.value, sizeof s.value, "%.0f", half_life);
    return s;
}

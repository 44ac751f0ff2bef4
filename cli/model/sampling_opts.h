/* sampling_opts.h - sampling settings that `generate` and `serve` share: fields, rows of an option table, and the stop
 * strings of a command line. */
#ifndef BT_CLI_MODEL_SAMPLING_OPTS_H
#define BT_CLI_MODEL_SAMPLING_OPTS_H

#include "engine/base/opt.h"
#include "engine/base/text.h"
#include "engine/model/net/sampler.h"

typedef struct bt_sampling_opts {
    double temperature, top_p, min_p, repeat_penalty;
    int64_t top_k, seed;
} bt_sampling_opts;

#define BT_SAMPLING_FIELD(s, f) offsetof(s, sampling.f), sizeof(((s *)0)->sampling.f)
/* Rows for a struct s with a member bt_sampling_opts sampling. */
#define BT_SAMPLING_OPTS(s) \
    {"temperature", "--temperature", \
     BT_OPT_REAL,   BT_SAMPLING_FIELD(s, temperature), \
     "0.8",         0, \
     100,           NULL, \
     NULL,          "0: always the most likely token"}, \
        {"top_k",    "--top-k", \
         BT_OPT_INT, BT_SAMPLING_FIELD(s, top_k), \
         "0",        0, \
         1e9,        NULL, \
         "tokens",   "choose among the N most likely (0: all)"}, \
        {"top_p",     "--top-p", \
         BT_OPT_REAL, BT_SAMPLING_FIELD(s, top_p), \
         "0.95",      0, \
         1,           NULL, \
         NULL,        "choose among the most likely that sum to this probability (1: all; 0: one)"}, \
        {"min_p",     "--min-p", \
         BT_OPT_REAL, BT_SAMPLING_FIELD(s, min_p), \
         "0",         0, \
         1,           NULL, \
         NULL,        "minimum probability as a share of the most likely token's (0: none)"}, \
        {"repeat_penalty", \
         "--repeat-penalty", \
         BT_OPT_REAL, \
         BT_SAMPLING_FIELD(s, repeat_penalty), \
         "1", \
         0.01, \
         100, \
         NULL, \
         NULL, \
         "divisor of the logits of tokens that have occurred (1: off; 1.1 is usual)"}, \
    { \
        "seed", "--seed", BT_OPT_INT, BT_SAMPLING_FIELD(s, seed), "1", 0, 9007199254740992.0, \
            NULL, NULL, "the same seed gives the same text" \
    }

bt_sampling bt_sampling_of(const bt_sampling_opts *o);

enum { BT_STOPS_MAX = 16 };
/* Converts the lines of a BT_OPT_LIST to stop strings, with the escapes \n, \t, \r and \\. text: holds their bytes,
 * each string terminated by NUL. BT_ARG: more than BT_STOPS_MAX, or another escape. */
bt_code bt_stops_of(const char *lines, bt_text *text, const char *stops[BT_STOPS_MAX], size_t *n,
                    bt_err *err) BT_MUST_CHECK;

#endif

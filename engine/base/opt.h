/* opt.h - parses and validates typed options that tables declare, and stores their defaults, origins and help.
 *
 * A table describes the members of one struct. If several sources set an option, the strongest origin determines the
 * value: flag > set > env > file > preset > default. The type in the table determines how text is parsed, also for YAML
 * scalars. Threads: no shared state. */
#ifndef BT_ENGINE_BASE_OPT_H
#define BT_ENGINE_BASE_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"
#include "engine/base/text.h"

typedef enum {
    BT_OPT_INT,  /* int64_t; accepts 4096, 4k (4000), 4Ki (4096), 2M, 1e6 when whole */
    BT_OPT_REAL, /* double */
    /* bool; true/false/on/off/yes/no/1/0; a bare --flag means true, --no-flag false */
    BT_OPT_BOOL,
    BT_OPT_TEXT, /* char[size] */
    BT_OPT_ENUM, /* int: index into choices */
    /* char[size]: items separated by '\n'; the flag consumes all words before the next option */
    BT_OPT_LIST
} bt_opt_type;

typedef enum {
    BT_FROM_DEFAULT,
    BT_FROM_PRESET,
    BT_FROM_FILE,
    BT_FROM_ENV,
    BT_FROM_SET,
    BT_FROM_FLAG
} bt_opt_origin;

typedef struct bt_opt {
    /* Name in YAML, --set and --print-config: "optim.lr"; in the environment BITRAIN_OPTIM_LR. */
    const char *key;
    const char *flag; /* "--lr"; NULL: only --set reaches the option */
    bt_opt_type type;
    size_t offset, size; /* position of the field in the struct */
    const char *def;     /* default as text; "" for empty text */
    double min, max;     /* INT and REAL, inclusive */
    const char *choices; /* ENUM: "bf16|fp32|fp16" */
    const char *unit;    /* "tokens", "ms", or NULL */
    const char *help;    /* one line */
} bt_opt;

/* Members `offset` and `size` for the member f of the struct S. */
#define BT_FIELD(S, f) offsetof(S, f), sizeof(((S *)0)->f)
#define BT_ROW_FLAG(S, f, flag, help) BT_ROW_BOOL(S, f, flag, "false", help)
#define BT_ROW_BOOL(S, f, flag, def, help) \
    { #f, flag, BT_OPT_BOOL, BT_FIELD(S, f), def, 0, 0, NULL, NULL, help }
#define BT_ROW_TEXT(S, f, flag, def, help) \
    { #f, flag, BT_OPT_TEXT, BT_FIELD(S, f), def, 0, 0, NULL, NULL, help }
#define BT_ROW_LIST(S, f, flag, def, help) \
    { #f, flag, BT_OPT_LIST, BT_FIELD(S, f), def, 0, 0, NULL, NULL, help }
#define BT_ROW_ENUM(S, f, flag, def, choices, help) \
    { #f, flag, BT_OPT_ENUM, BT_FIELD(S, f), def, 0, 0, choices, NULL, help }
#define BT_ROW_INT(S, f, flag, def, min, max, unit, help) \
    { #f, flag, BT_OPT_INT, BT_FIELD(S, f), def, min, max, NULL, unit, help }
#define BT_ROW_REAL(S, f, flag, def, min, max, unit, help) \
    { #f, flag, BT_OPT_REAL, BT_FIELD(S, f), def, min, max, NULL, unit, help }

typedef struct bt_opt_alias {
    const char *key;
    const char *ours; /* "": there is no equivalent option */
    /* How values are translated; other values are errors.
     *   "a=b|c=|*"   a becomes b; c is accepted without effect; all other values are unchanged
     *   "a=b;k=v"    like "a=b", and v becomes the default of option k
     *   "@"          the value names one or more existing files, one per line
     *   "%"          numbers separated by commas, which become colons
     *   "?"          any value is added to bt_opts.deferred
     *   "~"          the key has no meaning here: any value is ignored and added to bt_opts.ignored */
    const char *values;
    const char *why; /* advice for a refused value, appended to "'key: value' " */
} bt_opt_alias;

/* A setting of an earlier version. Its former default is accepted without effect; any other value is an error. If def
 * is NULL, key is "KEY=VALUE", a value that an existing setting no longer accepts. */
typedef struct bt_opt_removed {
    const char *key, *def;
    const char *remedy; /* completes "KEY=VALUE was removed (...)" */
} bt_opt_removed;

/* Value of a key marked "?", which the caller translates after the whole file has been read. */
typedef struct bt_opt_deferred {
    const bt_opt_alias *alias;
    char text[1024], where[300]; /* value (a list has one item per line), and "FILE:LINE:COLUMN" */
} bt_opt_deferred;

enum { BT_OPT_MAX = 512, BT_OPT_DEFERRED_MAX = 8 };

typedef struct bt_opt_set_state {
    const bt_opt *table;
    size_t n;
    void *values; /* the struct */
    bt_opt_origin origin[BT_OPT_MAX];
    char where[BT_OPT_MAX][48]; /* "conf.yaml:12", "--lr", "BITRAIN_OPTIM_LR", "preset nano" */
    /* Set after init: keys of other programs that bt_opts_yaml accepts; NULL: none. */
    const bt_opt_alias *aliases;
    size_t n_aliases;
    const bt_opt_removed *removed; /* set after init: settings of earlier versions; NULL: none */
    size_t n_removed;
    /* Set after init, or NULL: a table whose flags users often use here, advice for them, and for superfluous words. */
    const bt_opt *other_table;
    size_t n_other;
    const char *other_hint, *word_hint;
    /* Set after init. NULL: the first wrong setting is an error. Otherwise each wrong setting is appended as a line. */
    bt_text *faults;
    /* Set after init, may be NULL. `ignored` receives the ignored keys of a file; `taken` the keys of other programs
     * and the options that they set. Entries are separated by ", ". */
    bt_text *ignored, *taken;
    bt_opt_deferred deferred[BT_OPT_DEFERRED_MAX];
    size_t n_deferred;
} bt_opts;

bt_code bt_opts_init(bt_opts *o, const bt_opt *table, size_t n, void *values, bt_err *err)
    BT_MUST_CHECK;
/* Sets one option. If the key is unknown, the error names the nearest key; if type or range is wrong, it names the
 * allowed values. where: source of the setting, for messages and origins. */
bt_code bt_opts_set(bt_opts *o, const char *key, const char *text, bt_opt_origin from,
                    const char *where, bt_err *err) BT_MUST_CHECK;
/* Sets *found if the key is a removed setting. BT_ARG: the text is not its former default, or no longer a value. */
bt_code bt_opt_check_removed(const bt_opt_removed *table, size_t n, const char *key,
                             const char *text, bool *found, bt_err *err) BT_MUST_CHECK;
/* Writes the environment variable of a key, or of a flag without dashes: BITRAIN_OPTIM_LR for "optim.lr". */
void bt_opt_env_name(char *out, size_t size, const char *name);
/* Reads BITRAIN_<KEY> and then BITRAIN_<FLAG> of every option, such as BITRAIN_OPTIM_LR and BITRAIN_LR. */
bt_code bt_opts_env(bt_opts *o, bt_err *err) BT_MUST_CHECK;
/* Reads a strict subset of YAML: nested mappings of scalars and lists of scalars; for keys of other programs also lists
 * of flat mappings. Refuses aliases, anchors, tags, duplicate keys and a second document. */
bt_code bt_opts_yaml(bt_opts *o, const char *path, bt_err *err) BT_MUST_CHECK;
/* Reads argv after the command: options, and up to max_pos positional words; one more word is an error. Accepts `--`,
 * `--flag=value` and `--set key=value`. `--help` or -h sets *help. */
bt_code bt_opts_argv(bt_opts *o, int argc, char *const *argv, const char **positional,
                     size_t max_pos, size_t *n_pos, bool *help, bt_err *err) BT_MUST_CHECK;
/* Appends the value of option i as text that bt_opts_set converts to the same value. */
void bt_opt_value(const bt_opts *o, size_t i, bt_text *out);
const char *bt_origin_name(bt_opt_origin origin);
/* Returns the argument in help texts: "N", "X", "a|b", "TEXT", "PATH...", "". */
const char *bt_opt_argument(const bt_opt *opt);
size_t bt_opt_find(const bt_opt *table, size_t n, const char *key); /* n: not found */
/* Returns true if a flag, a configuration file or the environment has set the option; false for an unknown key. */
bool bt_opts_given(const bt_opts *o, const char *key);
/* Appends lines of the form "  --lr X   help (default 2e-3)". */
void bt_opt_help(const bt_opt *table, size_t n, bt_text *out);

#endif

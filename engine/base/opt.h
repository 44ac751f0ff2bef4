/* opt.h - parses and validates typed options declared in tables, and keeps their defaults, origins and help.
 *
 * A table describes the fields of one struct. A setting may be given by several sources; the strongest origin wins:
 * flag > set > env > file > preset > default. The type in the table determines how text is parsed, also for YAML
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
    /* "optim.lr": in YAML, --set and --print-config; BITRAIN_OPTIM_LR in the environment */
    const char *key;
    const char *flag; /* "--lr", or NULL: reachable by --set only */
    bt_opt_type type;
    size_t offset, size; /* position of the field in the struct */
    const char *def;     /* default as text; "" for empty text */
    double min, max;     /* INT and REAL, inclusive */
    const char *choices; /* ENUM: "bf16|fp32|fp16" */
    const char *unit;    /* "tokens", "ms", or NULL */
    const char *help;    /* one line */
} bt_opt;

/* Fields of a row. The key is the name of the field f of the struct S; rows whose key differs are written with
 * BT_FIELD. */
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

/* A top-level key in the configuration files of other programs. */
typedef struct bt_opt_alias {
    const char *key;
    const char *ours; /* "": there is no equivalent option */
    /* How values are translated; values that are not listed are refused.
     *   "a=b|c=|*"   a becomes b; c is accepted without effect; all other values are unchanged
     *   "a=b;k=v"    as "a=b", and v becomes the default of option k
     *   "@"          the value names one or more existing files, one per line
     *   "%"          numbers separated by commas, which become colons
     *   "?"          any value is added to bt_opts.deferred
     *   "~"          the key has no meaning here: any value is ignored and added to bt_opts.ignored */
    const char *values;
    const char *why; /* remedy for refused values, appended to "'key: value' " */
} bt_opt_alias;

/* A setting of an earlier version: its former default is accepted without effect, any other value is refused. If key is
 * "KEY=VALUE" and def is NULL, the row is a value that an existing setting no longer has. */
typedef struct bt_opt_removed {
    const char *key, *def;
    const char *remedy; /* completes "KEY=VALUE was removed (...)" */
} bt_opt_removed;

/* A value of a key marked "?", which the caller translates after the whole file has been read. */
typedef struct bt_opt_deferred {
    const bt_opt_alias *alias;
    char text[1024], where[300]; /* value (a list: one item per line), and "FILE:LINE:COLUMN" */
} bt_opt_deferred;

enum { BT_OPT_MAX = 512, BT_OPT_DEFERRED_MAX = 8 };

typedef struct bt_opt_set_state { /* origins of one struct's fields */
    const bt_opt *table;
    size_t n;
    void *values; /* the struct */
    bt_opt_origin origin[BT_OPT_MAX];
    /* "conf.yaml:12", "--lr", "BITRAIN_OPTIM_LR", "preset nano" */
    char where[BT_OPT_MAX][48];
    /* set after init: keys of other programs accepted by bt_opts_yaml; NULL: none */
    const bt_opt_alias *aliases;
    size_t n_aliases;
    const bt_opt_removed *removed; /* set after init; NULL: none */
    size_t n_removed;
    /* set after init, may be NULL: a table whose flags users pass to this one by mistake, the hint for such flags, and
     * the hint for a superfluous word */
    const bt_opt *other_table;
    size_t n_other;
    const char *other_hint, *word_hint;
    /* set after init: if not NULL, reading continues after a wrong setting and appends one line per wrong setting;
     * NULL: the first wrong setting ends reading */
    bt_text *faults;
    /* set after init, may be NULL: `ignored` receives the ignored keys of a file; `taken` the keys of other programs
     * with the options that they set; separated by ", " */
    bt_text *ignored, *taken;
    bt_opt_deferred deferred[BT_OPT_DEFERRED_MAX];
    size_t n_deferred;
} bt_opts;

/* Sets all options to their defaults. */
bt_code bt_opts_init(bt_opts *o, const bt_opt *table, size_t n, void *values, bt_err *err)
    BT_MUST_CHECK;
/* Sets one key. The error names the nearest key if the key is unknown, and the allowed values if the type or range is
 * wrong. where: source of the setting, for messages and origins. */
bt_code bt_opts_set(bt_opts *o, const char *key, const char *text, bt_opt_origin from,
                    const char *where, bt_err *err) BT_MUST_CHECK;
/* Sets *found if the key is a removed setting. BT_ARG: the text is not its former default, or is a removed value. */
bt_code bt_opt_check_removed(const bt_opt_removed *table, size_t n, const char *key,
                             const char *text, bool *found, bt_err *err) BT_MUST_CHECK;
/* Writes the environment variable of a key, or of a flag without dashes: "optim.lr" gives BITRAIN_OPTIM_LR. */
void bt_opt_env_name(char *out, size_t size, const char *name);
/* Reads BITRAIN_<KEY> (BITRAIN_OPTIM_LR) and then BITRAIN_<FLAG> (BITRAIN_LR) of every option. */
bt_code bt_opts_env(bt_opts *o, bt_err *err) BT_MUST_CHECK;
/* Reads a strict subset of YAML: nested mappings of scalars and lists of scalars; for keys of other programs also lists
 * of flat mappings. Refuses aliases, anchors, tags, duplicate keys and a second document. */
bt_code bt_opts_yaml(bt_opts *o, const char *path, bt_err *err) BT_MUST_CHECK;
/* Reads argv without the command: consumes options and collects up to max_pos positional words (the error for one more
 * names it). Accepts `--`, `--flag=value` and `--set key=value`. `--help` or -h sets *help. */
bt_code bt_opts_argv(bt_opts *o, int argc, char *const *argv, const char **positional,
                     size_t max_pos, size_t *n_pos, bool *help, bt_err *err) BT_MUST_CHECK;
/* Appends the value of option i as text that bt_opts_set converts back to the same value. */
void bt_opt_value(const bt_opts *o, size_t i, bt_text *out);
const char *bt_origin_name(bt_opt_origin origin);
/* the argument in help texts: "N", "X", "a|b", "TEXT", "PATH...", "" */
const char *bt_opt_argument(const bt_opt *opt);
size_t bt_opt_find(const bt_opt *table, size_t n, const char *key); /* n: there is none */
/* true if set by a flag, a configuration file or the environment; false for an unknown key */
bool bt_opts_given(const bt_opts *o, const char *key);
/* Appends lines of the form "  --lr X   help (default 2e-3)". */
void bt_opt_help(const bt_opt *table, size_t n, bt_text *out);

#endif

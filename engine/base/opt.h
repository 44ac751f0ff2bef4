/* opt.h - typed options declared in tables: parsing, defaults, validation, origins, help.
 *
 * A table describes the fields of one struct. Settings may have several sources; a later `bt_opt_set` with a
 * stronger origin wins, a weaker one is ignored: flag > set > env > file > preset > default. The type in the table
 * determines how text is parsed (YAML scalars are text too). Threads: no shared state. */
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
    /* char[size]: items separated by '\n'; the flag takes all following words up to the next
     * option */
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

/* Rows of an option table. The key is the name of the field f of the struct S; where the names differ, the row is
 * written out with BT_FIELD. */
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

/* A key that the files of other programs have, at their top level */
typedef struct bt_opt_alias {
    const char *key;
    const char *ours; /* "": there is no equivalent option */
    /* "a=b|c=|*": value a becomes b, c is accepted without effect, all other values are unchanged. "a=b;k=v" also
     * makes v the default of option k. "@": a name, or names in lines, of files that exist. "%": numbers, the commas
     * between them become colons. "?": any value is added to bt_opts.deferred. "~": the key has no meaning here; any
     * value is ignored and added to bt_opts.ignored */
    const char *values;
    const char *why; /* remedy for values that are not listed, appended to "'key: value' " */
} bt_opt_alias;

/* A setting of an earlier version. Its former default is accepted and changes nothing, any other value is refused.
 * Or, where key is "KEY=VALUE" and def is NULL, a value that a setting no longer has. */
typedef struct bt_opt_removed {
    const char *key, *def;
    const char *remedy; /* completes "KEY=VALUE was removed (...)" */
} bt_opt_removed;

/* A value of a key "?": the caller translates it when the whole file is read */
typedef struct bt_opt_deferred {
    const bt_opt_alias *alias;
    char text[1024], where[300]; /* the value, a list as lines; "FILE:LINE:COLUMN" */
} bt_opt_deferred;

enum { BT_OPT_MAX = 384, BT_OPT_DEFERRED_MAX = 8 };

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
    /* set after init: wrong settings are collected here, a line each, and reading continues; NULL: the first one ends
     * it */
    bt_text *faults;
    /* set after init, may be NULL: keys of a file that were ignored, and keys of other programs with the options that
     * they set; ", " between them */
    bt_text *ignored, *taken;
    bt_opt_deferred deferred[BT_OPT_DEFERRED_MAX];
    size_t n_deferred;
} bt_opts;

/* sets defaults */
bt_code bt_opts_init(bt_opts *o, const bt_opt *table, size_t n, void *values, bt_err *err)
    BT_MUST_CHECK;
/* Sets one key. For an unknown key the error suggests the nearest, for a wrong type or range it lists the allowed
 * values. where: source of the setting, for messages and origins */
bt_code bt_opts_set(bt_opts *o, const char *key, const char *text, bt_opt_origin from,
                    const char *where, bt_err *err) BT_MUST_CHECK;
/* *found: key is a removed setting; BT_ARG when text is not its former default, or a removed value */
bt_code bt_opt_check_removed(const bt_opt_removed *table, size_t n, const char *key,
                             const char *text, bool *found, bt_err *err) BT_MUST_CHECK;
/* the variable of a key or flag without dashes: "optim.lr" is BITRAIN_OPTIM_LR */
void bt_opt_env_name(char *out, size_t size, const char *name);
/* every BITRAIN_<KEY> (BITRAIN_OPTIM_LR) or, after it, BITRAIN_<FLAG> (BITRAIN_LR) that is set */
bt_code bt_opts_env(bt_opts *o, bt_err *err) BT_MUST_CHECK;
/* YAML, strict subset: nested mappings of scalars and lists of scalars, and for keys of other programs
 * lists of flat mappings. No aliases, anchors, tags,
 * duplicates, second document. */
bt_code bt_opts_yaml(bt_opts *o, const char *path, bt_err *err) BT_MUST_CHECK;
/* argv without the command; consumes options, collects up to max_pos positional words (more is an
 * error naming the word); understands `--`, `--flag=value`, `--set key=value`. `--help`/-h sets
 * *help. */
bt_code bt_opts_argv(bt_opts *o, int argc, char *const *argv, const char **positional,
                     size_t max_pos, size_t *n_pos, bool *help, bt_err *err) BT_MUST_CHECK;
/* value of option i as text that bt_opts_set reads back to the same value */
void bt_opt_value(const bt_opts *o, size_t i, bt_text *out);
const char *bt_origin_name(bt_opt_origin origin);
/* "N", "X", "a|b", "TEXT", "PATH...", "" */
const char *bt_opt_argument(const bt_opt *opt);
size_t bt_opt_find(const bt_opt *table, size_t n, const char *key); /* n when absent */
/* true if set by a flag, a configuration file or the environment; false for an unknown key */
bool bt_opts_given(const bt_opts *o, const char *key);
/* "  --lr X   help (default 2e-3)" lines */
void bt_opt_help(const bt_opt *table, size_t n, bt_text *out);

#endif

/* read_json_rows.c - rows as JSON objects: one for each line, one list, or the member "log_history" of the
 * trainer_state.json that the Trainer of Hugging Face saves. */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "store/import/foreign_run.h"

/* Replaces NaN and Infinity, which Python's json module writes and JSON does not have, by an empty object, which
 * add_json_row skips. */
static void replace_non_finite(char *text) {
    static const char *const words[] = {"-Infinity", "Infinity", "NaN"};
    bool in_string = false;
    for (char *at = text; *at; at++) {
        if (*at == '\\' && in_string && at[1])
            at++;
        else if (*at == '"')
            in_string = !in_string;
        for (size_t i = 0; !in_string && i < sizeof words / sizeof *words; i++) {
            const size_t n = strlen(words[i]);
            if (strncmp(at, words[i], n) != 0) continue;
            memset(at, ' ', n);
            memcpy(at, "{}", 2);
            break;
        }
    }
}

static bool add_json_row(bt_foreign_run *r, json_t *row) {
    const char *key;
    json_t *v;
    double step = NAN, wall = NAN;
    json_object_foreach(row, key, v) {
        if (json_is_number(v) && bt_is_step_name(key)) step = json_number_value(v);
        if (json_is_number(v) && bt_is_wall_name(key)) wall = json_number_value(v);
    }
    /* The last row of a trainer's history has means of the whole run. */
    if (!(fabs(step) < 1e15) || json_object_get(row, "train_runtime")) return true;
    json_object_foreach(row, key, v) {
        const bool missing = json_is_null(v) || (json_is_object(v) && json_object_size(v) == 0);
        if (missing || bt_is_step_name(key) || bt_is_wall_name(key)) continue;
        const bool ok = json_is_number(v)
                            ? bt_foreign_run_add(r, (int64_t)step, wall, key, json_number_value(v))
                            : bt_foreign_run_unused(r, key);
        if (!ok) return false;
    }
    return true;
}

static bool add_json_list(bt_foreign_run *r, json_t *list) {
    size_t i;
    json_t *row;
    json_array_foreach(list, i, row) {
        if (json_is_object(row) && !add_json_row(r, row)) return false;
    }
    return true;
}

bt_code bt_read_json_rows(bt_foreign_run *r, const char *path, char *text, bt_err *err) {
    int64_t line = 1;
    replace_non_finite(text);
    for (const char *at = text; *at;) {
        json_error_t why;
        json_t *v = json_loads(at, JSON_DISABLE_EOF_CHECK | JSON_REJECT_DUPLICATES, &why);
        if (!v) {
            const bool ends = why.position >= (int)strlen(at);
            if (ends && at != text && r->n) {
                bt_text_printf(&r->notes, "note: the last line of '%s' is incomplete\n", path);
                return BT_OK;
            }
            return bt_fail(err, BT_FORMAT, "'%s', line %lld: %s", path,
                           (long long)(line + why.line - 1), why.text);
        }
        json_t *history = json_object_get(v, "log_history");
        const bool ok = json_is_array(history) ? add_json_list(r, history)
                        : json_is_array(v)     ? add_json_list(r, v)
                        : json_is_object(v)    ? add_json_row(r, v)
                                               : true;
        json_decref(v);
        if (!ok) return bt_fail(err, BT_NOMEM, "no memory for '%s'", path);
        for (const char *end = at + why.position; at < end; at++) line += *at == '\n';
        for (; *at && strchr(" \t\r\n,", *at); at++) line += *at == '\n';
    }
    return BT_OK;
}

/* api_start.c - GET /api/v1/server lists what this server permits, with the form that starts a run; POST
 * /api/v1/start starts a run on the server's machine with the settings of that form (start_form.def). No other
 * option of a command line is accepted.
 *
 *     {"name": "demo", "settings": {"preset": "nano", "steps": "100"}}       name "": the server chooses one */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/system/json_fields.h"
#include "engine/base/tables/start_form.h"
#include "web/api/api.h"

enum { WORDS_MOST = 2 * BT_START_FIELDS, TEXT_MOST = 512 };

static bool is_allowed_choice(const char *choices, const char *value) {
    const size_t n = strlen(value);
    for (const char *at = choices; *at;) {
        const size_t k = strcspn(at, "|");
        if (k == n && strncmp(at, value, n) == 0) return true;
        at += k + (at[k] == '|');
    }
    return false;
}

/* Checks one argument of the command line, which must not look like an option. */
static bt_code check_form_value(const bt_start_field *f, const char *value, bt_err *err) {
    if (strlen(value) > TEXT_MOST)
        return bt_fail(err, BT_ARG, "'%s' has %zu bytes, at most %d are possible", f->name,
                       strlen(value), (int)TEXT_MOST);
    if (value[0] == '-' || strpbrk(value, "\n\r"))
        return bt_fail(err, BT_ARG, "'%s' must be one line that does not begin with '-'", f->name);
    if (f->choices[0] && !is_allowed_choice(f->choices, value))
        return bt_fail(err, BT_ARG, "'%s' must be one of %s", f->name, f->choices);
    return BT_OK;
}

/* The words are borrowed from the settings. */
static bt_code read_form_settings(const json_t *settings, const char *words[WORDS_MOST], int *n,
                                  bt_err *err) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)settings, key, value) {
        if (!bt_start_field_find(key))
            return bt_fail(err, BT_ARG, "'%.40s' is no field of the form that starts a run", key);
        if (!json_is_string(value)) return bt_fail(err, BT_ARG, "'%.40s' must be a text", key);
    }
    for (size_t i = 0; i < BT_START_FIELDS; i++) { /* in the order of the table */
        const bt_start_field *f = &bt_start_fields[i];
        const char *text = json_string_value(json_object_get(settings, f->name));
        if (!text || !text[0]) continue;
        BT_TRY(check_form_value(f, text, err));
        words[(*n)++] = f->flag;
        words[(*n)++] = text;
    }
    return BT_OK;
}

static bt_code start_run_from_form(bt_api *a, const json_t *root, char name[BT_NAME_MAX],
                                   bt_err *err) {
    const bt_api_allows allows = bt_api_allowed(a);
    const json_t *settings = json_object_get(root, "settings"),
                 *wanted = json_object_get(root, "name");
    const char *words[WORDS_MOST], *given = json_string_value(wanted);
    int n = 0;
    if (!allows.start)
        return bt_fail(err, BT_UNSUPPORTED, "this server starts no runs: use 'bitrain train'");
    if (wanted && (!given || (given[0] && !bt_name_ok(given))))
        return bt_fail(
            err, BT_ARG,
            "'name' must be of letters, digits, . _ - and at most %d characters, or empty",
            BT_NAME_MAX - 1);
    if (settings && !json_is_object(settings))
        return bt_fail(err, BT_ARG, "'settings' must be an object of texts");
    BT_TRY(read_form_settings(settings, words, &n, err));
    snprintf(name, BT_NAME_MAX, "%s", given ? given : "");
    return allows.start(allows.resume_ctx, n, words, name, err);
}

bt_code bt_api_start(bt_api *a, const bt_req *r, const char *unused, bt_answer *out, bt_err *err) {
    char name[BT_NAME_MAX] = "", reply[BT_NAME_MAX + 32];
    json_error_t why;
    (void)unused;
    json_t *root = json_loads(r->body ? r->body : "", JSON_REJECT_DUPLICATES, &why);
    bt_code code = json_is_object(root)
                       ? start_run_from_form(a, root, name, err)
                       : bt_fail(err, BT_ARG, "the body is no JSON object: %s", why.text);
    json_decref(root);
    BT_TRY(code);
    snprintf(reply, sizeof reply, "run %s is starting", name);
    bt_json j;
    bt_json_begin(&j, &out->body);
    bt_json_object(&j, NULL);
    bt_json_bool(&j, "ok", true);
    bt_json_str(&j, "run", name);
    bt_json_str(&j, "reply", reply);
    bt_json_end(&j, '}');
    return BT_OK;
}

/* Writes the fields of the form as an array "start". */
static void put_start_fields(bt_json *j) {
    BT_JSON_ROWS(j, "start", bt_start_fields, BT_START_FIELDS, F(name), F_AS("option", flag),
                 F(first), F(choices), F(help));
}

bt_code bt_api_server(bt_api *a, const bt_req *r, const char *run, bt_answer *out, bt_err *err) {
    const bt_api_allows allows = bt_api_allowed(a);
    (void)r;
    (void)run;
    (void)err;
    bt_json j;
    bt_json_begin(&j, &out->body);
    bt_json_object(&j, NULL);
    bt_json_bool(&j, "control", allows.control);
    bt_json_bool(&j, "query", allows.query);
    bt_json_bool(&j, "resume", allows.resume != NULL);
    if (allows.start) put_start_fields(&j);
    bt_json_end(&j, '}');
    return BT_OK;
}

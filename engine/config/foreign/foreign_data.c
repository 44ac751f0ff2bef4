/* foreign_data.c - reads dataset_info.json, and translates names of data sets into paths and the form of their rows. */
#include "engine/config/foreign/foreign_data.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/opt_private.h"
#include "engine/data/io/file_io.h"
#include "engine/data/io/json.h"

enum { INFO_MAX_BYTES = 16 << 20, MAX_PATH = 1024 };

typedef struct data_names {
    bt_opts *o;
    const bt_opt_deferred *from; /* the key whose names are being translated */
    const char *folder;          /* folder of dataset_info.json */
    json_t *info;                /* content of dataset_info.json; NULL: there is no such file */
    bt_text paths;
    char form[24], field[64], rows[24]; /* "": not given */
} data_names;

static const bt_opt_deferred *deferred_key(const bt_opts *o, const char *key) {
    for (size_t i = 0; i < o->n_deferred; i++)
        if (strcmp(o->deferred[i].alias->key, key) == 0) return &o->deferred[i];
    return NULL;
}

static bt_code refuse_data_set(const data_names *d, const char *name, const char *what,
                               bt_err *err) {
    char plain[80];
    bt_text_plain(plain, sizeof plain, name);
    return bt_fail(err, BT_ARG, "%s: data set '%s' %s", d->from->where, plain, what);
}

static bt_code keep_common_value(const data_names *d, char *kept, size_t size, const char *value,
                                 const char *name, bt_err *err) {
    char what[200];
    if (strlen(value) >= size) return refuse_data_set(d, name, "has a value that is too long", err);
    if (*kept && strcmp(kept, value) != 0) {
        snprintf(what, sizeof what,
                 "has rows of another kind (%.60s, not %.60s): train on one kind at a time", value,
                 kept);
        return refuse_data_set(d, name, what, err);
    }
    memcpy(kept, value, strlen(value) + 1);
    return BT_OK;
}

/* A column or tag in dataset_info.json, and the names under which bitrain reads it. Other names are refused, because
 * the column would be ignored or mistaken for another one. */
typedef struct column_rule {
    const char *object, *key, *names; /* names: "|name|name|" */
} column_rule;
static const column_rule alpaca_rules[] = {
    {"columns", "prompt", "|instruction|"}, {"columns", "query", "|input|"},
    {"columns", "response", "|output|"},    {"columns", "system", "|system|"},
    {"columns", "history", "|history|"},    {NULL, NULL, NULL}};
static const column_rule message_rules[] = {
    {"columns", "messages", "|conversations|messages|conversation|"},
    {"columns", "system", "|system|"},
    {"tags", "role_tag", "|from|role|"},
    {"tags", "content_tag", "|value|content|"},
    {"tags", "user_tag", "|user|human|"},
    {"tags", "assistant_tag", "|assistant|gpt|bot|model|"},
    {"tags", "system_tag", "|system|developer|"},
    {"tags", "observation_tag", NULL}, /* such rows are refused when they are read */
    {"tags", "function_tag", NULL},
    {NULL, NULL, NULL}};
static const column_rule single_rules[] = {{"columns", "prompt", "|instruction|prompt|question|"},
                                           {"columns", "query", "|input|"},
                                           {"columns", "response", "|output|completion|response|"},
                                           {"columns", "messages", "|conversations|messages|"},
                                           {"columns", "kto_tag", "|kto_tag|label|"},
                                           {"columns", "system", "|system|"},
                                           {"columns", "history", "|history|"},
                                           {"tags", "role_tag", "|from|role|"},
                                           {"tags", "content_tag", "|value|content|"},
                                           {"tags", "user_tag", "|user|human|"},
                                           {"tags", "assistant_tag", "|assistant|gpt|bot|model|"},
                                           {"tags", "system_tag", "|system|developer|"},
                                           {NULL, NULL, NULL}};
static const column_rule pair_rules[] = {{"columns", "prompt", "|instruction|prompt|question|"},
                                         {"columns", "query", "|input|"},
                                         {"columns", "messages", "|conversations|messages|"},
                                         {"columns", "chosen", "|chosen|"},
                                         {"columns", "rejected", "|rejected|"},
                                         {"columns", "system", "|system|"},
                                         {"columns", "history", "|history|"},
                                         {"tags", "role_tag", "|from|role|"},
                                         {"tags", "content_tag", "|value|content|"},
                                         {"tags", "user_tag", "|user|human|"},
                                         {"tags", "assistant_tag", "|assistant|gpt|bot|model|"},
                                         {"tags", "system_tag", "|system|developer|"},
                                         {NULL, NULL, NULL}};

static bool matches_rule(const column_rule *rules, const char *object, const char *key,
                         const json_t *value) {
    char name[72];
    if (!json_is_string(value)) return false;
    const int n = snprintf(name, sizeof name, "|%s|", json_string_value(value));
    if (n < 0 || (size_t)n >= sizeof name || strchr(json_string_value(value), '|')) return false;
    for (; rules->object; rules++)
        if (strcmp(rules->object, object) == 0 && strcmp(rules->key, key) == 0)
            return !rules->names || strstr(rules->names, name);
    return false;
}

static bt_code check_columns(const data_names *d, const char *name, json_t *entry,
                             const column_rule *rules, bt_err *err) {
    static const char *const objects[] = {"columns", "tags"};
    for (size_t i = 0; i < 2; i++) {
        const char *key;
        json_t *value, *object = json_object_get(entry, objects[i]);
        if (object && !json_is_object(object))
            return refuse_data_set(d, name, "has 'columns' or 'tags' that are not objects", err);
        json_object_foreach(object, key, value) {
            if (matches_rule(rules, objects[i], key, value)) continue;
            char what[260];
            snprintf(what, sizeof what,
                     "has rows with other names: %s.%.40s is '%.60s' (rename that field in its "
                     "rows)",
                     objects[i], key, json_is_string(value) ? json_string_value(value) : "");
            return refuse_data_set(d, name, what, err);
        }
    }
    return BT_OK;
}

/* Returns the text column of a data set for pre-training, which has no other column; NULL: it is another data set. */
static const char *only_text_column(json_t *entry) {
    json_t *columns = json_object_get(entry, "columns");
    const char *text = json_string_value(json_object_get(columns, "prompt"));
    return json_object_size(columns) == 1 ? text : NULL;
}

static bt_code find_form(data_names *d, const char *name, json_t *entry, bt_err *err) {
    const json_t *formatting = json_object_get(entry, "formatting"),
                 *ranking = json_object_get(entry, "ranking");
    const char *as = formatting ? json_string_value(formatting) : "alpaca";
    const char *text = only_text_column(entry);
    const column_rule *rules = alpaca_rules;
    const char *form = "alpaca";
    if (!as ||
        (strcmp(as, "alpaca") != 0 && strcmp(as, "sharegpt") != 0 && strcmp(as, "openai") != 0))
        return refuse_data_set(
            d, name, "has a 'formatting' that is not supported (supported: alpaca, sharegpt)", err);
    if (json_is_true(ranking)) {
        form = "preference";
        rules = pair_rules;
    } else if (json_object_get(json_object_get(entry, "columns"), "kto_tag")) {
        form = "preference";
        rules = single_rules;
    } else if (strcmp(as, "alpaca") != 0) {
        form = "messages";
        rules = message_rules;
    } else if (text) {
        BT_TRY(keep_common_value(d, d->field, sizeof d->field, text, name, err));
        return keep_common_value(d, d->form, sizeof d->form, "text", name, err);
    }
    BT_TRY(check_columns(d, name, entry, rules, err));
    return keep_common_value(d, d->form, sizeof d->form, form, name, err);
}

static bt_code check_entry_keys(const data_names *d, const char *name, json_t *entry, bt_err *err) {
    static const char read[] = "|file_name|formatting|ranking|columns|tags|hf_hub_url|ms_hub_url|"
                               "om_hub_url|file_sha1|";
    const char *key;
    json_t *value;
    json_object_foreach(entry, key, value) {
        char in[72], what[160];
        snprintf(in, sizeof in, "|%.60s|", key);
        if (strstr(read, in) && !strchr(key, '|')) continue;
        snprintf(what, sizeof what, "has the key '%.60s', which is not read", key);
        return refuse_data_set(d, name, what, err);
    }
    return BT_OK;
}

static bt_code add_entry(data_names *d, const char *name, json_t *entry, bt_err *err) {
    char path[MAX_PATH], what[MAX_PATH + 80];
    const char *file = json_string_value(json_object_get(entry, "file_name"));
    if (!json_is_object(entry))
        return refuse_data_set(d, name, "is not an object in dataset_info.json", err);
    if (!file || !*file)
        return refuse_data_set(d, name,
                               "has no 'file_name', so it is on a hub (download it, and give "
                               "--data FILE --form alpaca, messages or preference)",
                               err);
    BT_TRY(check_entry_keys(d, name, entry, err));
    const int n = snprintf(path, sizeof path, "%s/%s", d->folder, file);
    if (n < 0 || n >= MAX_PATH || strchr(file, '\n'))
        return refuse_data_set(d, name, "has a path that is too long", err);
    if (access(path, R_OK) != 0) {
        snprintf(what, sizeof what, "is in '%.300s', which cannot be read", path);
        return refuse_data_set(d, name, what, err);
    }
    bt_text_printf(&d->paths, "%s%s", d->paths.len ? "\n" : "", path);
    return find_form(d, name, entry, err);
}

static bt_code read_info(data_names *d, bt_err *err) {
    char path[MAX_PATH], *data = NULL;
    size_t n;
    bt_err why = BT_ERR_INIT;
    snprintf(path, sizeof path, "%.900s/dataset_info.json", d->folder);
    if (access(path, F_OK) != 0) return BT_OK;
    BT_TRY(bt_file_slurp(path, INFO_MAX_BYTES, &data, &n, err));
    bt_code code = bt_json_parse(&d->info, data, n, &why);
    free(data);
    return code == BT_OK ? code : bt_fail(err, BT_FORMAT, "'%.300s': %.500s", path, why.msg);
}

/* Splits FILE#N, the first N rows of a file. Returns false if the name has no such end. */
static bool cut_row_count(char *name, char *rows, size_t size) {
    char *mark = strrchr(name, '#');
    if (!mark || !mark[1] || mark[1 + strspn(mark + 1, "0123456789")] || strlen(mark) > size)
        return false;
    memcpy(rows, mark + 1, strlen(mark));
    *mark = '\0';
    return true;
}

static bt_code add_name(data_names *d, const char *given, bt_err *err) {
    char name[MAX_PATH], file[MAX_PATH], rows[24] = "", what[300];
    snprintf(name, sizeof name, "%s", given);
    memcpy(file, name, sizeof file);
    const bool counted = cut_row_count(file, rows, sizeof rows);
    if (access(file, F_OK) == 0) {
        bt_text_printf(&d->paths, "%s%s", d->paths.len ? "\n" : "", file);
        return counted ? keep_common_value(d, d->rows, sizeof d->rows, rows, given, err) : BT_OK;
    }
    json_t *entry = json_object_get(d->info, name);
    if (entry) return add_entry(d, name, entry, err);
    snprintf(what, sizeof what,
             "names neither a file nor an entry of '%.120s/dataset_info.json'%s (give --data FILE "
             "--form alpaca, messages or preference)",
             d->folder, d->info ? "" : ", which does not exist");
    return refuse_data_set(d, name, what, err);
}

static bt_code add_names(data_names *d, bt_err *err) {
    char name[MAX_PATH];
    for (const char *s = d->from->text; *s;) {
        s += strspn(s, ", \n");
        const size_t n = strcspn(s, ",\n");
        size_t used = n;
        while (used && s[used - 1] == ' ') used--;
        if (used >= sizeof name)
            return refuse_data_set(d, "...", "has a name that is too long", err);
        memcpy(name, s, used);
        name[used] = '\0';
        if (used) BT_TRY(add_name(d, name, err));
        s += n;
    }
    return d->paths.failed ? bt_fail(err, BT_NOMEM, "cannot allocate memory for names of data sets")
                           : BT_OK;
}

/* Sets one option. The configuration file itself must not have set it to another value. */
static bt_code set_option(const data_names *d, const char *key, const char *value, bt_err *err) {
    bt_text now = {0};
    const size_t i = bt_opt_find(d->o->table, d->o->n, key);
    if (!*value) return BT_OK;
    bt_opt_value(d->o, i, &now);
    const bool other = d->o->origin[i] == BT_FROM_FILE && strcmp(bt_text_str(&now), value) != 0;
    bt_text_release(&now);
    if (other)
        return bt_fail(
            err, BT_ARG,
            "%s: '%s' sets %s to %s, but %s sets it to another value (remove one of them)",
            d->from->where, d->from->alias->key, key, value, d->o->where[i]);
    return bt_opts_set(d->o, key, value, BT_FROM_FILE, d->from->where, err);
}

static bt_code resolve_key(data_names *d, const char *key, bt_err *err) {
    BT_TRY(add_names(d, err));
    BT_TRY(set_option(d, key, bt_text_str(&d->paths), err));
    BT_TRY(set_option(d, "data.form", d->form, err));
    BT_TRY(set_option(d, "data.field", d->field, err));
    BT_TRY(set_option(d, "data.max_rows", d->rows, err));
    if (d->o->taken)
        bt_text_printf(d->o->taken, "%s%s (%s%s%s)", d->o->taken->len ? ", " : "",
                       d->from->alias->key, key, *d->form ? ", data.form " : "", d->form);
    return BT_OK;
}

bt_code bt_foreign_data_resolve(bt_opts *o, bt_err *err) {
    const bt_opt_deferred *folder = deferred_key(o, "dataset_dir");
    if (!o->n_deferred) return BT_OK;
    data_names d = {.o = o, .folder = folder ? folder->text : "data"};
    bt_code code = read_info(&d, err);
    if (folder && o->taken) bt_text_printf(o->taken, "%sdataset_dir", o->taken->len ? ", " : "");
    for (size_t i = 0; code == BT_OK && i < o->n_deferred; i++) {
        d.from = &o->deferred[i];
        if (d.from == folder) continue;
        bt_text_clear(&d.paths);
        code = bt_opts_fault(o, resolve_key(&d, d.from->alias->ours, err), err);
    }
    json_decref(d.info);
    bt_text_release(&d.paths);
    return code;
}

/* help_json.c - `bitrain help --json`: commands with their verbs and options, settings, metrics and exit codes, for
 * programs that drive bitrain. */
#include <string.h>

#include "cli/common/verbs.h"
#include "cli/help.h"
#include "engine/base/tables/metric.h"
#include "engine/config/run_cfg.h"

static const char *option_type_name(bt_opt_type type) {
    switch (type) {
    case BT_OPT_INT: return "integer";
    case BT_OPT_REAL: return "number";
    case BT_OPT_BOOL: return "boolean";
    case BT_OPT_TEXT:
    case BT_OPT_ENUM: return "string";
    case BT_OPT_LIST: return "array";
    }
    return "string";
}

/* Writes the items of a text that a character separates. */
static void put_items(bt_json *j, const char *key, const char *text, const char *separator) {
    bt_json_array(j, key);
    for (size_t n; text && *text; text += n + (text[n] != '\0')) {
        n = strcspn(text, separator);
        bt_text item = {0};
        bt_text_putn(&item, text, n);
        if (n) bt_json_str(j, NULL, bt_text_str(&item));
        bt_text_release(&item);
    }
    bt_json_end(j, ']');
}

/* is_setting: `key` is a setting of a run, which YAML files and --set accept. */
static void put_option(bt_json *j, const bt_opt *o, bool is_setting) {
    const bool has_range = o->type == BT_OPT_INT || o->type == BT_OPT_REAL;
    bt_json_object(j, NULL);
    if (is_setting) bt_json_str(j, "key", o->key);
    if (o->flag) bt_json_str(j, "flag", o->flag);
    bt_json_str(j, "type", option_type_name(o->type));
    bt_json_str(j, "default", o->def);
    if (has_range) {
        bt_json_num(j, "minimum", o->min);
        bt_json_num(j, "maximum", o->max);
    }
    if (o->type == BT_OPT_ENUM) put_items(j, "choices", o->choices, "|");
    if (o->unit) bt_json_str(j, "unit", o->unit);
    bt_json_str(j, "help", o->help);
    bt_json_end(j, '}');
}

/* An option set of `train` is written as "settings": true; its options are the object's member "settings". */
static void put_option_set(bt_json *j, const bt_opt *rows, size_t n) {
    if (n && rows == bt_run_opts) {
        bt_json_bool(j, "settings", true);
        return;
    }
    bt_json_array(j, "options");
    for (size_t i = 0; i < n; i++) put_option(j, &rows[i], false);
    bt_json_end(j, ']');
}

static void put_command(bt_json *j, const bt_command *c) {
    bt_verb_help v;
    bt_json_object(j, NULL);
    bt_json_str(j, "name", c->name);
    bt_json_str(j, "summary", c->summary);
    bt_json_str(j, "arguments", c->args ? c->args : "");
    put_items(j, "examples", c->examples, "\n");
    if (c->verb || c->verbs) {
        bt_json_array(j, "verbs");
        for (size_t i = 0; bt_command_verb_at(c, i, &v); i++) {
            bt_json_object(j, NULL);
            bt_json_str(j, "name", v.name);
            bt_json_str(j, "arguments", v.words);
            bt_json_str(j, "summary", v.summary);
            put_option_set(j, v.options, v.n_options);
            bt_json_end(j, '}');
        }
        bt_json_end(j, ']');
    }
    put_option_set(j, c->options.rows, bt_option_count(&c->options));
    bt_json_end(j, '}');
}

static void put_metrics(bt_json *j) {
    bt_json_array(j, "metrics");
    for (int s = 0; s < BT_SCOPE_COUNT; s++)
        for (int i = 0; i < bt_scopes[s].n; i++) {
            const bt_metric *m = &bt_scopes[s].metric[i];
            bt_json_object(j, NULL);
            bt_json_str(j, "view", bt_scopes[s].view);
            bt_json_str(j, "key", m->key);
            bt_json_str(j, "unit", bt_unit_name(m->unit));
            bt_json_str(j, "help", m->help);
            bt_json_end(j, '}');
        }
    bt_json_end(j, ']');
}

static void put_exit_codes(bt_json *j) {
    bt_json_array(j, "exit_codes");
    for (size_t i = 0; i < bt_help_exit_code_count(); i++) {
        const bt_exit_meaning *e = bt_help_exit_code_at(i);
        bt_json_object(j, NULL);
        bt_json_int(j, "code", e->code);
        bt_json_str(j, "meaning", e->meaning);
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
}

void bt_help_json(bt_text *out) {
    bt_json j;
    bt_json_begin(&j, out);
    bt_json_object(&j, NULL);
    bt_json_str(&j, "version", BITRAIN_VERSION);
    bt_json_array(&j, "commands");
    for (size_t i = 0; i < bt_command_count(); i++)
        if (!bt_command_at(i)->hidden) put_command(&j, bt_command_at(i));
    bt_json_end(&j, ']');
    bt_json_array(&j, "settings");
    for (size_t i = 0; i < bt_run_opts_n; i++) put_option(&j, &bt_run_opts[i], true);
    bt_json_end(&j, ']');
    put_metrics(&j);
    put_exit_codes(&j);
    bt_json_end(&j, '}');
    bt_text_put(out, "\n");
}

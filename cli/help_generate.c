/* help_generate.c - documents made from the same tables: README blocks, man page. */
#include <string.h>

#include "cli/common/verbs.h"
#include "cli/help.h"
#include "engine/base/tables/metric.h"
#include "engine/config/run_cfg.h"
#include "monitor/tui/draw/keys.h"

/* ---- markdown -------------------------------------------------------------------------------- */

static void put_markdown_cell(bt_text *out, const char *s) {
    for (; s && *s; s++) {
        if (*s == '|')
            bt_text_put(out, "\\|");
        else
            bt_text_putn(out, s, 1);
    }
}

static void put_markdown_commands(bt_text *out) {
    bt_text_put(out, "<!-- generated: commands -->\n| command | does |\n|---|---|\n");
    for (size_t i = 0; i < bt_command_count(); i++) {
        const bt_command *c = bt_command_at(i);
        if (c->hidden) continue;
        bt_text_printf(out, "| `%s%s", c->name, c->args && *c->args ? " " : "");
        put_markdown_cell(out, c->args);
        bt_text_put(out, "` | ");
        put_markdown_cell(out, c->summary);
        bt_text_put(out, " |\n");
    }
    bt_text_put(out, "<!-- end: commands -->\n");
}

static void put_markdown_options(bt_text *out) {
    bt_text_put(
        out,
        "<!-- generated: options -->\n| flag | key | default | meaning |\n|---|---|---|---|\n");
    for (size_t i = 0; i < bt_run_opts_n; i++) {
        const bt_opt *o = &bt_run_opts[i];
        bt_text_put(out, "| ");
        if (o->flag) {
            const char *arg = bt_opt_argument(o);
            bt_text_printf(out, "`%s%s", o->flag, *arg ? " " : "");
            put_markdown_cell(out, arg);
            bt_text_put(out, "`");
        }
        bt_text_printf(out, " | `%s` | %s | ", o->key, o->def);
        put_markdown_cell(out, o->help);
        if (!o->flag && o->choices) {
            bt_text_put(out, ": ");
            put_markdown_cell(out, o->choices);
        }
        if (o->unit) bt_text_printf(out, " (%s)", o->unit);
        bt_text_put(out, " |\n");
    }
    bt_text_put(out, "<!-- end: options -->\n");
}

static void put_markdown_metrics(bt_text *out) {
    bt_text_put(
        out,
        "<!-- generated: metrics -->\n| view | column | unit | meaning |\n|---|---|---|---|\n");
    for (int s = 0; s < BT_SCOPE_COUNT; s++) {
        for (int i = 0; i < bt_scopes[s].n; i++) {
            const bt_metric *m = &bt_scopes[s].metric[i];
            bt_text_printf(out, "| `%s` | `%s` | %s | ", bt_scopes[s].view, m->key,
                           bt_unit_name(m->unit));
            put_markdown_cell(out, m->help);
            bt_text_put(out, " |\n");
        }
    }
    bt_text_put(out, "<!-- end: metrics -->\n");
}

void bt_help_markdown(bt_text *out) {
    put_markdown_commands(out);
    bt_text_put(out, "\n");
    put_markdown_options(out);
    bt_text_put(out, "\n");
    put_markdown_metrics(out);
}

/* ---- man page -------------------------------------------------------------------------------- */

/* Escapes text for a roff line: backslashes, hyphens, and a leading dot or quote. */
static void put_roff_text(bt_text *out, const char *s) {
    if (*s == '.' || *s == '\'') bt_text_put(out, "\\&");
    for (; *s; s++) {
        if (*s == '\\')
            bt_text_put(out, "\\e");
        else if (*s == '-')
            bt_text_put(out, "\\-");
        else if (*s == '\n')
            bt_text_put(out, s[1] == '.' || s[1] == '\'' ? "\n\\&" : "\n");
        else
            bt_text_putn(out, s, 1);
    }
}

static void put_man_item(bt_text *out, const char *name, const char *arg, const char *text,
                         const char *def, const char *unit) {
    bt_text_put(out, ".TP\n\\fB");
    put_roff_text(out, name);
    bt_text_put(out, "\\fR");
    if (arg && *arg) {
        bt_text_put(out, " \\fI");
        put_roff_text(out, arg);
        bt_text_put(out, "\\fR");
    }
    bt_text_put(out, "\n");
    put_roff_text(out, text);
    if (def && *def) {
        bt_text_put(out, " (default ");
        put_roff_text(out, def);
        if (unit) bt_text_printf(out, " %s", unit);
        bt_text_put(out, ")");
    }
    bt_text_put(out, "\n");
}

static void put_man_command(bt_text *out, const bt_command *c) {
    bt_text_put(out, ".SS \"bitrain ");
    put_roff_text(out, c->name);
    if (c->args && *c->args) {
        bt_text_put(out, " ");
        put_roff_text(out, c->args);
    }
    bt_text_put(out, "\"\n");
    put_roff_text(out, c->summary);
    bt_text_put(out, "\n");
    if (c->examples && *c->examples) {
        bt_text examples;
        bt_text_init(&examples);
        bt_help_examples(c, NULL, "", &examples);
        bt_text_put(out, ".PP\n.nf\n");
        put_roff_text(out, bt_text_str(&examples));
        bt_text_put(out, ".fi\n");
        bt_text_release(&examples);
    }
    bt_verb_help v;
    for (size_t i = 0; (c->verb || c->verbs) && bt_command_verb_at(c, i, &v); i++)
        put_man_item(out, v.name, v.words, v.summary, "", NULL);
    const size_t n = bt_option_count(&c->options);
    const bt_opt *o = c->options.rows;
    for (size_t i = 0; i < n; i++) {
        bool flagged = o[i].flag != NULL;
        if (flagged)
            put_man_item(out, o[i].flag, bt_opt_argument(&o[i]), o[i].help,
                         o[i].type == BT_OPT_BOOL ? "" : o[i].def, o[i].unit);
    }
}

void bt_help_man(bt_text *out) {
    bt_text_put(out, ".TH BITRAIN 1 \"\" \"bitrain " BITRAIN_VERSION "\" \"User Commands\"\n"
                     ".SH NAME\nbitrain \\- train BitNet language models on CPUs over MPI and show "
                     "what the training does\n"
                     ".SH SYNOPSIS\n.B bitrain\n.I COMMAND\n[options]\n.SH COMMANDS\n");
    for (size_t i = 0; i < bt_command_count(); i++)
        if (!bt_command_at(i)->hidden) put_man_command(out, bt_command_at(i));
    bt_text_put(out, ".SH SETTINGS\nBy key in a YAML file and with \\fB\\-\\-set\\fR "
                     "\\fIKEY=VALUE\\fR; in the environment as BITRAIN_ and the key in\n"
                     "capitals with underscores. Stronger first: flag, \\-\\-set, environment, "
                     "file, preset, default.\n");
    for (size_t i = 0; i < bt_run_opts_n; i++)
        put_man_item(out, bt_run_opts[i].key, bt_opt_argument(&bt_run_opts[i]), bt_run_opts[i].help,
                     bt_run_opts[i].def, bt_run_opts[i].unit);
    bt_text keys;
    bt_text_init(&keys);
    bt_keys_help(&keys);
    bt_text_put(out, ".SH \"KEYS OF BITRAIN TOP\"\n.nf\n");
    put_roff_text(out, bt_text_str(&keys));
    bt_text_put(out, ".fi\n");
    bt_text_release(&keys);
    bt_text_put(out, ".SH \"EXIT STATUS\"\n");
    bt_text codes;
    bt_text_init(&codes);
    bt_help_exit_codes(&codes);
    put_roff_text(out, bt_text_str(&codes));
    bt_text_release(&codes);
    bt_text_put(
        out,
        ".SH ENVIRONMENT\n"
        ".TP\n\\fBBITRAIN_STORE\\fR\nthe metrics database, where \\-\\-store is not given\n"
        ".TP\n\\fBXDG_DATA_HOME\\fR\nfolder of the default database, bitrain/bitrain.db in it\n"
        ".TP\n\\fBNO_COLOR\\fR\nno colour on terminals\n");
}

/* help_generate.c - documents made from the same tables: README blocks, man page, bash
 * completion. */
#include <string.h>

#include "cli/common/verbs.h"
#include "cli/help.h"
#include "engine/base/tables/metric.h"
#include "engine/base/tables/verb.h"
#include "engine/config/run_cfg.h"
#include "monitor/tui/draw/keys.h"

/* ---- markdown -------------------------------------------------------------------------------- */

static void md_cell(bt_text *out, const char *s) {
    for (; s && *s; s++) {
        if (*s == '|')
            bt_text_put(out, "\\|");
        else
            bt_text_putn(out, s, 1);
    }
}

static void md_commands(bt_text *out) {
    bt_text_put(out, "<!-- generated: commands -->\n| command | does |\n|---|---|\n");
    for (size_t i = 0; i < bt_command_count(); i++) {
        const bt_command *c = bt_command_at(i);
        if (c->hidden) continue;
        bt_text_printf(out, "| `%s%s", c->name, c->args && *c->args ? " " : "");
        md_cell(out, c->args);
        bt_text_put(out, "` | ");
        md_cell(out, c->summary);
        bt_text_put(out, " |\n");
    }
    bt_text_put(out, "<!-- end: commands -->\n");
}

static void md_options(bt_text *out) {
    bt_text_put(
        out,
        "<!-- generated: options -->\n| flag | key | default | meaning |\n|---|---|---|---|\n");
    for (size_t i = 0; i < bt_run_opts_n; i++) {
        const bt_opt *o = &bt_run_opts[i];
        bt_text_put(out, "| ");
        if (o->flag) {
            const char *arg = bt_opt_argument(o);
            bt_text_printf(out, "`%s%s", o->flag, *arg ? " " : "");
            md_cell(out, arg);
            bt_text_put(out, "`");
        }
        bt_text_printf(out, " | `%s` | %s | ", o->key, o->def);
        md_cell(out, o->help);
        if (!o->flag && o->choices) {
            bt_text_put(out, ": ");
            md_cell(out, o->choices);
        }
        if (o->unit) bt_text_printf(out, " (%s)", o->unit);
        bt_text_put(out, " |\n");
    }
    bt_text_put(out, "<!-- end: options -->\n");
}

static void md_metrics(bt_text *out) {
    bt_text_put(
        out,
        "<!-- generated: metrics -->\n| view | column | unit | meaning |\n|---|---|---|---|\n");
    for (int s = 0; s < BT_SCOPE_COUNT; s++) {
        for (int i = 0; i < bt_scopes[s].n; i++) {
            const bt_metric *m = &bt_scopes[s].metric[i];
            bt_text_printf(out, "| `%s` | `%s` | %s | ", bt_scopes[s].view, m->key,
                           bt_unit_name(m->unit));
            md_cell(out, m->help);
            bt_text_put(out, " |\n");
        }
    }
    bt_text_put(out, "<!-- end: metrics -->\n");
}

void bt_help_markdown(bt_text *out) {
    md_commands(out);
    bt_text_put(out, "\n");
    md_options(out);
    bt_text_put(out, "\n");
    md_metrics(out);
}

/* ---- man page -------------------------------------------------------------------------------- */

/* text of a roff line: backslashes and hyphens escaped, a leading dot or quote made harmless */
static void roff(bt_text *out, const char *s) {
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

static void man_item(bt_text *out, const char *name, const char *arg, const char *text,
                     const char *def, const char *unit) {
    bt_text_put(out, ".TP\n\\fB");
    roff(out, name);
    bt_text_put(out, "\\fR");
    if (arg && *arg) {
        bt_text_put(out, " \\fI");
        roff(out, arg);
        bt_text_put(out, "\\fR");
    }
    bt_text_put(out, "\n");
    roff(out, text);
    if (def && *def) {
        bt_text_put(out, " (default ");
        roff(out, def);
        if (unit) bt_text_printf(out, " %s", unit);
        bt_text_put(out, ")");
    }
    bt_text_put(out, "\n");
}

static void man_command(bt_text *out, const bt_command *c) {
    bt_text_put(out, ".SS \"bitrain ");
    roff(out, c->name);
    if (c->args && *c->args) {
        bt_text_put(out, " ");
        roff(out, c->args);
    }
    bt_text_put(out, "\"\n");
    roff(out, c->summary);
    bt_text_put(out, "\n");
    if (c->examples && *c->examples) {
        bt_text examples;
        bt_text_init(&examples);
        bt_help_examples(c, NULL, "", &examples);
        bt_text_put(out, ".PP\n.nf\n");
        roff(out, bt_text_str(&examples));
        bt_text_put(out, ".fi\n");
        bt_text_release(&examples);
    }
    bt_verb_help v;
    for (size_t i = 0; (c->verb || c->verbs) && bt_command_verb_at(c, i, &v); i++)
        man_item(out, v.name, v.words, v.summary, "", NULL);
    const size_t n = bt_option_count(&c->options);
    const bt_opt *o = c->options.rows;
    for (size_t i = 0; i < n; i++) {
        bool flagged = o[i].flag != NULL;
        if (flagged)
            man_item(out, o[i].flag, bt_opt_argument(&o[i]), o[i].help,
                     o[i].type == BT_OPT_BOOL ? "" : o[i].def, o[i].unit);
    }
}

void bt_help_man(bt_text *out) {
    bt_text_put(out, ".TH BITRAIN 1 \"\" \"bitrain " BITRAIN_VERSION "\" \"User Commands\"\n"
                     ".SH NAME\nbitrain \\- train BitNet language models on CPUs over MPI and show "
                     "what the training does\n"
                     ".SH SYNOPSIS\n.B bitrain\n.I COMMAND\n[options]\n.SH COMMANDS\n");
    for (size_t i = 0; i < bt_command_count(); i++)
        if (!bt_command_at(i)->hidden) man_command(out, bt_command_at(i));
    bt_text_put(out, ".SH SETTINGS\nBy key in a YAML file and with \\fB\\-\\-set\\fR "
                     "\\fIKEY=VALUE\\fR; in the environment as BITRAIN_ and the key in\n"
                     "capitals with underscores. Stronger first: flag, \\-\\-set, environment, "
                     "file, preset, default.\n");
    for (size_t i = 0; i < bt_run_opts_n; i++)
        man_item(out, bt_run_opts[i].key, bt_opt_argument(&bt_run_opts[i]), bt_run_opts[i].help,
                 bt_run_opts[i].def, bt_run_opts[i].unit);
    bt_text keys;
    bt_text_init(&keys);
    bt_keys_help(&keys);
    bt_text_put(out, ".SH \"KEYS OF BITRAIN TOP\"\n.nf\n");
    roff(out, bt_text_str(&keys));
    bt_text_put(out, ".fi\n");
    bt_text_release(&keys);
    bt_text_put(out, ".SH \"EXIT STATUS\"\n");
    bt_text codes;
    bt_text_init(&codes);
    bt_help_exit_codes(&codes);
    roff(out, bt_text_str(&codes));
    bt_text_release(&codes);
    bt_text_put(
        out,
        ".SH ENVIRONMENT\n"
        ".TP\n\\fBBITRAIN_STORE\\fR\nthe metrics database, where \\-\\-store is not given\n"
        ".TP\n\\fBXDG_DATA_HOME\\fR\nfolder of the default database, bitrain/bitrain.db in it\n"
        ".TP\n\\fBNO_COLOR\\fR\nno colour on terminals\n");
}

/* ---- bash completion ------------------------------------------------------------------------- */

static void completion_words(bt_text *out, const bt_command *c) {
    const size_t n = bt_option_count(&c->options);
    const bt_opt *o = c->options.rows;
    bt_text_printf(out, "        %s) words='--help", c->name);
    for (size_t i = 0; i < n; i++)
        if (o[i].flag) bt_text_printf(out, " %s", o[i].flag);
    if (o == bt_run_opts) bt_text_put(out, " --set");
    bt_text_put(out, "' ;;\n");
}

/* values of enumerations: "--precision) fp32 bf16 fp16"; the same flag means the same
 * everywhere */
static void completion_values(bt_text *out) {
    for (size_t i = 0; i < bt_run_opts_n; i++) {
        const bt_opt *o = &bt_run_opts[i];
        if (!o->flag || o->type != BT_OPT_ENUM) continue;
        bt_text_printf(out, "        %s) COMPREPLY=($(compgen -W '", o->flag);
        for (const char *c = o->choices; *c; c++) bt_text_putn(out, *c == '|' ? " " : c, 1);
        bt_text_put(out, "' -- \"$cur\")); return ;;\n");
    }
}

/* one alternative of a command's argument: a kind of thing in capitals, or the word itself. False:
 * a file. */
static bool completion_choice(bt_text *out, const char *word, size_t n) {
    static const char *const kinds[] = {"RUN", "METRIC", "COMMAND", "VERB"};
    enum { RUN, METRIC, COMMAND, VERB, KINDS };
    int k = 0;
    while (k < KINDS && (strlen(kinds[k]) != n || strncmp(kinds[k], word, n) != 0)) k++;
    if (k == RUN) bt_text_put(out, "last $(_bitrain_runs) ");
    for (int s = 0; k == METRIC && s <= BT_SCOPE_RANK; s++)
        for (int i = 0; i < bt_scopes[s].n; i++)
            bt_text_printf(out, "%s ", bt_scopes[s].metric[i].key);
    for (size_t i = 0; k == COMMAND && i < bt_command_count(); i++)
        if (!bt_command_at(i)->hidden) bt_text_printf(out, "%s ", bt_command_at(i)->name);
    for (int v = 0; k == VERB && v < BT_VERB_COUNT; v++)
        bt_text_printf(out, "%s ", bt_verbs[v].word);
    bool literal = n > 0 && word[0] >= 'a' && word[0] <= 'z';
    if (literal) bt_text_printf(out, "%.*s ", (int)n, word);
    return k < KINDS || literal;
}

/* "RUN VERB [KEY=VALUE]": the kind of word 2, 3, ... of the command line; "..." repeats the last one. */
static void completion_places(bt_text *out, const bt_command *c) {
    int place = 2;
    for (const char *a = c->args ? c->args : ""; *a; place++) {
        a += strspn(a, " ");
        size_t n = strcspn(a, " ");
        bool more = n > 3 && strncmp(a + n - 3, "...", 3) == 0;
        bt_text words;
        bt_text_init(&words);
        bool known = false;
        for (const char *w = a; w < a + n;) {
            w += strspn(w, "[]|");
            size_t m = strcspn(w, "[]| "), whole = m;
            while (m && w[m - 1] == '.') m--;
            if (m) known |= completion_choice(&words, w, m);
            w += whole ? whole : 1;
        }
        if (known)
            bt_text_printf(out, "        %s:%d) COMPREPLY=($(compgen -W \"%s\" -- \"$cur\"))",
                           c->name, place, bt_text_str(&words));
        if (known && more)
            bt_text_printf(out, " ;;\n        %s:*) COMPREPLY=($(compgen -W \"%s\" -- \"$cur\"))",
                           c->name, bt_text_str(&words));
        if (known) bt_text_put(out, " ;;\n");
        bt_text_release(&words);
        a += n;
    }
}

void bt_help_completion_bash(bt_text *out) {
    bt_text_put(out,
                "# bash completion of bitrain, made by 'bitrain help --completion bash'\n"
                "_bitrain() {\n"
                "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=\n"
                "    COMPREPLY=()\n"
                "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
                "        COMPREPLY=($(compgen -W '");
    for (size_t i = 0; i < bt_command_count(); i++)
        if (!bt_command_at(i)->hidden)
            bt_text_printf(out, "%s%s", i ? " " : "", bt_command_at(i)->name);
    bt_text_put(out,
                " --help --version' -- \"$cur\"))\n        return\n    fi\n    case $prev in\n");
    completion_values(out);
    bt_text_put(out, "        --set) COMPREPLY=($(compgen -S = -W '");
    for (size_t i = 0; i < bt_run_opts_n; i++)
        bt_text_printf(out, "%s%s", i ? " " : "", bt_run_opts[i].key);
    bt_text_put(out, "' -- \"$cur\")); compopt -o nospace; return ;;\n"
                     "        --resume) COMPREPLY=($(compgen -W \"last $(_bitrain_runs)\" -- "
                     "\"$cur\")); return ;;\n"
                     "    esac\n"
                     "    case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; i < bt_command_count(); i++)
        if (!bt_command_at(i)->hidden) completion_words(out, bt_command_at(i));
    bt_text_put(out, "    esac\n"
                     "    case $cur in\n"
                     "        -*) COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")); return ;;\n"
                     "    esac\n"
                     "    case ${COMP_WORDS[1]}:$COMP_CWORD in\n");
    for (size_t i = 0; i < bt_command_count(); i++)
        if (!bt_command_at(i)->hidden) completion_places(out, bt_command_at(i));
    bt_text_put(out, "        *) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n"
                     "    esac\n"
                     "}\n"
                     "_bitrain_runs() {\n"
                     "    bitrain query 'SELECT run FROM runs' --csv 2>/dev/null | tail -n +2\n"
                     "}\n"
                     "complete -o filenames -F _bitrain bitrain\n");
}

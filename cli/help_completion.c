/* help_completion.c - completion scripts of bash, zsh and fish, made from the tables of commands and options. */
#include <string.h>

#include "cli/common/verbs.h"
#include "cli/help.h"
#include "engine/base/tables/metric.h"
#include "engine/base/tables/verb.h"
#include "engine/config/run_cfg.h"

/* ---- bash ------------------------------------------------------------------------------------ */

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

static void bash_completion(bt_text *out) {
    bt_text_put(out,
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
    bt_text_put(out, "' -- \"$cur\")); compopt -o nospace 2>/dev/null; return ;;\n"
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

/* ---- fish ------------------------------------------------------------------------------------ */

static void fish_quoted(bt_text *out, const char *s) {
    bt_text_put(out, "'");
    for (; *s; s++) {
        if (*s == '\'' || *s == '\\') bt_text_put(out, "\\");
        bt_text_putn(out, *s == '\n' ? " " : s, 1);
    }
    bt_text_put(out, "'");
}

static void fish_option(bt_text *out, const char *command, const bt_opt *o) {
    if (!o->flag || strncmp(o->flag, "--", 2) != 0) return;
    bt_text_printf(out, "complete -c bitrain -n '__fish_seen_subcommand_from %s' -l %s", command,
                   o->flag + 2);
    if (o->type == BT_OPT_ENUM) {
        bt_text_put(out, " -x -a '");
        for (const char *c = o->choices; *c; c++) bt_text_putn(out, *c == '|' ? " " : c, 1);
        bt_text_put(out, "'");
    } else if (o->type != BT_OPT_BOOL) {
        bt_text_put(out, " -r");
    }
    bt_text_put(out, " -d ");
    fish_quoted(out, o->help);
    bt_text_put(out, "\n");
}

static void fish_command(bt_text *out, const bt_command *c) {
    bt_verb_help v;
    const size_t n = bt_option_count(&c->options);
    bt_text_printf(out, "complete -c bitrain -f -n __fish_use_subcommand -a %s -d ", c->name);
    fish_quoted(out, c->summary);
    bt_text_put(out, "\n");
    if (c->args && strstr(c->args, "RUN"))
        bt_text_printf(out,
                       "complete -c bitrain -n '__fish_seen_subcommand_from %s' -a 'last "
                       "(__bitrain_runs)'\n",
                       c->name);
    for (size_t i = 0; (c->verb || c->verbs) && bt_command_verb_at(c, i, &v); i++) {
        bt_text_printf(out, "complete -c bitrain -n '__fish_seen_subcommand_from %s' -a %s -d ",
                       c->name, v.name);
        fish_quoted(out, v.summary);
        bt_text_put(out, "\n");
    }
    for (size_t i = 0; i < n; i++) fish_option(out, c->name, &c->options.rows[i]);
}

static void fish_completion(bt_text *out) {
    bt_text_put(out, "function __bitrain_runs\n"
                     "    bitrain query 'SELECT run FROM runs' --csv 2>/dev/null | tail -n +2\n"
                     "end\n");
    for (size_t i = 0; i < bt_command_count(); i++)
        if (!bt_command_at(i)->hidden) fish_command(out, bt_command_at(i));
}

bt_code bt_help_completion(const char *shell, bt_text *out, bt_err *err) {
    const bool zsh = strcmp(shell, "zsh") == 0, fish = strcmp(shell, "fish") == 0;
    if (!zsh && !fish && strcmp(shell, "bash") != 0)
        return bt_fail(err, BT_ARG, "no completion for '%s': only bash, zsh and fish", shell);
    if (zsh) /* zsh runs the functions of bash itself */
        bt_text_put(out, "#compdef bitrain\nautoload -U +X bashcompinit && bashcompinit\n");
    bt_text_printf(out, "# %s completion of bitrain, made by 'bitrain help --completion %s'\n",
                   shell, shell);
    fish ? fish_completion(out) : bash_completion(out);
    return BT_OK;
}

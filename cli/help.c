/* help.c - help for people: the overview, one command, options, metrics, exit codes. */
#include "cli/help.h"

#include <stdio.h>
#include <string.h>

#include "cli/common/verbs.h"
#include "engine/base/tables/figure.h"
#include "engine/base/tables/metric.h"
#include "engine/base/tables/time_part.h"
#include "engine/config/run_cfg.h"

void bt_help_overview(FILE *to) {
    fputs("bitrain " BITRAIN_VERSION
          ": trains BitNet language models on CPUs over MPI and shows what the training does\n\n"
          "usage: bitrain COMMAND [options]\n\n",
          to);
    for (size_t i = 0; i < bt_command_count(); i++)
        if (!bt_command_at(i)->hidden)
            fprintf(to, "  %-10s %s\n", bt_command_at(i)->name, bt_command_at(i)->summary);
    fputs("\n'bitrain COMMAND --help' shows examples and options; 'bitrain help options' every "
          "setting, 'bitrain help metrics' every figure.\n",
          to);
}

enum { REMARKS_MOST = 64 }; /* after a longer command the remark follows without alignment */

/* Returns the length of the command in a line of examples, which ends before " # ", a shell comment. */
static size_t command_width(const char *line, size_t n) {
    for (size_t i = 1; i + 2 < n && line[0] != '#'; i++) {
        if (memcmp(line + i, " # ", 3) != 0) continue;
        while (i && line[i - 1] == ' ') i--;
        return i;
    }
    return n;
}

static bool is_example_of_verb(const char *line, const char *command, const char *verb) {
    char begin[80];
    snprintf(begin, sizeof begin, "bitrain %s %s", command, verb);
    const size_t n = strlen(begin);
    return strncmp(line, begin, n) == 0 && (line[n] == ' ' || line[n] == '\n' || !line[n]);
}

void bt_help_examples(const bt_command *c, const char *verb, const char *indent, bt_text *out) {
    size_t column = 0, n;
    for (const char *l = c->examples; *l; l += n + (l[n] == '\n')) {
        n = strcspn(l, "\n");
        const size_t width = command_width(l, n);
        if ((!verb || is_example_of_verb(l, c->name, verb)) && width < n && width <= REMARKS_MOST &&
            width > column)
            column = width;
    }
    for (const char *l = c->examples; *l; l += n + (l[n] == '\n')) {
        n = strcspn(l, "\n");
        if (verb && !is_example_of_verb(l, c->name, verb)) continue;
        const size_t width = command_width(l, n), gap = width < n ? strspn(l + width, " ") : 0;
        bt_text_printf(out, "%s%.*s", n ? indent : "", (int)width, l);
        if (gap)
            bt_text_printf(out, "%*s  %.*s", width < column ? (int)(column - width) : 0, "",
                           (int)(n - width - gap), l + width + gap);
        bt_text_put(out, "\n");
    }
}

static void put_options(const bt_opt *options, size_t n, const char *of, bt_text *out) {
    if (!n) return;
    bt_text_printf(out, "\noptions%s%s:\n", *of ? " of " : "", of);
    if (options == bt_run_opts)
        bt_text_put(out, "  those of 'bitrain train'\n");
    else
        bt_opt_help(options, n, out);
}

static void put_verbs(const bt_command *c, bt_text *out) {
    enum { COLUMN = 22 };
    bt_verb_help v;
    const size_t n_all = bt_option_count(&c->options);
    bool differ = false;
    bt_text_put(out, "\nverbs:\n");
    for (size_t i = 0; bt_command_verb_at(c, i, &v); i++) {
        const int width = (int)(strlen(v.name) + 1 + strlen(v.words));
        bt_text_printf(out, "  %s %s%*s  %s\n", v.name, v.words,
                       width < COLUMN ? COLUMN - width : 0, "", v.summary);
        differ |= v.n_options != n_all;
    }
    if (differ)
        bt_text_printf(out, "\n'bitrain %s VERB --help' shows the options of a verb.\n", c->name);
}

void bt_help_command(const bt_command *c, const bt_verb_help *verb, FILE *to) {
    bt_text out;
    bt_text_init(&out);
    if (verb)
        bt_text_printf(&out, "bitrain %s %s - %s\n\nusage: bitrain %s%s %s%s%s [options]\n",
                       c->name, verb->name, verb->summary, c->name, c->verb_at ? " RUN" : "",
                       verb->name, *verb->words ? " " : "", verb->words);
    else
        bt_text_printf(&out, "bitrain %s - %s\n\nusage: bitrain %s%s%s [options]\n", c->name,
                       c->summary, c->name, c->args && *c->args ? " " : "", c->args ? c->args : "");
    bt_text examples;
    bt_text_init(&examples);
    if (c->examples) bt_help_examples(c, verb && !c->verb_at ? verb->name : NULL, "  ", &examples);
    if (examples.len) bt_text_printf(&out, "\nexamples:\n%s", bt_text_str(&examples));
    bt_text_release(&examples);
    if ((c->verb || c->verbs) && !verb) put_verbs(c, &out);
    const bt_opt *options = verb ? verb->options : c->options.rows;
    const size_t n = bt_option_count(&c->options);
    if (verb)
        put_options(options, verb->n_options, verb->name, &out);
    else if (options == bt_run_opts && n)
        bt_help_run_options(&out);
    else
        put_options(options, n, "", &out);
    fputs(bt_text_str(&out), to);
    bt_text_release(&out);
}

static void print_option_row(const bt_opt *o, bt_text *out) {
    char range[80] = "";
    if (o->type == BT_OPT_INT || o->type == BT_OPT_REAL)
        snprintf(range, sizeof range, "%.15g..%.15g", o->min, o->max);
    if (o->type == BT_OPT_ENUM) snprintf(range, sizeof range, "%s", o->choices);
    if (o->type == BT_OPT_BOOL) snprintf(range, sizeof range, "true|false");
    bt_text_printf(out, "  %-22s %-15s %s", o->key, o->flag ? o->flag : "", o->help);
    if (*o->def)
        bt_text_printf(out, " [%s%s%s]", o->def, o->unit ? " " : "", o->unit ? o->unit : "");
    if (*range) bt_text_printf(out, " (%s)", range);
    bt_text_put(out, "\n");
}

void bt_help_options(bt_text *out) {
    bt_text_put(out,
                "Settings of a run. Each can be given by its flag, by its key with --set KEY=VALUE "
                "or in a YAML file, and\n"
                "in the environment (optim.lr: BITRAIN_OPTIM_LR or BITRAIN_LR). Precedence: flag, "
                "--set, environment, file, preset, default.\n");
    const char *group = "";
    size_t group_n = 0;
    for (size_t i = 0; i < bt_run_opts_n; i++) {
        const char *key = bt_run_opts[i].key;
        size_t n = strcspn(key, ".");
        if (n != group_n || strncmp(key, group, n) != 0) bt_text_put(out, "\n");
        group = key;
        group_n = n;
        print_option_row(&bt_run_opts[i], out);
    }
}

void bt_help_metrics(bt_text *out) {
    bt_text_put(out,
                "values of a run (view 'runs', the head of a run in the API, lists and tiles):\n");
    for (int i = 0; i < BT_FIGURES; i++) {
        const bt_figure_row *f = &bt_figures[i];
        bt_text_printf(out, "  %-20s %-25s %s: %s\n", f->key, bt_figure_span_name(f->span),
                       f->label, f->help);
    }
    bt_text_put(out, "\nparts of a run's time (view 'runs'), which add up to the elapsed time:\n");
    for (int p = 0; p < BT_TIME_PARTS; p++)
        bt_text_printf(out, "  %s_s%*s %s\n", bt_times[p].key, (int)(18 - strlen(bt_times[p].key)),
                       "", bt_times[p].help);
    bt_text_put(out, "\n");
    for (int s = 0; s < BT_SCOPE_COUNT; s++) {
        const bt_scope_row *scope = &bt_scopes[s];
        bt_text_printf(out, "%sper %s (view '%s'):\n", s ? "\n" : "", scope->per, scope->view);
        for (int i = 0; i < scope->n; i++) {
            const bt_metric *m = &scope->metric[i];
            bt_text_printf(out, "  %-20s %-9s %s\n", m->key, bt_unit_name(m->unit), m->help);
        }
    }
}

static const bt_exit_meaning exit_codes[] = {{0, "success"},
                                             {1, "failure"},
                                             {2, "wrong usage"},
                                             {3, "not found"},
                                             {4, "busy or refused"},
                                             {5, "a check failed"},
                                             {6, "corrupt input or state"},
                                             {130, "interrupted"},
                                             {143, "terminated"}};
size_t bt_help_exit_code_count(void) { return sizeof exit_codes / sizeof *exit_codes; }
const bt_exit_meaning *bt_help_exit_code_at(size_t i) { return &exit_codes[i]; }

void bt_help_exit_codes(bt_text *out) {
    for (size_t i = 0; i < bt_help_exit_code_count(); i++)
        bt_text_printf(out, "%s%d %s",
                       !i                          ? ""
                       : exit_codes[i].code == 130 ? ",\n"
                                                   : ", ",
                       exit_codes[i].code, exit_codes[i].meaning);
    bt_text_put(out, "\n");
}

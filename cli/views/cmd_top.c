/* cmd_top.c - `bitrain top`: the screens of a running or past run, or one frame of them as text or
 * JSON. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/common/command.h"
#include "cli/common/database.h"
#include "cli/common/run_folder.h"
#include "cli/common/signals.h"
#include "cli/common/start_run.h"
#include "engine/base/clock.h"
#include "monitor/tui/draw/color.h"
#include "monitor/tui/top.h"
#include "store/read/dead_runs.h"
#include "store/wire/control_client.h"
#include "store/write/manage.h"

typedef struct top_cfg {
    char store[1024], theme[1024], screen[16], x[16], baseline[BT_NAME_MAX], size[24];
    bool once, json, plain, ascii, home;
    double watch, span;
    int64_t step;
} top_cfg;

/* "overview ranks ... or its number" */
#define BT_SCREEN(id, name, title, parts, panes) #name " "
static const char screen_names[] =
#include "monitor/tui/screens/screens.def"
    "or its number";
#undef BT_SCREEN

static const bt_opt top_opts[] = {
    {"once", "--once", BT_OPT_BOOL, offsetof(top_cfg, once), sizeof(bool), "false", 0, 0, NULL,
     NULL, "print one frame and end"},
    {"json", "--json", BT_OPT_BOOL, offsetof(top_cfg, json), sizeof(bool), "false", 0, 0, NULL,
     NULL, "the numbers of the frame as one JSON object"},
    {"plain", "--plain", BT_OPT_BOOL, offsetof(top_cfg, plain), sizeof(bool), "false", 0, 0, NULL,
     NULL, "frames as plain text, one after the other, no keys"},
    {"watch", "--watch", BT_OPT_REAL, offsetof(top_cfg, watch), sizeof(double), "0", 0, 86400, NULL,
     "s", "with --plain or --json: a frame every so many seconds"},
    {"screen", "--screen", BT_OPT_TEXT, offsetof(top_cfg, screen), 16, "", 0, 0, NULL, NULL,
     screen_names},
    {"x", "--x", BT_OPT_TEXT, offsetof(top_cfg, x), 16, "step", 0, 0, NULL, NULL,
     "x axis: step tokens time active bytes"},
    {"span", "--span", BT_OPT_REAL, offsetof(top_cfg, span), sizeof(double), "0", 0, 1e9, NULL, "s",
     "show this much time (0: all)"},
    {"step", "--step", BT_OPT_INT, offsetof(top_cfg, step), sizeof(int64_t), "0", 0, 1e15, NULL,
     NULL, "the screen as it was at this step (0: now)"},
    {"baseline", "--baseline", BT_OPT_TEXT, offsetof(top_cfg, baseline), BT_NAME_MAX, "", 0, 0,
     NULL, NULL, "a run drawn as a ghost in every chart"},
    {"size", "--size", BT_OPT_TEXT, offsetof(top_cfg, size), 24, "", 0, 0, NULL, NULL,
     "size of printed frames, as 120x40 (default: the terminal's)"},
    {"ascii", "--ascii", BT_OPT_BOOL, offsetof(top_cfg, ascii), sizeof(bool), "false", 0, 0, NULL,
     NULL, "draw with ASCII characters only"},
    {"theme", "--theme", BT_OPT_TEXT, offsetof(top_cfg, theme), 1024, "", 0, 0, NULL, NULL,
     "dark, light, or a file of lines 'ROLE INDEX' (default: $BITRAIN_THEME, else dark)"},
    {"home", "--home", BT_OPT_BOOL, offsetof(top_cfg, home), sizeof(bool), "false", 0, 0, NULL,
     NULL, "open on the list of runs, also when there is none (plain `bitrain` on a terminal)"},
    {"store", "--store", BT_OPT_TEXT, offsetof(top_cfg, store), 1024, "", 0, 0, NULL, NULL,
     "metrics database"},
};

static const bt_opt *options(size_t *n) {
    *n = sizeof top_opts / sizeof top_opts[0];
    return top_opts;
}

/* ---- size ------------------------------------------------------------------------------------ */

static int from_env(const char *name) {
    const char *v = getenv(name);
    int n = v ? atoi(v) : 0;
    return n > 0 ? n : 0;
}

static bt_code frame_size(const char *given, int *w, int *h, bt_err *err) {
    struct winsize ws;
    *w = from_env("COLUMNS");
    *h = from_env("LINES");
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &ws) == 0 && ws.ws_col > 0)
        *w = ws.ws_col, *h = ws.ws_row > 1 ? ws.ws_row - 1 : 24;
    if (*w == 0) *w = 80;
    if (*h == 0) *h = 24;
    if (!given[0]) return BT_OK;
    char rest;
    if (sscanf(given, "%dx%d%c", w, h, &rest) != 2 || *w < 1 || *h < 1 || *w > 1000 || *h > 500)
        return bt_fail(err, BT_ARG, "'%s' is not a size (as in --size 120x40, at most 1000x500)",
                       given);
    return BT_OK;
}

/* ---- what keys may do ------------------------------------------------------------------------ */

typedef struct doing {
    bt_db *db;
    char store[1024];
} doing;

static bt_code control(void *ctx, const char *run, const char *verb, const char *value, char *reply,
                       size_t size, bt_err *err) {
    const doing *d = ctx;
    char request[BT_CONTROL_LINE];
    BT_TRY(bt_control_line(request, sizeof request, verb, value, "top", err));
    return bt_control_request(d->db, run, request, reply, size, err);
}

static bt_code mark(void *ctx, const char *run, int64_t step, bt_event_kind kind, const char *text,
                    bt_err *err) {
    return bt_run_mark(((const doing *)ctx)->store, run, step, kind, text, 1, err);
}

static bt_code tag(void *ctx, const char *run, const char *words, char *tags, size_t size,
                   bt_err *err) {
    char copy[512], now[256], *rest = copy, *word;
    const char *list[16];
    size_t n = 0;
    snprintf(copy, sizeof copy, "%s", words);
    while (n < sizeof list / sizeof list[0] && (word = strsep(&rest, " ,")) != NULL)
        if (*word) list[n++] = word;
    BT_TRY(bt_run_tag(((const doing *)ctx)->store, run, list, n, 1, now, err));
    snprintf(tags, size, "%s", now);
    return BT_OK;
}

static bt_code note(void *ctx, const char *run, const char *text, bt_err *err) {
    return bt_run_note(((const doing *)ctx)->store, run, text, 1, err);
}

static bt_code rename_run(void *ctx, const char *run, const char *name, bt_err *err) {
    return bt_run_rename(((const doing *)ctx)->store, run, name, 1, err);
}

static bt_code remove_run(void *ctx, const char *run, bool checkpoints, char *reply, size_t size,
                          bt_err *err) {
    return bt_run_remove(((const doing *)ctx)->store, run, checkpoints, reply, size, err);
}

static bt_code start(void *ctx, int argc, const char *const *argv, char name[BT_NAME_MAX],
                     bt_err *err) {
    return bt_cli_start_run(((const doing *)ctx)->store, argc, argv, name, 1.5, err);
}

/* ---- ways to show ---------------------------------------------------------------------------- */

static bt_code print_json(const bt_top_cfg *view, bt_err *err) {
    bt_text out;
    bt_text_init(&out);
    bt_code code = bt_top_json(view, &out, err);
    if (code == BT_OK && out.failed) code = bt_fail(err, BT_NOMEM, "no memory for the frame");
    if (code == BT_OK && (fputs(bt_text_str(&out), stdout) < 0 || fflush(stdout) != 0))
        code = bt_fail_errno(err, BT_IO, errno, "cannot write the frame");
    bt_text_release(&out);
    return code;
}

static bt_code print_frames(const top_cfg *cfg, const bt_top_cfg *view, bt_err *err) {
    bt_term_caps caps = bt_term_caps_of_env();
    bt_term *term = NULL;
    int w, h;
    caps.keys = false;
    if (cfg->ascii) caps.chars = BT_CHARS_ASCII;
    if (cfg->plain || !isatty(STDOUT_FILENO)) caps.depth = BT_DEPTH_MONO;
    if (!isatty(STDOUT_FILENO) && !cfg->ascii && caps.chars == BT_CHARS_BLOCK)
        caps.chars = BT_CHARS_BRAILLE;
    BT_TRY(frame_size(cfg->size, &w, &h, err));
    if (!cfg->json) BT_TRY(bt_term_open_text(&term, stdout, caps, w, h, false, err));
    bt_code code;
    for (;;) {
        code = cfg->json ? print_json(view, err) : bt_top_frame(view, term, err);
        if (code != BT_OK || cfg->watch <= 0) break;
        bt_sleep_ns((int64_t)(cfg->watch * 1e9));
        if (bt_db_moved(view->db) && (code = bt_db_reopen(view->db, err)) != BT_OK) break;
    }
    bt_term_close(term);
    return code;
}

static bt_code interactive(const top_cfg *cfg, const bt_top_cfg *view, bt_err *err) {
    bt_term_caps caps = bt_term_caps_of_env();
    bt_term *term = NULL;
    if (cfg->ascii) caps.chars = BT_CHARS_ASCII;
    bt_signals_guard_terminal(STDIN_FILENO);
    BT_TRY(bt_term_open_ncurses(&term, caps, err));
    bt_signals_full_screen(true);
    bt_code code = bt_top_interactive(view, term, err);
    bt_signals_full_screen(false);
    bt_term_close(term);
    return code;
}

/* the home screen is also for those who have not trained yet */
static bt_code open_store(bt_db **db, const char *store, bool home, bt_err *err) {
    bt_writer *w = NULL;
    bt_err first = BT_ERR_INIT;
    bt_code code = bt_db_open(db, store, &first);
    if (code != BT_NOTFOUND || !home) {
        if (code != BT_OK)
            *err = first;
        else
            bt_store_rescue(*db, 0.1);
        return code;
    }
    BT_TRY(bt_writer_open(&w, store, 5, err));
    bt_writer_close(w);
    return bt_db_open(db, store, err);
}

static bt_code run(int argc, char **argv, int *exit_status, bt_err *err) {
    (void)exit_status;
    doing d = {NULL, ""};
    top_cfg cfg;
    bt_opts o;
    const char *word = NULL;
    size_t n_words = 0;
    bool help;
    BT_TRY(bt_opts_init(&o, top_opts, sizeof top_opts / sizeof top_opts[0], &cfg, err));
    BT_TRY(bt_opts_argv(&o, argc, argv, &word, 1, &n_words, &help, err));
    bt_top_cfg view = {.store = d.store,
                       .run = word ? word : "last",
                       .span_s = cfg.span,
                       .at_step = cfg.step > 0 ? cfg.step - 1 : -1,
                       .baseline = cfg.baseline};
    if (!bt_x_axis_parse(cfg.x, &view.x))
        return bt_fail(err, BT_ARG, "no x axis '%s' (step, tokens, time, active, bytes)", cfg.x);
    view.screen = cfg.screen[0] ? bt_top_screen_by_name(cfg.screen) : 0;
    if (cfg.screen[0] && view.screen == 0)
        return bt_fail(err, BT_ARG, "no screen '%s' (%s)", cfg.screen, screen_names);
    const char *term = getenv("TERM"), *theme = cfg.theme[0] ? cfg.theme : getenv("BITRAIN_THEME");
    if (theme && *theme) BT_TRY(bt_color_theme(theme, err));
    bool screen = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term && term[0] &&
                  strcmp(term, "dumb") != 0;
    bt_db *db = NULL;
    BT_TRY(bt_store_path(d.store, sizeof d.store, cfg.store, err));
    BT_TRY(open_store(&db, d.store, cfg.home, err));
    d.db = view.db = db;
    view.actions = (bt_top_actions){&d, control, start, mark, tag, remove_run, note, rename_run};
    if (cfg.home && !word) view.run = "";
    bt_code code;
    if (cfg.once || cfg.plain || cfg.json || !screen)
        code = print_frames(&cfg, &view, err);
    else
        code = interactive(&cfg, &view, err);
    bt_db_close(db);
    return code;
}

const bt_command bt_cmd_top = {
    .name = "top",
    .summary = "live screens of a running or past run",
    .args = "[RUN]",
    .examples = "bitrain top # the newest run; ? lists the keys\n"
                "bitrain top demo --screen ranks # who is slow, and why\n"
                "bitrain top demo --once # one frame of text\n"
                "bitrain top demo --once --json | jq '.stragglers[0]'\n"
                "bitrain top demo --plain --watch 5 # for logs and dumb terminals",
    .options = options,
    .run = run,
};

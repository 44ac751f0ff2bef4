/* cmd_top.c - `bitrain top`: shows the screens of a running or finished run, or prints one of them as text or JSON. */
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

/* list of the screens for the help text: "overview ranks ... or its number" */
#define BT_SCREEN(id, name, title, parts, panes) #name " "
static const char screen_names[] =
#include "monitor/tui/screens/screens.def"
    "or its number";
#undef BT_SCREEN

static const bt_opt top_opts[] = {
    BT_ROW_FLAG(top_cfg, once, "--once", "print one frame and end"),
    BT_ROW_FLAG(top_cfg, json, "--json", "the numbers of the frame as one JSON object"),
    BT_ROW_FLAG(top_cfg, plain, "--plain", "frames as plain text, one after another, without keys"),
    BT_ROW_REAL(top_cfg, watch, "--watch", "0", 0, 86400, "s",
                "seconds between frames with --plain or --json"),
    {"screen", "--screen", BT_OPT_TEXT, BT_FIELD(top_cfg, screen), "", 0, 0, NULL, NULL,
     screen_names},
    BT_ROW_TEXT(top_cfg, x, "--x", "step", "x axis: step tokens time active bytes"),
    BT_ROW_REAL(top_cfg, span, "--span", "0", 0, 1e9, "s", "show this much time (0: all)"),
    BT_ROW_INT(top_cfg, step, "--step", "0", 0, 1e15, NULL,
               "show the screen as it was at this step (0: now)"),
    BT_ROW_TEXT(top_cfg, baseline, "--baseline", "",
                "run to draw faintly in every chart for comparison"),
    BT_ROW_TEXT(top_cfg, size, "--size", "",
                "size of printed frames, such as 120x40 (default: the terminal's)"),
    BT_ROW_FLAG(top_cfg, ascii, "--ascii", "draw with ASCII characters only"),
    BT_ROW_TEXT(
        top_cfg, theme, "--theme", "",
        "dark, light, or a file of lines 'ROLE INDEX' (default: $BITRAIN_THEME, else dark)"),
    BT_ROW_FLAG(top_cfg, home, "--home",
                "begin with the list of runs, even if it is empty (as `bitrain` alone does on a "
                "terminal)"),
    BT_ROW_STORE(top_cfg),
};

static int read_size_variable(const char *name) {
    const char *v = getenv(name);
    int n = v ? atoi(v) : 0;
    return n > 0 ? n : 0;
}

static bt_code frame_size(const char *given, int *w, int *h, bt_err *err) {
    struct winsize ws;
    *w = read_size_variable("COLUMNS");
    *h = read_size_variable("LINES");
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

typedef struct doing {
    bt_db *db;
    char store[1024];
} doing;

static bt_code send_control_request(void *ctx, const char *run, const char *verb, const char *value,
                                    char *reply, size_t size, bt_err *err) {
    const doing *d = ctx;
    char request[BT_CONTROL_LINE];
    BT_TRY(bt_control_line(request, sizeof request, verb, value, "top", err));
    return bt_control_request(d->db, run, request, reply, size, err);
}

static bt_code mark_from_top(void *ctx, const char *run, int64_t step, bt_event_kind kind,
                             const char *text, bt_err *err) {
    return bt_run_mark(((const doing *)ctx)->store, run, step, kind, text, 1, err);
}

static bt_code tag_from_top(void *ctx, const char *run, const char *words, char *tags, size_t size,
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

static bt_code note_from_top(void *ctx, const char *run, const char *text, bt_err *err) {
    return bt_run_note(((const doing *)ctx)->store, run, text, 1, err);
}

static bt_code rename_from_top(void *ctx, const char *run, const char *name, bt_err *err) {
    return bt_run_rename(((const doing *)ctx)->store, run, name, 1, err);
}

static bt_code remove_from_top(void *ctx, const char *run, bool checkpoints, char *reply,
                               size_t size, bt_err *err) {
    return bt_run_remove(((const doing *)ctx)->store, run, checkpoints, reply, size, err);
}

static bt_code start_from_top(void *ctx, int argc, const char *const *argv, char name[BT_NAME_MAX],
                              bt_err *err) {
    return bt_cli_start_run(((const doing *)ctx)->store, argc, argv, name, 1.5, err);
}

static bt_code print_top_json(const bt_top_cfg *view, bt_err *err) {
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
        code = cfg->json ? print_top_json(view, err) : bt_top_frame(view, term, err);
        if (code != BT_OK || cfg->watch <= 0) break;
        bt_sleep_ns((int64_t)(cfg->watch * 1e9));
        if (bt_db_moved(view->db) && (code = bt_db_reopen(view->db, err)) != BT_OK) break;
    }
    bt_term_close(term);
    return code;
}

static bt_code run_interactive_top(const top_cfg *cfg, const bt_top_cfg *view, bt_err *err) {
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

/* Opens the database. The home screen also works without a database, for users who have not trained yet. */
static bt_code open_top_database(bt_db **db, const char *store, bool home, bt_err *err) {
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

static bt_code cmd_top(bt_call *call, bt_err *err) {
    doing d = {NULL, ""};
    top_cfg *cfg = call->cfg;
    const char *word = call->words[0];
    bt_top_cfg view = {.store = d.store,
                       .run = word ? word : "last",
                       .span_s = cfg->span,
                       .at_step = cfg->step > 0 ? cfg->step - 1 : -1,
                       .baseline = cfg->baseline};
    if (!bt_x_axis_parse(cfg->x, &view.x))
        return bt_fail(err, BT_ARG, "no x axis '%s' (step, tokens, time, active, bytes)", cfg->x);
    view.screen = cfg->screen[0] ? bt_top_screen_by_name(cfg->screen) : 0;
    if (cfg->screen[0] && view.screen == 0)
        return bt_fail(err, BT_ARG, "no screen '%s' (%s)", cfg->screen, screen_names);
    const char *term = getenv("TERM"),
               *theme = cfg->theme[0] ? cfg->theme : getenv("BITRAIN_THEME");
    if (theme && *theme) BT_TRY(bt_color_theme(theme, err));
    bool screen = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term && term[0] &&
                  strcmp(term, "dumb") != 0;
    bt_db *db = NULL;
    BT_TRY(bt_store_path(d.store, sizeof d.store, cfg->store, err));
    BT_TRY(open_top_database(&db, d.store, cfg->home, err));
    d.db = view.db = db;
    view.actions =
        (bt_top_actions){&d,           send_control_request, start_from_top, mark_from_top,
                         tag_from_top, remove_from_top,      note_from_top,  rename_from_top};
    if (cfg->home && !word) view.run = "";
    bt_code code;
    if (cfg->once || cfg->plain || cfg->json || !screen)
        code = print_frames(cfg, &view, err);
    else
        code = run_interactive_top(cfg, &view, err);
    bt_db_close(db);
    return code;
}

const bt_command bt_cmd_top = {
    .name = "top",
    .summary = "live screens of a running or past run",
    .args = "[RUN]",
    .examples = "bitrain top # the newest run; ? lists the keys\n"
                "bitrain top demo --screen ranks # slow ranks and the cause\n"
                "bitrain top demo --once # one frame of text\n"
                "bitrain top demo --once --json | jq '.stragglers[0]'\n"
                "bitrain top demo --plain --watch 5 # for logs and dumb terminals",
    .options = BT_OPTION_SET(top_opts, top_cfg),
    .max_words = 1,
    .word_hint = "top shows one run: its screen 'runs' lists all",
    .run = cmd_top,
};

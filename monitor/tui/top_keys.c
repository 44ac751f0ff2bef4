/* top_keys.c - executes each key. Input lines (filter, command, confirmation, form) take keys
 * before the table does. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "monitor/tui/screens/top_state.h"

/* ---- time ------------------------------------------------------------------------------------ */

static void select_step(bt_top *t, int64_t step) {
    int64_t newest = t->view->head.newest_step;
    t->at_step = step >= newest ? -1 : step < 0 ? 0 : step;
    t->reload = true;
}

/* Moves by a twentieth of the visible span. */
static void move_step_cursor(bt_top *t, int dir) {
    const bt_view_head *h = &t->view->head;
    if (h->newest_step < 1) return;
    int64_t here = h->step, to = -1;
    bt_err err = BT_ERR_INIT;
    if (t->span_s > 0) {
        double now = bt_view_time_of(t->view, t->run, here);
        if (bt_view_step_at(t->view, t->run, now + dir * t->span_s / 20, &to, &err) != BT_OK)
            to = -1;
        if (to == here || to < 0) to = here + dir;
    } else {
        int64_t by = (h->newest_step + 1) / 20;
        to = here + dir * (by > 0 ? by : 1);
    }
    select_step(t, to);
}

static void jump_to_event(bt_top *t, int dir) {
    int64_t step = -1;
    bt_err err = BT_ERR_INIT;
    if (bt_view_event_step(t->view, t->run, t->view->head.step, dir, &step, &err) != BT_OK)
        bt_top_message(t, BT_C_BAD, "%s", err.msg);
    else if (step < 0)
        bt_top_message(t, BT_C_LABEL, dir < 0 ? "no earlier event" : "no later event");
    else
        select_step(t, step);
}

/* spans longer than the run equal the whole run and are skipped */
static void change_time_span(bt_top *t, int by) {
    int k = t->span + by;
    while (k > 0 && k < bt_top_spans_n - 1 && t->view->head.elapsed_s > 0 &&
           bt_top_spans[k] > t->view->head.elapsed_s)
        k += by;
    t->span = k < 0 ? 0 : k >= bt_top_spans_n ? bt_top_spans_n - 1 : k;
    t->span_s = bt_top_spans[t->span];
    t->reload = true;
}

/* A pan moves by a quarter of the visible range. */
static void change_y_axis(bt_top *t, bt_action a) {
    if (a == BT_DO_Y_ALL) {
        t->y_all = !t->y_all && t->y_zoom == 0 && !(t->y_pan > 0 || t->y_pan < 0);
        t->y_zoom = 0;
        t->y_pan = 0;
        return;
    }
    t->y_all = false;
    if (a == BT_DO_Y_IN && t->y_zoom < 12) t->y_zoom++;
    if (a == BT_DO_Y_OUT && t->y_zoom > -12) t->y_zoom--;
    if (a == BT_DO_Y_UP) t->y_pan += 0.25 * pow(2, -t->y_zoom);
    if (a == BT_DO_Y_DOWN) t->y_pan -= 0.25 * pow(2, -t->y_zoom);
}

/* ---- lists ----------------------------------------------------------------------------------- */

enum { WHEEL_ROWS = 3 };

static void move_selection(bt_top *t, int by) {
    bt_list *l = &t->list[t->screen];
    if (t->help) {
        t->help_top = t->help_top + by < 0 ? 0 : t->help_top + by;
        return;
    }
    l->touched = true;
    /* The cursor moves to another run. */
    if (t->screen == BT_SCREEN_RUNS) t->cursor_run[0] = 0;
    int to = l->selected + by, last = (int)t->n_rows - 1;
    l->selected = to > last ? (last > 0 ? last : 0) : to < 0 ? 0 : to;
    if (t->screen == BT_SCREEN_TERNARY) bt_ternary_choose(t);
}

static void sort_rows_by(bt_top *t, int by) {
    bt_list *l = &t->list[t->screen];
    if (t->columns == 0) return;
    do { /* -1: the screen's own order */
        l->sort += by;
        if (l->sort >= BT_LIST_COLUMNS) l->sort = -1;
        if (l->sort < -1) l->sort = BT_LIST_COLUMNS - 1;
    } while (l->sort >= 0 && !(t->columns >> l->sort & 1));
}

static const char *run_under_cursor(const bt_top *t) {
    const bt_list *l = &t->list[BT_SCREEN_RUNS];
    if (t->screen != BT_SCREEN_RUNS || t->n_rows == 0 || (size_t)l->selected >= t->n_rows ||
        t->rows[l->selected] >= t->view->runs.n)
        return NULL;
    return t->view->runs.run[t->rows[l->selected]].run;
}

static void toggle_rank(bt_top *t) {
    const bt_list *l = &t->list[BT_SCREEN_RANKS];
    if (t->n_rows == 0 || (size_t)l->selected >= t->n_rows) return;
    int rank = (int)t->rows[l->selected];
    for (int i = 0; i < t->n_marked_ranks; i++) {
        if (t->marked_rank[i] != rank) continue;
        t->marked_rank[i] = t->marked_rank[--t->n_marked_ranks];
        return;
    }
    if (t->n_marked_ranks < BT_MARKED_RANKS) t->marked_rank[t->n_marked_ranks++] = rank;
    move_selection(t, 1);
}

static void toggle_mark(bt_top *t) {
    if (t->screen == BT_SCREEN_RANKS) toggle_rank(t);
    const char *run = run_under_cursor(t);
    if (!run) return;
    for (int i = 0; i < t->n_marked; i++) {
        if (strcmp(t->marked[i], run) != 0) continue;
        memmove(t->marked[i], t->marked[i + 1],
                (size_t)(t->n_marked - i - 1) * sizeof t->marked[0]);
        t->n_marked--;
        return;
    }
    if (t->n_marked == BT_MARKED_MAX)
        bt_top_message(t, BT_C_WARN, "%d runs are marked already", BT_MARKED_MAX);
    else
        snprintf(t->marked[t->n_marked++], sizeof t->marked[0], "%s", run);
    move_selection(t, 1);
}

static void open_comparison(bt_top *t) {
    if (t->n_marked < 2) {
        bt_top_message(t, BT_C_LABEL,
                       "mark two or more runs with Space on the Runs screen, then press c");
        return;
    }
    t->screen = BT_SCREEN_RUNS;
    t->comparing = true;
    t->reload = true;
}

static void set_baseline(bt_top *t, const char *run) {
    char name[BT_NAME_MAX];
    bt_err err = BT_ERR_INIT;
    t->reload = true;
    if (bt_db_run(t->cfg.db, run, name, &err) != BT_OK)
        bt_top_message(t, BT_C_BAD, "%s", err.msg);
    else if (t->has_run && strcmp(name, t->run) == 0)
        bt_top_message(t, BT_C_WARN, "%s is the run in view: choose another as its baseline", name);
    else {
        snprintf(t->baseline, sizeof t->baseline, "%s", name);
        bt_top_message(t, BT_C_ACCENT, "baseline: %s", t->baseline);
    }
}

static void drop_baseline(bt_top *t) {
    t->baseline[0] = 0;
    t->reload = true;
    bt_top_message(t, BT_C_LABEL, "no baseline any more");
}

/* Uses the run under the list's cursor; other screens prompt for a name. */
static void choose_baseline(bt_top *t) {
    const char *run = run_under_cursor(t);
    if (t->baseline[0] && (!run || strcmp(run, t->baseline) == 0))
        drop_baseline(t);
    else if (run)
        set_baseline(t, run);
    else
        t->input = BT_INPUT_COMMAND, snprintf(t->line, sizeof t->line, "baseline ");
}

static void open_screen(bt_top *t, int screen) {
    t->screen = (bt_screen_id)screen;
    t->pane = 0;
    t->expanded = t->help = t->comparing = false;
    t->mode = 0;
    /* the range of one screen's charts does not apply to other screens */
    t->y_all = false;
    t->y_zoom = 0;
    t->y_pan = 0;
    t->reload = true;
    if (screen == BT_SCREEN_RUNS) snprintf(t->cursor_run, sizeof t->cursor_run, "%s", t->run);
}

static void open_pane_screen(bt_top *t) {
    static const bt_screen_id screen_of[] = {BT_SCREEN_NONE, BT_SCREEN_STEP, BT_SCREEN_RANKS,
                                             BT_SCREEN_EVENTS};
    if (t->screen == BT_SCREEN_OVERVIEW && t->pane > 0 && t->pane < 4)
        open_screen(t, (int)screen_of[t->pane]);
    else
        t->expanded = !t->expanded;
}

static void open_selected(bt_top *t) {
    const char *run = run_under_cursor(t);
    if (run && bt_top_select_run(t, run))
        t->screen = BT_SCREEN_OVERVIEW;
    else if (t->screen == BT_SCREEN_EVENTS && (size_t)t->list[t->screen].selected < t->n_rows) {
        const bt_view_event *e = &t->view->events.event[t->rows[t->list[t->screen].selected]];
        if (e->step >= 0) select_step(t, e->step), t->screen = BT_SCREEN_OVERVIEW;
    } else if (t->screen == BT_SCREEN_RANKS) {
        t->list[BT_SCREEN_STEP].selected = t->n_rows ? (int)t->rows[t->list[t->screen].selected]
                                                     : 0;
        t->list[BT_SCREEN_STEP].sort = -1;
        t->list[BT_SCREEN_STEP].touched = true;
        t->screen = BT_SCREEN_STEP;
        t->reload = true;
    } else if (t->screen == BT_SCREEN_OVERVIEW || t->screen == BT_SCREEN_TERNARY) {
        open_pane_screen(t);
    }
}

/* Leaves the innermost view first; without one it does nothing. */
static void leave_innermost_view(bt_top *t) {
    if (t->help)
        t->help = false;
    else if (t->comparing)
        t->comparing = false;
    else if (t->filter_on)
        bt_top_filter_set(t, "");
    else if (t->expanded)
        t->expanded = false;
    else if (t->screen == BT_SCREEN_RANKS && t->n_marked_ranks)
        t->n_marked_ranks = 0;
    else if (t->at_step >= 0)
        select_step(t, INT64_MAX);
    else if (t->screen != BT_SCREEN_OVERVIEW && t->has_run)
        t->screen = BT_SCREEN_OVERVIEW;
    else
        t->message_until_ns = 0;
    t->reload = true;
}

/* ---- writing the screen ---------------------------------------------------------------------- */

static bool write_frame_file(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    if (!f) return false;
    bool ok = fputs(text, f) >= 0;
    return fclose(f) == 0 && ok;
}

static void write_screen(bt_top *t) {
    char base[160], path[200];
    bt_text text, json;
    bt_json j;
    snprintf(base, sizeof base, "%s-%s-%lld", t->has_run ? t->run : "bitrain",
             bt_screens[t->screen].name, (long long)(t->view->head.step + 1));
    bt_text_init(&text);
    bt_text_init(&json);
    bt_canvas_dump(&t->canvas, &text);
    bt_json_begin(&j, &json);
    bt_view_json(t->view, bt_screens[t->screen].parts, &j, NULL);
    bt_text_put(&json, "\n");
    snprintf(path, sizeof path, "%s.txt", base);
    bool ok = write_frame_file(path, bt_text_str(&text));
    snprintf(path, sizeof path, "%s.json", base);
    ok = ok && write_frame_file(path, bt_text_str(&json));
    if (ok)
        bt_top_message(t, BT_C_GOOD, "wrote %s.txt and %s.json", base, base);
    else
        bt_top_message(t, BT_C_BAD, "cannot write '%s': %s", path, strerror(errno));
    bt_text_release(&text);
    bt_text_release(&json);
}

/* ---- command line and control ---------------------------------------------------------------- */

static void choose_metric(bt_top *t, const char *name) {
    const char *names[BT_MS_COUNT];
    for (int i = 0; i < BT_MS_COUNT; i++) {
        names[i] = bt_step_metrics[i].key;
        if (strcmp(names[i], name) != 0) continue;
        t->metric = i;
        t->screen = BT_SCREEN_OVERVIEW;
        t->pane = 0;
        return;
    }
    const char *near = bt_nearest(name, names, BT_MS_COUNT);
    if (near)
        bt_top_message(t, BT_C_WARN, "no metric '%s' (did you mean '%s'?)", name, near);
    else
        bt_top_message(t, BT_C_WARN, "no metric '%s' ('bitrain help metrics' lists them)", name);
}

static void run_command_line_of_top(bt_top *t, char *line) {
    static const char *const words[] = {"step", "rank", "run",    "metric", "baseline",
                                        "x",    "span", "screen", "quit",   "q",
                                        "help", "new",  "scatter"};
    char *word = strtok(line, " "), *arg = strtok(NULL, " "), *end = NULL;
    const char *value = arg ? arg : "";
    if (!word) return;
    if (strcmp(word, "quit") == 0 || strcmp(word, "q") == 0)
        t->quit = true;
    else if (strcmp(word, "help") == 0)
        t->help = true;
    else if (strcmp(word, "new") == 0)
        bt_form_open(t);
    else if (!arg &&
             (strcmp(word, "step") == 0 || strcmp(word, "rank") == 0 || strcmp(word, "run") == 0 ||
              strcmp(word, "x") == 0 || strcmp(word, "span") == 0 || strcmp(word, "metric") == 0))
        bt_top_message(t, BT_C_WARN, ":%s needs a value", word);
    else if (strcmp(word, "step") == 0) {
        long long n = strtoll(value, &end, 10);
        if (*end || n < 1)
            bt_top_message(t, BT_C_WARN, "'%s' is not a step", value);
        else
            select_step(t, n - 1);
    } else if (strcmp(word, "rank") == 0) {
        long n = strtol(value, &end, 10);
        if (*end || n < 0 || (size_t)n >= t->view->ranks.n) {
            bt_top_message(t, BT_C_WARN, "no rank '%s' (0 to %zu)", value,
                           t->view->ranks.n ? t->view->ranks.n - 1 : 0);
        } else {
            t->screen = BT_SCREEN_STEP;
            t->list[BT_SCREEN_STEP].selected = (int)n;
            t->list[BT_SCREEN_STEP].touched = true;
            t->list[BT_SCREEN_STEP].sort = -1;
            bt_top_filter_set(t, "");
        }
    } else if (strcmp(word, "run") == 0) {
        if (bt_top_select_run(t, value) && t->screen == BT_SCREEN_RUNS)
            t->screen = BT_SCREEN_OVERVIEW;
    } else if (strcmp(word, "metric") == 0) {
        choose_metric(t, value);
    } else if (strcmp(word, "scatter") == 0) {
        bt_scatter_choose(t, arg, strtok(NULL, " "));
    } else if (strcmp(word, "baseline") == 0) {
        if (arg)
            set_baseline(t, arg);
        else
            drop_baseline(t);
    } else if (strcmp(word, "x") == 0) {
        if (!bt_x_axis_parse(value, &t->x))
            bt_top_message(t, BT_C_WARN, "no x axis '%s' (step, tokens, time, active, bytes)",
                           value);
    } else if (strcmp(word, "span") == 0) {
        bool all = strcmp(value, "all") == 0;
        double s = all ? 0 : strtod(value, &end);
        const char *unit = all || end == value ? "" : end;
        s *= *unit == 'm' ? 60 : *unit == 'h' ? 3600 : 1;
        if (!all && (end == value || !(s > 0) || isinf(s) || (*unit && !strchr("smh", *unit)) ||
                     (*unit && unit[1])))
            bt_top_message(t, BT_C_WARN, "'%s' is not a span (90s, 5m, 2h, all)", value);
        else
            t->span_s = s;
    } else if (strcmp(word, "screen") == 0 && arg && bt_top_screen_by_name(value)) {
        t->screen = (bt_screen_id)bt_top_screen_by_name(value);
    } else {
        const char *near = bt_nearest(word, words, sizeof words / sizeof words[0]);
        if (near)
            bt_top_message(t, BT_C_WARN, "no command ':%s' (did you mean ':%s'?)", word, near);
        else
            bt_top_message(
                t, BT_C_WARN,
                "no command ':%s' (step, rank, run, metric, baseline, x, span, screen, scatter, "
                "new, quit)",
                word);
    }
    t->reload = true;
}

static void handle_input_key(bt_top *t, int32_t key) {
    if (t->input == BT_INPUT_CONFIRM) {
        t->input = BT_INPUT_NONE;
        if (t->burst == t->asked_burst)
            bt_top_message(t, BT_C_WARN, "nothing was done: the answer came with the question");
        else if (bt_top_steer_accepts(t, key))
            bt_top_steer_confirmed(t, key);
        else
            bt_top_message(t, BT_C_LABEL, "nothing was done");
        return;
    }
    if (key == BT_KEY_ESC || key == BT_CTRL('C')) {
        if (t->input == BT_INPUT_FILTER) bt_top_filter_set(t, "");
        t->input = BT_INPUT_NONE;
    } else if (key == '\r' || key == '\n') {
        bt_input was = t->input;
        t->input = BT_INPUT_NONE;
        if (was == BT_INPUT_COMMAND) run_command_line_of_top(t, t->line);
        if (was >= BT_INPUT_NOTE) bt_top_steer_line(t, was);
    } else if (bt_line_edit(t->line, sizeof t->line, key) && t->input == BT_INPUT_FILTER) {
        bt_top_filter_set(t, t->line);
    }
}

/* ---- the table ------------------------------------------------------------------------------- */

/* The last screen is only for hubs. */
static int last_screen_number(const bt_top *t) {
    return BT_SCREEN_COUNT - (t->view->head.hub ? 1 : 2);
}

static void execute_view_action(bt_top *t, bt_action a) {
    int panes = bt_top_panes(t);
    switch (a) {
    case BT_DO_PANE_NEXT:
        if (panes > 1)
            t->pane = (t->pane + 1) % panes;
        else
            open_screen(t, (int)t->screen % last_screen_number(t) + 1);
        break;
    case BT_DO_PANE_PREV:
        if (panes > 1)
            t->pane = (t->pane + panes - 1) % panes;
        else
            open_screen(t,
                        ((int)t->screen + last_screen_number(t) - 2) % last_screen_number(t) + 1);
        break;
    case BT_DO_EXPAND: open_pane_screen(t); break;
    case BT_DO_VALUE:
        t->heat = (bt_heat_value)((t->heat + 1) % BT_HEAT_VALUES);
        t->reload = true;
        break;
    case BT_DO_MODE:
        t->mode++;
        /* the new mode needs another panel, or the settings of the runs */
        if (bt_screens[t->screen].parts & (BT_VIEW_PANEL | BT_VIEW_RUNS)) t->reload = true;
        break;
    case BT_DO_FILTER:
    case BT_DO_COMMAND:
        t->input = a == BT_DO_FILTER ? BT_INPUT_FILTER : BT_INPUT_COMMAND;
        t->line[0] = 0;
        break;
    case BT_DO_MATCH_NEXT: move_selection(t, 1); break;
    case BT_DO_MATCH_PREV: move_selection(t, -1); break;
    case BT_DO_SORT_PREV: sort_rows_by(t, -1); break;
    case BT_DO_SORT_NEXT: sort_rows_by(t, 1); break;
    case BT_DO_SORT_INVERT: t->list[t->screen].invert = !t->list[t->screen].invert; break;
    case BT_DO_REDRAW:
        bt_term_redraw(t->term);
        t->reload = true;
        break;
    case BT_DO_UP: move_selection(t, -1); break;
    case BT_DO_DOWN: move_selection(t, 1); break;
    case BT_DO_PAGE_UP: move_selection(t, -(t->page > 1 ? t->page - 1 : 1)); break;
    case BT_DO_PAGE_DOWN: move_selection(t, t->page > 1 ? t->page - 1 : 1); break;
    case BT_DO_TOP: move_selection(t, -1000000); break;
    case BT_DO_BOTTOM: move_selection(t, 1000000); break;
    case BT_DO_OPEN: open_selected(t); break;
    case BT_DO_BACK: leave_innermost_view(t); break;
    default: break;
    }
}

static void execute_action(bt_top *t, bt_action a) {
    switch (a) {
    case BT_DO_LEFT:
    case BT_DO_SCRUB_BACK: move_step_cursor(t, -1); break;
    case BT_DO_RIGHT:
    case BT_DO_SCRUB_ON: move_step_cursor(t, 1); break;
    case BT_DO_EVENT_PREV: jump_to_event(t, -1); break;
    case BT_DO_EVENT_NEXT: jump_to_event(t, 1); break;
    case BT_DO_FIRST: select_step(t, 0); break;
    case BT_DO_LIVE:
        t->frozen = false;
        select_step(t, INT64_MAX);
        break;
    case BT_DO_FREEZE:
        t->frozen = !t->frozen;
        t->reload = !t->frozen;
        break;
    case BT_DO_SPAN_MORE: change_time_span(t, 1); break;
    case BT_DO_SPAN_LESS: change_time_span(t, -1); break;
    case BT_DO_X_AXIS:
        t->x = (bt_x_axis)((t->x + 1) % BT_X_COUNT);
        t->reload = true;
        break;
    case BT_DO_LOG_Y: t->log_y = !t->log_y; break;
    case BT_DO_SMOOTH: t->smooth = (t->smooth + 1) % BT_TOP_SMOOTHS; break;
    case BT_DO_Y_IN:
    case BT_DO_Y_OUT:
    case BT_DO_Y_UP:
    case BT_DO_Y_DOWN:
    case BT_DO_Y_ALL: change_y_axis(t, a); break;
    case BT_DO_MARK: toggle_mark(t); break;
    case BT_DO_COMPARE: open_comparison(t); break;
    case BT_DO_BASELINE: choose_baseline(t); break;
    case BT_DO_NEW_RUN: bt_form_open(t); break;
    case BT_DO_CHECKPOINT:
    case BT_DO_STOP:
    case BT_DO_PAUSE:
    case BT_DO_EVALUATE:
    case BT_DO_RATE:
    case BT_DO_SAMPLE:
    case BT_DO_NOTE:
    case BT_DO_RENAME:
    case BT_DO_REMOVE:
    case BT_DO_TAGS:
    case BT_DO_ACKNOWLEDGE:
    case BT_DO_ANNOTATE: bt_top_steer(t, a); break;
    case BT_DO_WRITE: write_screen(t); break;
    case BT_DO_HELP:
        t->help = !t->help;
        t->help_top = 0;
        break;
    case BT_DO_QUIT: t->quit = true; break;
    default: execute_view_action(t, a);
    }
}

/* Pasted bytes are text and execute no action. NONE: nothing to do. */
static int32_t filter_pasted_key(bt_top *t, int32_t key) {
    if (key == BT_KEY_PASTE_BEGIN || key == BT_KEY_PASTE_END) {
        t->pasting = key == BT_KEY_PASTE_BEGIN;
        return BT_KEY_NONE;
    }
    if (!t->pasting || key == BT_KEY_HANGUP || key == BT_KEY_RESIZE) return key;
    if (t->input == BT_INPUT_NONE || t->input == BT_INPUT_CONFIRM) {
        bt_top_message(t, BT_C_LABEL, "pasted text is taken after / or : and in a form");
        return BT_KEY_NONE;
    }
    return key < ' ' || key >= 0x110000 ? ' ' : key;
}

/* A click on a tab opens its screen; on a row selects it; on the selected row opens it. Clicks
 * are ignored during a question */
static void handle_click(bt_top *t) {
    const int x = t->term->mouse_x, y = t->term->mouse_y;
    if (t->input != BT_INPUT_NONE || t->help) return;
    for (int i = 1; y == t->tab_y && i < BT_SCREEN_COUNT; i++)
        if (x >= t->tab_x[i] && x < t->tab_end[i]) open_screen(t, i);
    const int row = t->list[t->screen].top + y - t->list_rows.y;
    if (y < t->list_rows.y || y >= t->list_rows.y + t->list_rows.h || x < t->list_rows.x ||
        x >= t->list_rows.x + t->list_rows.w || row >= (int)t->n_rows)
        return;
    if (row == t->list[t->screen].selected)
        open_selected(t);
    else
        move_selection(t, row - t->list[t->screen].selected);
}

void bt_top_key(bt_top *t, int32_t key) {
    t->dirty = true;
    key = filter_pasted_key(t, key);
    if (key == BT_KEY_NONE) return;
    if (key == BT_KEY_HANGUP)
        t->quit = true;
    else if (key == BT_KEY_RESIZE)
        t->reload = true;
    else if (key == BT_KEY_CLICK)
        handle_click(t);
    else if (key == BT_KEY_WHEEL_UP || key == BT_KEY_WHEEL_DOWN)
        move_selection(t, key == BT_KEY_WHEEL_UP ? -WHEEL_ROWS : WHEEL_ROWS);
    else if (t->input == BT_INPUT_FORM)
        bt_form_key(t, key);
    else if (t->input != BT_INPUT_NONE)
        handle_input_key(t, key);
    else if (t->help && key == 'q')
        t->help = false;
    else if (bt_keys_action(key) == BT_DO_SCREEN)
        open_screen(t, key == '0' ? 10 : key - '0');
    else
        execute_action(t, bt_keys_action(key));
}

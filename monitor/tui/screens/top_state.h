/* top_state.h - private to monitor/tui: the state of the screens and the user's choices. */
#ifndef BT_MONITOR_TUI_SCREENS_TOP_STATE_H
#define BT_MONITOR_TUI_SCREENS_TOP_STATE_H

#include <regex.h>

#include "monitor/tui/draw/canvas.h"
#include "monitor/tui/draw/list_widget.h"
#include "monitor/tui/draw/panes.h"
#include "monitor/tui/draw/plot.h"
#include "monitor/tui/top.h"
#include "monitor/watch/cores.h"
#include "monitor/watch/procs.h"
#include "store/read/lr_range.h"

#define BT_SCREEN(id, name, title, parts, panes) BT_SCREEN_##id,
typedef enum {
    BT_SCREEN_NONE,
#include "monitor/tui/screens/screens.def"
    BT_SCREEN_COUNT
} bt_screen_id;
#undef BT_SCREEN

typedef enum {
    BT_INPUT_NONE,
    BT_INPUT_FILTER,
    BT_INPUT_COMMAND,
    BT_INPUT_CONFIRM,
    BT_INPUT_FORM,
    BT_INPUT_NOTE, /* the following input lines change a run (top_steer.c) */
    BT_INPUT_RATE,
    BT_INPUT_TAGS,
    BT_INPUT_PROMPT,
    BT_INPUT_RUN_NOTE,
    BT_INPUT_RENAME
} bt_input;

/* series that every screen may use, in the order of view->series */
typedef enum {
    BT_TS_LOSS,
    BT_TS_VAL,
    BT_TS_GRAD,
    BT_TS_LR,
    BT_TS_SPEED,
    BT_TS_STEP,
    BT_TS_OVERHEAD,
    BT_TS_OVERLAP,
    BT_TS_LOGICAL,
    BT_TS_WIRE,
    BT_TS_RSS,
    BT_TS_MFU,
    BT_TS_CHOSEN,
    BT_TS_COUNT
} bt_top_series;

enum {
    BT_TOP_ROWS = 8192,
    BT_MARKED_MAX = 12,
    BT_MARKED_RANKS = 64,
    BT_COMPARE_MAX = 6,
    BT_COMPARE_POINTS = 514,
    BT_COMPARE_SETTINGS = 40,
    BT_FORM_FIELDS = 8
};

typedef struct bt_compared { /* one run of a comparison */
    char run[BT_NAME_MAX];
    size_t n;
    double x[BT_COMPARE_POINTS], loss[BT_COMPARE_POINTS], tokens[BT_COMPARE_POINTS];
    bt_run_state state;
    double last_loss, best_val, tokens_per_s, step_ms, overhead, tokens_total;
} bt_compared;

typedef struct bt_setting { /* a setting that differs between the compared runs */
    char key[40], value[BT_COMPARE_MAX][40];
} bt_setting;

enum { BT_SCATTER_MAX = 2000 };
typedef struct bt_setting_of { /* a setting's value in one run */
    char run[BT_NAME_MAX];
    double value;
} bt_setting_of;

typedef struct bt_scatter { /* scatter.c */
    char wanted[64];        /* requested setting on the x axis; "": automatic */
    char setting[64];       /* setting whose values are in `value`; "": the runs do not differ */
    int result;             /* result on the y axis: index into the table of results */
    bt_setting_of *value;   /* (n) of BT_SCATTER_MAX */
    size_t n;
} bt_scatter;

enum { BT_LOG_BYTES = 1 << 15, BT_LOG_LINES = 256 };

typedef struct bt_top_log { /* the end of the run's log.txt, cut into lines */
    char run[BT_NAME_MAX], path[1100];
    int64_t size; /* modification time of the file when it was read */
    char text[BT_LOG_BYTES];
    const char *line[BT_LOG_LINES];
    int n;
} bt_top_log;

typedef struct bt_list {     /* selection of one screen's table */
    int selected, top, sort; /* sort: column, -1 the screen's own order */
    bool invert, touched;    /* touched: the user has moved the selection */
} bt_list;

typedef struct bt_top {
    bt_top_cfg cfg;
    bt_term *term;
    bt_canvas canvas;
    bt_view *view;
    char run[BT_NAME_MAX], baseline[BT_NAME_MAX];
    bool has_run;
    bt_screen_id screen;
    int pane;
    bool expanded, help;
    int help_top;
    /* time */
    int span; /* index into bt_top_spans */
    double span_s;
    int64_t at_step; /* -1: live */
    bool frozen;
    bt_x_axis x;
    bool log_y;
    int smooth; /* index into bt_top_smooth: the share of the steps shown that is averaged over */
    /* y axis of charts: magnified by 2^y_zoom, shifted by y_pan of the range; all: includes
     * outliers */
    int y_zoom;
    double y_pan;
    bool y_all;
    int metric; /* bt_step_metric of the large chart */
    bt_heat_value heat;
    int mode; /* mode of the step bars and of the event levels */
    /* tensor of the distribution on the screen Ternary; "": the first ternary one */
    int tensor_layer;
    char tensor[32];
    bt_list list[BT_SCREEN_COUNT];
    size_t rows[BT_TOP_ROWS]; /* rows of the current table after filter and sort */
    size_t n_rows, n_all;
    int page; /* visible rows, for PgUp and PgDn */
    /* positions of tabs and rows for the mouse; tab_y -1, rows without height: none */
    int tab_x[BT_SCREEN_COUNT], tab_end[BT_SCREEN_COUNT], tab_y;
    bt_rect list_rows;
    /* visible columns of the current table, one bit each; < and > step through them */
    uint32_t columns;
    char filter[128];
    regex_t filter_re;
    bool filter_on, filter_is_re;
    bt_input input;
    char line[512];
    size_t line_len;
    bt_action confirm; /* action that waits for the key y */
    /* verb sent to `run` after its event `seq`, whose outcome is pending; "": none */
    struct {
        char run[BT_NAME_MAX];
        bt_verb verb;
        int64_t seq;
    } sent;
    char message[320];
    uint8_t message_color;
    int64_t message_until_ns;
    char marked[BT_MARKED_MAX][BT_NAME_MAX];
    int n_marked;
    int marked_rank[BT_MARKED_RANKS], n_marked_ranks;
    /* run under the list's cursor, which the cursor follows while other runs appear and disappear */
    char cursor_run[BT_NAME_MAX];
    bool comparing;
    bt_compared *compared; /* n_compared of them */
    int n_compared;
    bt_setting *setting; /* n_settings of them */
    int n_settings;
    bt_scatter scatter;
    /* lr_chart.c: run and newest step of the cached test; NULL: the run is not a range test */
    char range_of[BT_NAME_MAX];
    int64_t range_steps;
    bt_lr_range *range;
    bt_top_log log;
    /* processes of this machine's ranks, while the screen System shows a live run */
    bt_procs procs;
    bt_cores cores; /* sampled while the screen System is shown */
    /* run that was started from here and is not in the database yet */
    char pending[BT_NAME_MAX];
    int form_field;
    bool form_asks; /* the form was confirmed: start the run */
    bool pasting;   /* keys are pasted text */
    /* keys without a pause between them share a burst; burst of the key that opened the question */
    int64_t burst, asked_burst;
    char form[BT_FORM_FIELDS][128];
    /* loop */
    int64_t seen_version;
    /* processor time of this thread; remaining budget, negative: overdrawn */
    double used_s, saved_s;
    int64_t saved_ns; /* time at which the state was read */
    double look_s;    /* usual cost of a load with its frame */
    bool quit, dirty, reload;
    /* the numbers are loaded, and charts of a long run are still being read */
    bool reading;
    bt_err load_error;
} bt_top;

typedef struct bt_screen {
    const char *name, *title;
    unsigned parts;
    void (*draw)(bt_top *t, bt_rect body);
} bt_screen;

extern const bt_screen bt_screens[BT_SCREEN_COUNT];
int bt_top_panes(const bt_top *t); /* values for the current screen (top_state.c) */
extern const double bt_top_spans[];
extern const int bt_top_spans_n;
enum { BT_TOP_SMOOTHS = 6, BT_TOP_SMOOTH_FIRST = 3 };
extern const double bt_top_smooth[BT_TOP_SMOOTHS];

/* ---- top_load.c ---- */
bt_code bt_top_open(bt_top *t, const bt_top_cfg *cfg, bt_term *term, bt_err *err) BT_MUST_CHECK;
void bt_top_close(bt_top *t);
bt_code bt_top_load(bt_top *t, bt_err *err) BT_MUST_CHECK;
/* Opens the file that is now at the database's path. BT_NOTFOUND: there is none. */
bt_code bt_top_follow(bt_top *t, bt_err *err) BT_MUST_CHECK;
/* Loads the view without charts and maps. Returns false if charts and maps will be quick to read. */
bool bt_top_load_numbers(bt_top *t);
void bt_top_message(bt_top *t, uint8_t color, const char *fmt, ...) BT_PRINTF(3, 4);
bool bt_top_select_run(bt_top *t, const char *run);

/* ---- log_tail.c ---- */
void bt_top_log_load(bt_top *t);
void bt_top_log_draw(bt_top *t, bt_rect r, bt_event_level least, bt_style title);

/* ---- frame.c ---- */
/* Draws everything into t->canvas, in the size of the terminal. */
bt_code bt_top_draw(bt_top *t, bt_err *err) BT_MUST_CHECK;
/* Returns true below 80x24, where the summary or a short list is shown. */
bool bt_top_small(const bt_top *t);
unsigned bt_top_small_parts(const bt_top *t); /* BT_VIEW_* that it shows */

/* ---- top_keys.c, form.c, screen_compare.c ---- */
void bt_top_key(bt_top *t, int32_t key);
/* top_steer.c: begins the action of a key of the groups RUNS and CONTROL, and continues it after the confirmation or
 * the input line */
void bt_top_steer(bt_top *t, bt_action what);
bool bt_top_steer_accepts(const bt_top *t,
                          int32_t key); /* true if this key confirms the pending action */
void bt_top_steer_confirmed(bt_top *t, int32_t key);
void bt_top_steer_line(bt_top *t, bt_input was);
/* Shows the outcome of the sent verb once it is recorded. */
void bt_top_steer_outcome(bt_top *t);
void bt_form_open(bt_top *t);
void bt_form_key(bt_top *t, int32_t key);
/* Loads the marked runs into t->compared. */
bt_code bt_compare_load(bt_top *t, bt_err *err) BT_MUST_CHECK;
/* Applies a key to a line of text; returns false if it is not a text key. */
bool bt_line_edit(char *line, size_t size, int32_t key);

/* ---- row_filter.c: filter and sort ---- */
/* Fills t->rows with those of 0..n-1 that match the filter, sorted by t->list[screen].sort if `order` is given. */
typedef const char *(*bt_row_text)(bt_top *t, size_t row, char *buf, size_t size);
typedef double (*bt_row_number)(bt_top *t, size_t row, int col);
size_t bt_top_rows(bt_top *t, size_t n, bt_row_text text, bt_row_number number,
                   bool descending_first);
/* Draws the rows as the screen's table: `table` has the columns, the cells and the default sort
 * column (-1: none); rows, selection and order belong to the screen */
void bt_top_table(bt_top *t, bt_rect r, bt_list_table table);
bool bt_top_filter_set(bt_top *t, const char *text);

/* ---- lr_chart.c, scatter.c ---- */
bt_code bt_lr_chart_load(bt_top *t, bt_err *err) BT_MUST_CHECK;
/* Does nothing unless the screen Runs shows the points (key t). */
bt_code bt_scatter_load(bt_top *t, bt_err *err) BT_MUST_CHECK;
/* setting NULL: automatic; result NULL: unchanged. Returns false if there is no such result, which was reported. */
bool bt_scatter_choose(bt_top *t, const char *setting, const char *result);

/* ---- screen_ternary.c ---- */
/* Selects the tensor under the cursor for the distribution. */
void bt_ternary_choose(bt_top *t);

/* ---- fmt.c ---- */
const char *bt_fmt_int(char *buf, size_t size, int64_t v); /* 1,240 */
/* bt_metric_format; "-" when unknown */
const char *bt_fmt(char *buf, size_t size, double v, bt_unit unit);
const char *bt_fmt_percent(char *buf, size_t size, double frac); /* 62 %, 3.1 % */
const char *bt_fmt_age(char *buf, size_t size, double seconds);
uint8_t bt_state_color(bt_run_state s);
uint8_t bt_phase_color(bt_phase p);
uint8_t bt_score_color(double score);

/* ---- screens' shared pieces (chart_parts.c) ---- */
const bt_view_series *bt_top_ts(const bt_top *t, bt_top_series s);
/* Draws a heading, then a plot of one series with band, smoothing, ghost and event marks. figure: value in the
 * heading and its window; NULL: the newest value and the smoothed one. */
void bt_top_chart(bt_top *t, bt_rect r, bt_top_series s, const char *title, const char *figure,
                  bool log_y, bool pane_active);
/* Draws a heading with the newest value, and a sparkline below. */
void bt_top_spark(bt_top *t, bt_rect r, bt_top_series s, const char *title, uint8_t color);
/* time of a step by phase: (BT_PHASE_COUNT) times and their sum */
void bt_top_phase_legend(bt_top *t, bt_rect row, const double *phase_ms, double total_ms);
bool bt_top_letters(const bt_top *t); /* stacked bars need letters: no colour or no blocks */
void bt_top_empty(bt_top *t, bt_rect r, const char *why);
bt_style bt_top_title(const bt_top *t, int pane);

#endif

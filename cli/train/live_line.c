/* live_line.c - composes the status line from the newest records; reads keys from the terminal. */
#include "cli/train/live_line.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "cli/common/signals.h"
#include "engine/base/clock.h"
#include "engine/base/tables/derived.h"

static const int64_t DRAW_NS = 200000000, LINE_NS = 10000000000, RATE_NS = 250000000;
enum { RATES = 32 };

struct bt_live {
    int64_t steps;
    char *greeting; /* not printed yet; NULL afterwards */
    bool quiet, color;
    bool tty;       /* stderr is a terminal */
    bool keys, raw; /* keys: stdin is a terminal whose input belongs to this process */
    bool shown;     /* the status line is on the screen */
    bool dirty;     /* a step was recorded since the line was drawn */
    int64_t drawn_ns, line_ns;
    /* End of the interval of the newest rate; short steps are counted in groups. */
    int64_t rate_ns, rate_step;
    int64_t step, first_step; /* newest step, first step of this attempt; -1: none */
    int64_t printed_step;
    double loss, val_loss, tokens_per_s, step_ms, lr, loss_scale;
    /* Ring of the newest rates in seconds per step, each over RATE_NS or one step. */
    double rate[RATES];
    int n_rates, at_rate;
    int slowest;      /* rank with the largest busy time; -1: unknown */
    double slow_frac; /* excess of the slowest rank over the median, as a fraction of the median */
    bt_job_view view; /* newest status from the supervisor; all zero if there is none */
    bool ticked, bell;
    bt_sink sink;
};

/* ---- words ----------------------------------------------------------------------------------- */

static double seconds_per_step(const bt_live *l) {
    double sorted[RATES];
    if (l->n_rates == 0) return l->step_ms > 0 ? l->step_ms / 1e3 : NAN;
    memcpy(sorted, l->rate, (size_t)l->n_rates * sizeof *sorted);
    return bt_median_known(sorted, (size_t)l->n_rates);
}

static double remaining_time_s(const bt_live *l) {
    return (double)(l->steps - 1 - l->step) * seconds_per_step(l);
}

static void write_terminal(const char *s, size_t n) {
    while (n > 0) { /* a closed stderr is not an error */
        ssize_t k = write(STDERR_FILENO, s, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return;
        s += k;
        n -= (size_t)k;
    }
}

static int terminal_width(void) {
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

static void append_format(char *line, size_t size, const char *fmt, ...) BT_PRINTF(3, 4);
static void append_format(char *line, size_t size, const char *fmt, ...) {
    size_t n = strlen(line);
    va_list ap;
    va_start(ap, fmt);
    if (n < size) vsnprintf(line + n, size - n, fmt, ap);
    va_end(ap);
}

static void compose_status_line(const bt_live *l, char *line, size_t size) {
    char a[32], b[32];
    line[0] = '\0';
    const bool run = l->view.state == BT_STATE_RUNNING;
    if (!run) append_format(line, size, "%s", bt_run_states[l->view.state].name);
    if (l->view.restart_in_s > 0) append_format(line, size, " in %.0f s", l->view.restart_in_s);
    if (l->step < 0) {
        if (run)
            append_format(line, size, "starting %d rank%s", l->view.ranks,
                          l->view.ranks == 1 ? "" : "s");
        return;
    }
    append_format(line, size, "%sstep %lld/%lld  loss %.4f", run ? "" : "  ",
                  (long long)l->step + 1, (long long)l->steps, l->loss);
    if (isfinite(l->val_loss)) append_format(line, size, "  val %.4f", l->val_loss);
    append_format(line, size, "  %s tok/s",
                  bt_metric_format(a, sizeof a, l->tokens_per_s, BT_UNIT_COUNT));
    if (l->loss_scale > 1) append_format(line, size, "  scale 2^%d", ilogb(l->loss_scale));
    if (isfinite(remaining_time_s(l)) && l->step + 1 < l->steps)
        append_format(line, size, "  ETA %s", bt_duration(b, sizeof b, remaining_time_s(l)));
    if (l->slowest >= 0 && l->slow_frac > 0.02)
        append_format(line, size, "  slowest rank %d (+%.0f %%)", l->slowest, 100 * l->slow_frac);
    if (l->view.late) append_format(line, size, "  no step for %.0f s", l->view.silence_s);
    if (l->view.dropped)
        append_format(line, size, "  %llu records dropped", (unsigned long long)l->view.dropped);
}

/* ---- drawing --------------------------------------------------------------------------------- */

static void erase_status_line(bt_live *l) {
    if (l->shown) write_terminal("\r\033[K", 4);
    l->shown = false;
}

static void print_greeting(bt_live *l) {
    if (!l->greeting) return;
    erase_status_line(l);
    if (!l->quiet) write_terminal(l->greeting, strlen(l->greeting));
    free(l->greeting);
    l->greeting = NULL;
}

static void redraw_live_line(bt_live *l) {
    if (!l->tty || l->quiet || !l->ticked) return;
    char line[512], out[640];
    compose_status_line(l, line, sizeof line);
    const int w = terminal_width() - 1;
    int n = snprintf(out, sizeof out, "\r%.*s\033[K", w > 0 ? w : 0, line);
    write_terminal(out, (size_t)n);
    l->shown = true;
    l->dirty = false;
    l->drawn_ns = bt_now_ns();
}

static void print_step_line(bt_live *l) {
    if (l->quiet || l->step < 0 || l->printed_step == l->step) return;
    char line[512];
    snprintf(line, sizeof line,
             "step=%lld steps=%lld loss=%.6g tokens_per_s=%.6g step_ms=%.6g lr=%.4g",
             (long long)l->step + 1, (long long)l->steps, l->loss, l->tokens_per_s, l->step_ms,
             l->lr);
    if (l->loss_scale > 1) append_format(line, sizeof line, " loss_scale=%.0f", l->loss_scale);
    if (isfinite(l->val_loss)) append_format(line, sizeof line, " val_loss=%.6g", l->val_loss);
    if (isfinite(remaining_time_s(l)))
        append_format(line, sizeof line, " eta_s=%.1f", remaining_time_s(l));
    if (l->slowest >= 0) append_format(line, sizeof line, " slowest_rank=%d", l->slowest);
    append_format(line, sizeof line, "\n");
    write_terminal(line, strlen(line));
    l->line_ns = bt_now_ns();
    l->printed_step = l->step;
}

/* ---- callbacks ------------------------------------------------------------------------------- */

/* Ranks are compared by their time outside of waits, because the slowest rank waits least. */
static void find_slowest(bt_live *l, const bt_step_record *r) {
    if (r->n_ranks < 2) return;
    double worst = -1, *busy = malloc((size_t)r->n_ranks * sizeof *busy);
    if (!busy) return;
    for (int i = 0; i < r->n_ranks; i++) {
        const double *v = r->rank_values + (size_t)i * BT_MR_COUNT;
        busy[i] = bt_derived_busy(v[BT_MR_STEP_TIME], v[BT_MR_WAIT]);
        if (busy[i] > worst) worst = busy[l->slowest = i];
    }
    double median = bt_median_known(busy, (size_t)r->n_ranks);
    l->slow_frac = median > 0 ? worst / median - 1 : 0;
    free(busy);
}

static void show_live_step(void *ctx, const bt_step_record *r) {
    bt_live *l = ctx;
    const int64_t now = bt_now_ns();
    print_greeting(l);
    const bool first = l->rate_ns == 0 || r->step < l->rate_step;
    if (!first && r->step > l->rate_step && now - l->rate_ns >= RATE_NS) {
        l->rate[l->at_rate] = (double)(now - l->rate_ns) / 1e9 / (double)(r->step - l->rate_step);
        l->at_rate = (l->at_rate + 1) % RATES;
        if (l->n_rates < RATES) l->n_rates++;
    }
    if (first || now - l->rate_ns >= RATE_NS) {
        l->rate_ns = now;
        l->rate_step = r->step;
    }
    l->step = r->step;
    l->loss = r->values[BT_MS_LOSS];
    /* A terminal shows a smoothed rate, a log the rate of the step. */
    const double speed = r->values[BT_MS_TOKENS_PER_S];
    l->tokens_per_s = l->tty && isfinite(l->tokens_per_s) ? 0.7 * l->tokens_per_s + 0.3 * speed
                                                          : speed;
    if (l->view.state == BT_STATE_STARTING) l->view.state = BT_STATE_RUNNING;
    l->step_ms = r->values[BT_MS_STEP_TIME];
    l->lr = r->values[BT_MS_LR];
    l->loss_scale = r->values[BT_MS_LOSS_SCALE];
    if (isfinite(r->values[BT_MS_VAL_LOSS])) l->val_loss = r->values[BT_MS_VAL_LOSS];
    find_slowest(l, r);
    l->dirty = true;
    if (l->tty) {
        if (now - l->drawn_ns > DRAW_NS) redraw_live_line(l);
    } else if (l->line_ns == 0 || now - l->line_ns >= LINE_NS)
        print_step_line(l);
}

static void show_live_event(void *ctx, const bt_event *e) {
    bt_live *l = ctx;
    const bt_event_row *row = &bt_events[e->kind];
    print_greeting(l);
    if (l->quiet && row->level == BT_EV_INFO) return;
    char plain[512], line[640];
    bt_text_plain(plain, sizeof plain, e->title ? e->title : row->name);
    static const char *const tints[BT_EV_LEVELS] = {"", "\033[33m", "\033[31m"};
    const char *level = bt_event_level_name(row->level), *tint = l->color ? tints[row->level] : "";
    if (l->tty) {
        erase_status_line(l);
        snprintf(line, sizeof line, "%s%s%s%s%s\n", tint, row->level == BT_EV_INFO ? "" : level,
                 row->level == BT_EV_INFO ? "" : ": ", plain, tint[0] ? "\033[0m" : "");
    } else { /* counted from 1, like printed steps; 0: before the first step */
        snprintf(line, sizeof line, "event=%s level=%s step=%lld text=\"%s\"\n", row->name, level,
                 (long long)e->step + 1, plain);
    }
    write_terminal(line, strlen(line));
    if (e->kind == BT_EVENT_ALERT && l->bell && l->tty) write_terminal("\a", 1);
    redraw_live_line(l);
}

static void show_live_fact(void *ctx, const char *key, const char *value) {
    if (strcmp(key, "steps_total") == 0) ((bt_live *)ctx)->steps = strtoll(value, NULL, 10);
}

static void show_live_attempt(void *ctx, int attempt, int64_t from_step) {
    bt_live *l = ctx;
    (void)attempt;
    (void)from_step;
    l->rate_ns = 0;
}

static void refresh_live_line(void *ctx, const bt_job_view *v) {
    bt_live *l = ctx;
    const bool changed = !l->ticked || l->view.state != v->state || v->restart_in_s > 0 || v->late;
    l->view = *v;
    l->ticked = true;
    if (changed || l->dirty) redraw_live_line(l);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static void enter_raw(bt_live *l) {
    struct termios t;
    if (!l->keys || l->raw || tcgetpgrp(STDIN_FILENO) != getpgrp() ||
        tcgetattr(STDIN_FILENO, &t) != 0)
        return;
    /* ISIG remains set, so Ctrl-C and Ctrl-Z send signals. */
    t.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    t.c_cc[VMIN] = 0;
    t.c_cc[VTIME] = 0;
    l->raw = tcsetattr(STDIN_FILENO, TCSANOW, &t) == 0;
}

static void leave_raw(bt_live *l) {
    if (l->raw) bt_signals_restore_terminal();
    l->raw = false;
}

/* keys in addition to those of verbs.def */
static const struct {
    char key;
    const char *help;
} keys[] = {
    {'+', "learning rate times 1.25"},
    {'-', "learning rate divided by 1.25"},
    {'?', "this help"},
};

static void show_key_help(bt_live *l) {
    char line[600] = "keys: ";
    for (int v = 0; v < BT_VERB_COUNT; v++)
        if (bt_verbs[v].key)
            append_format(line, sizeof line, "%c %s  ", bt_verbs[v].key, bt_verbs[v].word);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        append_format(line, sizeof line, "%c %s  ", keys[i].key, keys[i].help);
    append_format(line, sizeof line, "Ctrl-C checkpoint and stop, twice: now\n");
    erase_status_line(l);
    write_terminal(line, strlen(line));
    redraw_live_line(l);
}

static void handle_live_key(bt_live *l, bt_job *job, char c) {
    bt_err err = BT_ERR_INIT;
    char by[8];
    snprintf(by, sizeof by, "key %c", c);
    bt_verb verb = bt_verb_of_key(c, bt_job_paused(job) ? BT_STATE_PAUSED : l->view.state);
    if (c == '+' || c == '=')
        bt_job_multiply_lr(job, 1.25, "key +");
    else if (c == '-')
        bt_job_multiply_lr(job, 1 / 1.25, "key -");
    else if (c == '?' || c == 'h')
        show_key_help(l);
    else if (verb < BT_VERB_COUNT &&
             bt_job_execute_verb(job, bt_verbs[verb].word, "", by, &err) != BT_OK)
        show_live_event(
            l,
            &(bt_event){.kind = BT_EVENT_REFUSED, .step = l->step, .rank = -1, .title = err.msg});
}

static void read_live_keys(void *ctx, bt_job *job) {
    bt_live *l = ctx;
    char buf[64];
    if (!l->raw) enter_raw(l);
    ssize_t n = l->raw ? read(STDIN_FILENO, buf, sizeof buf) : -1;
    for (ssize_t i = 0; i < n; i++) handle_live_key(l, job, buf[i]);
    if (n <= 0) bt_sleep_ns(20000000); /* stdin is closed or in the background: avoid a busy loop */
}

static void release_terminal(void *ctx, bool away) {
    bt_live *l = ctx;
    if (away) {
        erase_status_line(l);
        leave_raw(l);
    } else {
        enter_raw(l);
        redraw_live_line(l);
    }
}

static bool stop_writing_after_hangup(void *ctx) {
    bt_live *l = ctx;
    const bool had = l->tty || l->keys;
    l->tty = l->keys = l->raw = false;
    l->quiet = true;
    return had;
}

/* ---- public ---------------------------------------------------------------------------------- */

bt_code bt_live_open(bt_live **out, int64_t steps, const char *greeting, bool quiet, bt_err *err) {
    bt_live *l = calloc(1, sizeof *l);
    *out = l;
    if (!l) return bt_fail(err, BT_NOMEM, "cannot allocate the live line");
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    l->steps = steps;
    l->greeting = strdup(greeting);
    l->quiet = quiet;
    l->tty = isatty(STDERR_FILENO) && !(term && strcmp(term, "dumb") == 0);
    l->color = l->tty && !(no_color && no_color[0]);
    l->keys = l->tty && isatty(STDIN_FILENO);
    l->step = l->printed_step = -1;
    l->slowest = -1;
    l->loss = l->val_loss = l->tokens_per_s = NAN;
    l->sink = (bt_sink){
        .ctx = l, .step = show_live_step, .event = show_live_event, .fact = show_live_fact};
    if (l->keys) {
        bt_signals_guard_terminal(STDIN_FILENO);
        enter_raw(l);
    }
    return BT_OK;
}

bt_job_ui bt_live_ui(bt_live *l) {
    return (bt_job_ui){.ctx = l,
                       .step = show_live_step,
                       .event = show_live_event,
                       .fact = show_live_fact,
                       .attempt = show_live_attempt,
                       .tick = refresh_live_line,
                       .input_fd = l->keys ? STDIN_FILENO : -1,
                       .input = read_live_keys,
                       .away = release_terminal,
                       .hangup = stop_writing_after_hangup};
}

const bt_sink *bt_live_sink(bt_live *l) { return &l->sink; }

void bt_live_finish(bt_live *l) {
    if (l->tty && !l->quiet) {
        redraw_live_line(l);
        if (l->shown) write_terminal("\n", 1);
        l->shown = false;
    } else if (!l->tty)
        print_step_line(l);
    leave_raw(l);
}

void bt_live_close(bt_live *l) {
    if (!l) return;
    leave_raw(l);
    erase_status_line(l);
    free(l->greeting);
    free(l);
}

void bt_live_bell(bt_live *l, bool on) { l->bell = on; }

/* top.c - the main loop: handles keys, database changes and frames; at most ten frames a second, none without a
 * change. */
#include "monitor/tui/top.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/base/clock.h"
#include "monitor/tui/screens/top_state.h"

#define SECOND INT64_C(1000000000)

static double thread_cpu_s(
    void) { /* processor time, because a busy machine must not increase the measured cost */
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A token bucket limits this loop to less than 1 % of a core: a share of the elapsed time may be
 * spent. Unspent time is saved for costly moments; an overdraft is compensated by a longer
 * interval between loads, no longer than necessary. */
static const double share = 0.0075, most_saved_s = 0.005, often_enough_s = 0.2;

static void spend_frame_budget(bt_top *t, bool looked) {
    int64_t now = bt_now_ns();
    double used = thread_cpu_s(), s = used - t->used_s;
    t->used_s = used;
    t->saved_s += share * (double)(now - t->saved_ns) / 1e9;
    t->saved_ns = now;
    t->saved_s = (t->saved_s > most_saved_s ? most_saved_s : t->saved_s) - s;
    /* The budget may be overdrawn by the cost of one load, or of this frame if that is larger. */
    double owed = s > t->look_s ? s : t->look_s;
    if (t->saved_s < -owed) t->saved_s = -owed;
    if (t->saved_s < -5 * share) t->saved_s = -5 * share; /* five seconds at most */
    if (!looked) return;
    /* Limits the influence of a single expensive load on the mean. */
    double most = 0.002 + 2 * t->look_s;
    t->look_s = 0.8 * t->look_s + 0.2 * (s < most ? s : most);
}

static int64_t load_interval_ns(const bt_top *t) {
    double s = t->saved_s < 0 ? -t->saved_s / share : 0, most = t->look_s / share;
    if (most < often_enough_s) most = often_enough_s;
    s = s < most ? s : most;
    return (int64_t)((s < 0.1 ? 0.1 : s) * 1e9);
}

static void load_or_keep_view(bt_top *t) {
    bt_err err = BT_ERR_INIT;
    char name[BT_NAME_MAX];
    if (bt_db_moved(t->cfg.db) && bt_top_follow(t, &err) != BT_OK) {
        bt_top_message(t, BT_C_BAD, "shown is what was read before: %s", err.msg);
        err = (bt_err)BT_ERR_INIT;
    }
    /* The started run has begun: show it. */
    if (t->pending[0] && bt_db_run(t->cfg.db, t->pending, name, &err) == BT_OK) {
        t->pending[0] = 0;
        if (bt_top_select_run(t, name)) t->screen = BT_SCREEN_OVERVIEW;
    }
    err = (bt_err)BT_ERR_INIT;
    bt_code code = bt_top_load(t, &err);
    t->load_error = err;
    if (code != BT_OK) bt_top_message(t, BT_C_BAD, "%s", err.msg);
}

/* Keys act on the visible rows, so a key that follows a request for other data waits until these are drawn. Only
 * drawing is limited in rate. */
static void read_top_keys(bt_top *t, int timeout_ms) {
    int32_t key = bt_term_key(t->term, timeout_ms);
    t->burst++;
    while (key != BT_KEY_NONE && !t->quit) {
        bt_top_key(t, key);
        if (t->reload) break;
        key = t->quit ? BT_KEY_NONE : bt_term_key(t->term, 0);
    }
}

/* A long run shows its numbers while its charts are read. */
static bt_code first_frame(bt_top *t, bt_err *err) {
    t->reading = bt_top_load_numbers(t);
    bt_code code = t->reading ? bt_top_draw(t, err) : BT_OK;
    if (code == BT_OK && t->reading) code = bt_term_present(t->term, &t->canvas, err);
    t->reading = false;
    t->used_s = thread_cpu_s();
    return code;
}

/* Returns the time until the next action, plus a moment, so that a wait is not followed by an empty one. */
static int ms_until_next_action(const bt_top *t, int64_t looked, int64_t show) {
    int64_t look = t->frozen ? INT64_MAX : looked + load_interval_ns(t),
            next = look < show ? look : show, left = next - bt_now_ns();
    return left <= 0 ? 0 : (int)(left / 1000000) + 1;
}

bt_code bt_top_interactive(const bt_top_cfg *cfg, bt_term *term, bt_err *err) {
    bt_top *t = calloc(1, sizeof *t);
    if (!t) return bt_fail(err, BT_NOMEM, "cannot allocate the screens");
    bt_code code = bt_top_open(t, cfg, term, err);
    int64_t looked = 0, shown = 0; /* start of the load, of the frame */
    const int64_t pace = cfg->frame_ns > 0 ? cfg->frame_ns : SECOND / 10;
    bool unshown = false;
    t->reload = true;
    t->used_s = thread_cpu_s();
    if (code == BT_OK) code = first_frame(t, err);
    while (code == BT_OK && !t->quit) {
        int64_t now = bt_now_ns();
        /* Ages and the clock are drawn again every second, also in a frozen view, which loads nothing. */
        bool looks = false, tick = now - shown >= SECOND;
        if (tick) t->dirty = true;
        if (t->reload || (!t->frozen && now >= looked + load_interval_ns(t))) {
            int64_t version = bt_db_version(cfg->db);
            looks = t->reload || version != t->seen_version ||
                    (tick && ((t->has_run && t->view->head.live) || bt_db_moved(cfg->db)));
            if (looks) {
                t->seen_version = version;
                load_or_keep_view(t);
            }
            looked = now;
        }
        if (t->dirty) {
            code = bt_top_draw(t, err);
            unshown = true;
        }
        if (code == BT_OK && unshown && now >= shown + pace) {
            code = bt_term_present(term, &t->canvas, err);
            shown = now;
            unshown = false;
        }
        spend_frame_budget(t, looks);
        if (code == BT_OK)
            read_top_keys(t,
                          ms_until_next_action(t, looked, unshown ? shown + pace : shown + SECOND));
    }
    if (t->view) bt_top_close(t);
    free(t);
    return code;
}

bt_code bt_top_frame(const bt_top_cfg *cfg, bt_term *term, bt_err *err) {
    bt_top *t = calloc(1, sizeof *t);
    if (!t) return bt_fail(err, BT_NOMEM, "cannot allocate the screens");
    bt_code code = bt_top_open(t, cfg, term, err);
    if (code == BT_OK) code = bt_top_load(t, err);
    if (code == BT_OK) code = bt_top_draw(t, err);
    if (code == BT_OK) code = bt_term_present(term, &t->canvas, err);
    if (t->view) bt_top_close(t);
    free(t);
    return code;
}

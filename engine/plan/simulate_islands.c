/* simulate_islands.c - the next event of all islands, again and again. */
#include "engine/plan/simulate_islands.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "engine/base/rng.h"

enum { ROUNDS_LEAST = 8, ROUNDS_MOST = 200, EVENTS_WANTED = 40000 };

typedef enum {
    BEGINS,     /* a round, or what is left of it */
    SENDS,      /* its steps are done */
    ARRIVED,    /* the hub has the whole update */
    WAITS,      /* for the others' updates: no time is known */
    FETCHED,    /* it has the hub's answer */
    CATCHES_UP, /* the answer was there before the steps ahead of it were done */
    BLOCKED,    /* too far ahead: no time is known */
    FAILED      /* it comes back */
} stage;

typedef struct island {
    stage stage;
    double at; /* when the stage is due; INFINITY: another's event decides; SENDS: with its work */
    double step_s;
    double fails_at;
    double began;      /* of the steps that were not sent yet */
    double work_s;     /* left of its steps, or of those ahead of the answer */
    double busy_until; /* when that was done last */
    double due;        /* BLOCKED: since when */
    int64_t round;     /* steps of it */
    int64_t ahead;     /* of these that are done already */
    int64_t clock, version;
} island;

/* when the last of several things that follow each other are done */
typedef struct window {
    double from, until;
} window;

typedef struct play {
    const bt_islands_sim *s;
    bt_islands_time *out;
    island *all;
    double now;
    double in_free, out_free, hub_free; /* when each is */
    window hub, coder;                  /* computing: the hub, the thread of its link */
    double in_busy, out_busy, disk_busy, held, lost, stale;
    int64_t version, taken, steps, draws, n_stale;
} play;

static double next_failure(play *p, double now) {
    if (!(p->s->mtbf_s > 0)) return INFINITY;
    return now - p->s->mtbf_s * log1p(-bt_rng_unit(p->s->seed, 2, (uint64_t)p->draws++));
}

static bool living(const island *i) { return i->stage != FAILED; }

/* ---- cores ----------------------------------------------------------------------------------- */

static bool computes(const island *i) { return living(i) && i->work_s > 0; }

static bool busy(const window *w, double now) { return w->from <= now && now < w->until; }

/* How many times as long work takes now; hub, coder: also what of the hub begins. Coding is at both ends. */
static double crowd(const play *p, bool hub, bool coder) {
    if (p->s->cores == 0) return 1;
    int users = (hub || busy(&p->hub, p->now)) + 2 * (coder || busy(&p->coder, p->now));
    for (int k = 0; k < p->s->n; k++)
        if (computes(&p->all[k])) users += p->s->threads > 1 ? p->s->threads : 1;
    return fmax(1, (double)users / p->s->cores);
}

/* When who computes is another: an island is done, the hub begins or ends something. */
static double next_change(const play *p) {
    const double slower = crowd(p, false, false),
                 edges[] = {p->hub.from, p->hub.until, p->coder.from, p->coder.until};
    double next = INFINITY;
    for (int k = 0; k < 4 && p->s->cores > 0; k++)
        if (edges[k] > p->now) next = fmin(next, edges[k]);
    for (int k = 0; k < p->s->n; k++)
        if (computes(&p->all[k])) next = fmin(next, p->now + p->all[k].work_s * slower);
    return next;
}

/* not beyond the next change */
static void advance(play *p, double then) {
    const double slower = crowd(p, false, false);
    for (int k = 0; k < p->s->n; k++) {
        island *i = &p->all[k];
        if (!computes(i)) continue;
        /* what ends now has nothing left, whatever rounding says */
        const bool ends = p->now + i->work_s * slower <= then;
        i->work_s = ends ? 0 : fmax(0, i->work_s - (then - p->now) / slower);
        i->busy_until = then;
        if (i->work_s == 0 && (i->stage == SENDS || i->stage == CATCHES_UP)) i->at = then;
    }
    p->now = then;
}

/* ---- the hub --------------------------------------------------------------------------------- */

static double take_turn(window *w, double ready, double seconds) {
    if (ready >= w->until) *w = (window){ready, ready};
    w->until += seconds;
    return w->until;
}

static double hub_works(play *p, double ready, double seconds) {
    take_turn(&p->hub, fmax(ready, p->hub_free), seconds * crowd(p, true, false));
    return p->hub_free = p->hub.until;
}

static double hub_updates(play *p, double ready) {
    hub_works(p, ready, p->s->update_s);
    p->disk_busy += p->s->keep_s;
    return p->hub_free += p->s->keep_s;
}

/* through a queue of the hub's link, the thread that codes for all of it, and the island's own */
static double through(play *p, double *free_at, double *link_busy, double ready, double bytes) {
    const bt_islands_sim *s = p->s;
    const double shared = bytes / s->hub_rate, coding = bytes * s->coding_s * crowd(p, false, true),
                 begin = fmax(ready, *free_at);
    *free_at = begin + shared;
    *link_busy += shared;
    return fmax(fmax(*free_at, take_turn(&p->coder, ready, coding)),
                ready + fmax(bytes / s->island_rate, coding)) +
           s->latency_s;
}

static int64_t slowest(const play *p) {
    int64_t least = INT64_MAX;
    for (int k = 0; k < p->s->n; k++)
        if (living(&p->all[k]) && p->all[k].clock < least) least = p->all[k].clock;
    return least;
}

static bool may_begin(const play *p, const island *i) {
    return p->s->bound <= 0 || i->clock - slowest(p) <= p->s->bound;
}

static bool warms_up(const bt_islands_sim *s, int64_t clock) {
    return s->steps > 0 && clock < s->warmup;
}

/* steps of the round that begins after `clock` of them */
static int64_t round_at(const bt_islands_sim *s, int64_t clock) {
    const double grown = s->ramp * (double)clock;
    int64_t n = s->inner;
    if (clock >= s->steps) return n;
    if (s->ramp > 0 && grown < (double)n) n = (int64_t)grown;
    if (n > s->steps - clock) n = s->steps - clock;
    return n < 1 || warms_up(s, clock) ? 1 : n;
}

/* ---- what happens ---------------------------------------------------------------------------- */

static void fetch(play *p, island *i, double ready) {
    i->at = through(p, &p->out_free, &p->out_busy, hub_works(p, ready, p->s->answer_s),
                    p->s->down_bytes);
    i->version = p->version;
    i->stage = FETCHED;
}

/* the last update that a common step waits for may have come, or the island that had it has died */
static void answer_all(play *p, double now) {
    int waiting = 0, alive = 0;
    for (int k = 0; k < p->s->n; k++) {
        alive += living(&p->all[k]);
        waiting += p->all[k].stage == WAITS;
    }
    if (waiting == 0 || waiting < alive) return;
    const double ready = hub_updates(p, now);
    p->version++;
    for (int k = 0; k < p->s->n; k++)
        if (p->all[k].stage == WAITS) fetch(p, &p->all[k], ready);
}

static void release_blocked(play *p, double now) {
    for (int k = 0; k < p->s->n; k++) {
        island *i = &p->all[k];
        if (i->stage != BLOCKED || !may_begin(p, i)) continue;
        p->held += now - i->due;
        i->stage = BEGINS;
        i->at = now;
    }
}

static void begin(play *p, island *i) {
    if (!may_begin(p, i)) {
        i->stage = BLOCKED;
        i->due = i->at;
        i->at = INFINITY;
        return;
    }
    if (i->ahead == 0) i->began = i->at;
    i->stage = SENDS;
    i->round = round_at(p->s, i->clock);
    i->work_s = (double)(i->round - i->ahead) * i->step_s + p->s->island_s;
    i->at = i->work_s > 0 ? INFINITY : p->now;
    p->held += p->s->island_s;
}

static void send_update(play *p, island *i) {
    const int64_t next = round_at(p->s, i->clock + i->round),
                  ahead = p->s->overlap < next ? p->s->overlap : next;
    i->busy_until = i->began = i->at;
    i->work_s = (double)ahead * i->step_s;
    i->ahead = ahead;
    i->at = through(p, &p->in_free, &p->in_busy, i->at, p->s->up_bytes);
    i->stage = ARRIVED;
}

static void arrive(play *p, island *i) {
    const double taken = hub_works(p, i->at, p->s->add_s);
    const bool together = p->s->bound == 0 || warms_up(p->s, i->clock);
    p->taken++;
    p->steps += i->round;
    i->clock += i->round;
    if (together) {
        i->stage = WAITS;
        i->at = INFINITY;
        answer_all(p, taken);
        return;
    }
    const int64_t stale = p->version - i->version;
    p->stale += (double)stale;
    p->n_stale++;
    if (stale > p->out->staleness_most) p->out->staleness_most = stale;
    p->version++;
    const double now = i->at;
    fetch(p, i, hub_updates(p, taken));
    release_blocked(p, now);
}

static void go_on(play *p, island *i) {
    if (i->work_s > 0) {
        i->stage = CATCHES_UP;
        i->at = INFINITY;
        return;
    }
    p->held += fmax(0, i->at - i->busy_until);
    i->stage = BEGINS;
}

static void fail(play *p, island *i) {
    const double now = i->fails_at;
    p->out->failures++;
    /* steps since the last update left; while it waited nothing more was lost */
    p->lost += fmax(0, fmin(now, i->stage == SENDS ? now : i->busy_until) - i->began);
    if (i->stage == BLOCKED) p->held += now - i->due;
    if (i->stage != SENDS && i->stage != BLOCKED) p->held += fmax(0, now - i->busy_until);
    p->lost += p->s->restart_s;
    i->stage = FAILED;
    i->at = now + p->s->restart_s;
    i->fails_at = next_failure(p, i->at);
    i->ahead = 0;
    i->work_s = 0;
    answer_all(p, now);
    release_blocked(p, now);
}

static void come_back(play *p, island *i) {
    int64_t least = slowest(p);
    if (least != INT64_MAX && i->clock < least) i->clock = least; /* it takes the hub's state */
    i->busy_until = i->at;
    fetch(p, i, i->at);
}

static void happen(play *p, island *i) {
    switch (i->stage) {
    case BEGINS: begin(p, i); break;
    case SENDS: send_update(p, i); break;
    case ARRIVED: arrive(p, i); break;
    case FETCHED:
    case CATCHES_UP: go_on(p, i); break;
    case FAILED: come_back(p, i); break;
    case WAITS:
    case BLOCKED: break;
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

static island *next(const play *p, bool *failure) {
    island *first = &p->all[0];
    double at = INFINITY;
    *failure = false;
    for (int k = 0; k < p->s->n; k++) {
        island *i = &p->all[k];
        const bool fails = living(i) && i->fails_at < i->at;
        const double due = fails ? i->fails_at : i->at;
        if (due >= at) continue;
        at = due;
        first = i;
        *failure = fails;
    }
    return first;
}

/* so many updates of all islands, or all of a run */
static double play_rounds(play *p, int64_t wanted) {
    const int64_t steps = p->s->n * p->s->steps;
    while (p->taken < wanted && (steps == 0 || p->steps < steps)) {
        bool failure;
        island *i = next(p, &failure);
        const double due = failure ? i->fails_at : i->at, change = next_change(p);
        if (!isfinite(fmin(due, change))) break;
        advance(p, fmin(due, change));
        if (change < due) continue;
        if (failure)
            fail(p, i);
        else
            happen(p, i);
    }
    return p->now;
}

static void start(play *p) {
    const bt_islands_sim *s = p->s;
    for (int k = 0; k < s->n; k++) {
        float x[1] = {0};
        bt_rng_normal(x, 1, (uint64_t)k, 1, s->seed, bt_hash_name("islands"));
        p->all[k] = (island){.stage = BEGINS,
                             .step_s = s->step_s * (1 + s->spread * fabs((double)x[0])),
                             .fails_at = next_failure(p, 0)};
    }
}

/* whether all of a run is few enough rounds to be played from its first step on */
static bool is_short(const bt_islands_sim *s) {
    int64_t rounds = 0;
    for (int64_t clock = 0; clock < s->steps && rounds * s->n <= EVENTS_WANTED; rounds++)
        clock += round_at(s, clock);
    return s->rounds <= 0 && s->steps > 0 && rounds * s->n <= EVENTS_WANTED;
}

static int64_t rounds_enough(const bt_islands_sim *s) {
    const int64_t few = EVENTS_WANTED / s->n;
    if (s->rounds > 0) return s->rounds;
    return few < ROUNDS_LEAST ? ROUNDS_LEAST : few > ROUNDS_MOST ? ROUNDS_MOST : few;
}

bt_code bt_islands_simulate(const bt_islands_sim *s, bt_islands_time *out, bt_err *err) {
    *out = (bt_islands_time){0};
    if (s->n < 1 || s->n > BT_SIM_ISLANDS_MOST)
        return bt_fail(err, BT_ARG, "%d islands cannot be simulated: 1 to %d can", s->n,
                       BT_SIM_ISLANDS_MOST);
    if (s->inner < 1 || !(s->step_s > 0) || !(s->hub_rate > 0) || !(s->island_rate > 0))
        return bt_fail(err, BT_ARG, "islands need steps that take time, and links");
    bt_islands_sim own = *s;
    /* of a long run the later part, where rounds are as long as they get */
    if (!is_short(s)) own.steps = 0;
    play p = {.s = &own, .out = out, .all = calloc((size_t)s->n, sizeof *p.all)};
    if (!p.all) return bt_fail(err, BT_NOMEM, "no memory for %d islands", s->n);
    start(&p);
    out->seconds = play_rounds(&p, own.steps > 0 ? INT64_MAX : rounds_enough(s) * s->n);
    const double time = out->seconds * s->n;
    for (int k = 0; k < s->n; k++) /* who still waits for what will come */
        if (p.all[k].stage == BLOCKED) p.held += out->seconds - p.all[k].due;
    out->rounds = (double)p.taken;
    out->steps_per_s = (double)p.steps / out->seconds;
    out->held_frac = p.held / time;
    out->lost_frac = p.lost / time;
    out->in_frac = p.in_busy / out->seconds;
    out->out_frac = p.out_busy / out->seconds;
    out->disk_frac = p.disk_busy / out->seconds;
    out->staleness_mean = p.n_stale ? p.stale / (double)p.n_stale : 0;
    free(p.all);
    return BT_OK;
}

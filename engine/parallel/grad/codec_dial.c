/* codec_dial.c - builds the ladder of codecs and chooses one of its rungs. */
#include "engine/parallel/grad/codec_dial.h"

#include "engine/base/system/ascii.h"
#include <math.h>
#include <stdlib.h>

static double payload_bits(const bt_codec *c) {
    enum { N = 1 << 16 };
    /* Bits per value of the lossless codec, estimated: each block has as many bits per value as its largest integer
     * needs. */
    static const double EXACT = 9;
    if (!c->bound) return 32;
    return c == &bt_codec_exact ? EXACT : 8.0 * (double)c->bound(N) / N;
}

bt_way_bits bt_codec_way_bits(const bt_codec *c) {
    return (bt_way_bits){payload_bits(c), payload_bits(c->back ? c->back : c)};
}

double bt_codec_bits(const bt_codec *c) {
    const bt_way_bits b = bt_codec_way_bits(c);
    return (b.there + b.back) / 2;
}

bt_codec_ladder bt_codec_ladder_to(const bt_codec *strongest) {
    bt_codec_ladder l = {.at = {bt_codec_at(BT_CODEC_NONE)}, .n = 1};
    if (strongest == l.at[0]) return l;
    /* keeps codecs with fewer bits than the previous rung and more than the last rung */
    for (int i = 1; i < BT_CODEC_COUNT && !strongest->order_exact; i++) {
        const bt_codec *c = bt_codec_at((bt_codec_id)i);
        if (c != strongest && !c->warms_up && bt_codec_bits(c) < bt_codec_bits(l.at[l.n - 1]) &&
            bt_codec_bits(c) > bt_codec_bits(strongest))
            l.at[l.n++] = c;
    }
    l.at[l.n++] = strongest;
    return l;
}

/* wire_s: time of the exchange over the measured link if that was requested, otherwise its time in flight. */
typedef struct per_step {
    double compute_s, busy_s, exposed_s, wire_s, bytes;
    bool asked;
} per_step;

static double exposed_share(const bt_codec_dial *d, const bt_codec_ladder *l, int now, int rung,
                            const per_step *s) {
    const double wire = s->wire_s * bt_codec_bits(l->at[rung]) / bt_codec_bits(l->at[now]),
                 exposed = fmax(0, wire - d->room_s);
    return exposed / (s->compute_s + exposed);
}

/* Returns the first rung within the limit; `most` if there is none. */
static int first_within(const bt_codec_dial *d, const bt_codec_ladder *l, int now, int most,
                        const per_step *s, double limit) {
    for (int rung = 0; rung < most; rung++) {
        if (d->budget > 0 ? s->bytes * bt_codec_bits(l->at[rung]) / bt_codec_bits(l->at[now]) <=
                                limit * d->budget * s->compute_s
                          : exposed_share(d, l, now, rung, s) <= limit)
            return rung;
    }
    return most;
}

/* `room` is the time of communication that computation has hidden. Computation might hide more, so the maximum so
 * far counts, unless the link needs longer than that and delayed the steps. */
static void learn_room(bt_codec_dial *d, const per_step *s) {
    const double hidden = s->busy_s - s->exposed_s, some = 0.01 * s->compute_s;
    const bool all = s->exposed_s > some && s->asked && s->wire_s - hidden > some;
    d->room_s = all ? hidden : fmax(d->room_s, hidden);
}

static bool much_exposed(const bt_dial_window *w) { return w->exposed_s > BT_DIAL_UP * w->step_s; }

bool bt_codec_dial_asks(bt_codec_dial *d, int now, int most, const bt_dial_window *w) {
    if (d->budget > 0 || w->steps <= 0) return false;
    d->unasked = now > 0 ? d->unasked + 1 : 0;
    const bool asks = (much_exposed(w) && now < most) || d->unasked >= BT_DIAL_ASK;
    if (asks) d->unasked = 0;
    return asks;
}

int bt_codec_dial_turn(bt_codec_dial *d, const bt_codec_ladder *l, int now, int most,
                       const bt_dial_window *w, double *share) {
    const per_step s = {.compute_s = w->step_s - w->exposed_s,
                        .busy_s = w->busy_s,
                        .exposed_s = w->exposed_s,
                        .wire_s = w->link_s > 0 ? w->link_s : w->busy_s,
                        .bytes = w->bytes,
                        .asked = w->link_s > 0};
    *share = NAN;
    if (w->steps <= 0 || !(s.compute_s > 0) || isnan(w->link_s)) return now;
    learn_room(d, &s);
    const bool given = d->budget > 0, much = given ? s.bytes > d->budget * s.compute_s
                                             : s.asked
                                                 ? exposed_share(d, l, now, now, &s) > BT_DIAL_UP
                                                 : much_exposed(w);
    int up = now, down = now;
    if (much)
        up = first_within(d, l, now, most, &s, given ? 1 : BT_DIAL_UP);
    else
        down = first_within(d, l, now, now, &s, given ? BT_DIAL_MARGIN : BT_DIAL_DOWN);
    /* of the rungs that two windows chose, the one with fewer bits is used */
    d->calm = down < now ? d->calm + 1 : 0;
    d->calm_at = d->calm > 1 && d->calm_at > down ? d->calm_at : down;
    /* The next window measures the link again before a decision that depends on the link. */
    if (d->calm == 1 && s.asked) d->unasked = BT_DIAL_ASK - 1;
    int rung = up > now ? up : d->calm > 1 ? d->calm_at : now;
    if (rung != now) d->calm = 0;
    if (!given) *share = exposed_share(d, l, now, rung, &s);
    return rung;
}

bt_code bt_comm_budget_parse(const char *text, double *rate, bt_err *err) {
    static const struct {
        const char *word;
        double bits;
    } units[] = {{"kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}};
    char *end;
    *rate = bt_ascii_equal(text, "auto") ? 0 : -1;
    if (*rate == 0 || bt_ascii_equal(text, "off")) return BT_OK;
    const double x = strtod(text, &end);
    for (size_t i = 0; end != text && i < sizeof units / sizeof *units; i++) {
        if (!bt_ascii_equal(end, units[i].word)) continue;
        *rate = x * units[i].bits / 8;
        if (isfinite(x) && x > 0) return BT_OK;
    }
    return bt_fail(err, BT_ARG,
                   "comm.budget '%.40s' is not a budget (use off, auto, or the rate at which a "
                   "rank may send, such as 500kbit, 20Mbit or 1Gbit)",
                   text);
}

/* codec_dial.h - chooses one of the run's codecs by the cost of the gradient exchange.
 *
 * A ladder holds the codecs that the run may use: the lossless one first, each next one with fewer bits. Training
 * begins at the first. After the first step and then after every window of BT_DIAL_WINDOW steps the dial receives,
 * for the window's least delayed step, the time that exchanges were in flight and the part not hidden by
 * computation, and returns the rung to use:
 *
 *     exposed(c) = max(0, busy * bits(c) / bits(now) - room)
 *
 * room is the time of a step that computation can hide: the maximum of busy - exposed so far, or its current
 * value if the link needs longer than was hidden. The dial moves up as soon as more than BT_DIAL_UP of a step is
 * exposed: to the first rung whose exposed time is at most BT_DIAL_UP, or to the last rung. It moves down when two
 * successive windows agree: to the first rung with at most BT_DIAL_DOWN exposed.
 *
 * A rank that does not get its core replies late, which looks like a slow link. So before it goes up the dial
 * requests the time that the bytes of a step take on an idle link (parallel/mpi/link.h, minimum of several
 * rounds), which then replaces busy: a delay not explained by the link is no reason for another codec. On a rung
 * above the first it also requests this every BT_DIAL_ASK windows, because the same delays would keep it there.
 *
 * A budget in bytes per second replaces all times: the dial chooses the first rung whose bytes, sent in the time
 * of a step without exposed exchange, are within it (with a margin of BT_DIAL_MARGIN for going down).
 * Pure: ranks that pass the same numbers get the same result. */
#ifndef BT_ENGINE_PARALLEL_GRAD_CODEC_DIAL_H
#define BT_ENGINE_PARALLEL_GRAD_CODEC_DIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/status.h"
#include "engine/parallel/grad/codec.h"

enum { BT_DIAL_WINDOW = 8, BT_DIAL_ASK = 4, BT_LADDER_MAX = BT_CODEC_COUNT };
#define BT_DIAL_UP 0.05
#define BT_DIAL_DOWN 0.02
#define BT_DIAL_MARGIN 0.8

typedef struct bt_codec_ladder {
    const bt_codec *at[BT_LADDER_MAX];
    int n;
} bt_codec_ladder;

/* Returns the ladder up to `strongest`. Below a reproducible codec it contains only `none`. */
bt_codec_ladder bt_codec_ladder_to(const bt_codec *strongest);
/* bits per gradient in long payloads, as an addend and as a sum; estimated for payloads of variable length */
typedef struct bt_way_bits {
    double there, back;
} bt_way_bits;
bt_way_bits bt_codec_way_bits(const bt_codec *c);
double bt_codec_bits(const bt_codec *c); /* their mean */

/* least delayed step of a window, because other work on the machine delays steps, too */
typedef struct bt_dial_window {
    int64_t steps; /* number of steps in the window; 0: no measurement */
    /* busy: without the time that this rank waited for the last one to arrive */
    double step_s, busy_s, exposed_s;
    double link_s; /* time of the exchange on an idle link; 0: not requested, NaN: not measurable */
    double bytes;  /* bytes of gradients sent by a rank */
} bt_dial_window;

typedef struct bt_codec_dial {
    double budget;     /* in bytes per second; 0: the measured times decide */
    double room_s;     /* per step; 0: unknown */
    int calm, calm_at; /* number of consecutive windows for which rung calm_at would suffice */
    int unasked;       /* number of windows above the first rung since the link was measured */
} bt_codec_dial;

/* Returns true if bt_codec_dial_turn needs link_s of this window. */
bool bt_codec_dial_asks(bt_codec_dial *d, int now, int most, const bt_dial_window *w);

/* Returns the rung for the following steps, of rungs 0 .. most; now: the rung of this window. share: estimated share
 * of a step that this rung would expose; NaN with a budget. */
int bt_codec_dial_turn(bt_codec_dial *d, const bt_codec_ladder *l, int now, int most,
                       const bt_dial_window *w, double *share);

/* Parses "off", "auto", or a rate such as 20Mbit, 1Gbit or 500kbit. rate: bytes per second; 0: auto, -1: off. */
bt_code bt_comm_budget_parse(const char *text, double *rate, bt_err *err) BT_MUST_CHECK;

#endif

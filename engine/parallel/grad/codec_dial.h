/* codec_dial.h - which of the run's codecs gradients travel by, from what their exchange has cost.
 *
 * A ladder holds the codecs that the run may use, the one that loses nothing first, each next one
 * with fewer bits. Training begins at the first. After its first step and then after every window of
 * BT_DIAL_WINDOW steps the dial is told, of the window's least delayed step, the time that exchanges were in
 * flight and the part that no compute hid, and says which rung to use:
 *
 *     exposed(c) = max(0, busy * bits(c) / bits(now) - room)
 *
 * room is the time of a step that compute hides: the most that it was seen to hide (busy - exposed), or
 * just that where something was exposed that the link needs. Up, to the first rung whose exposed time is
 * at most BT_DIAL_UP of a step, or to the last, as soon as more than BT_DIAL_UP is exposed. Down, to the
 * first rung of which BT_DIAL_DOWN at most would be, when two windows in a row have said so.
 *
 * A rank that other work keeps from its core is late to answer as well, and its exchange looks like one
 * over a slow link. So before the dial goes up it asks for the time that the bytes of a step take by the
 * link while nothing else runs (parallel/mpi/link.h, the shortest of some rounds), which then takes the
 * place of busy: what the link cannot explain is no matter of the codec. On a rung above the first it asks
 * every BT_DIAL_ASK windows too, as the same delays would keep it there.
 *
 * A budget in bytes a second replaces all times: the first rung whose bytes, sent in the time of a step
 * without exposed exchange, stay within it (with a margin of BT_DIAL_MARGIN for the way down).
 * Pure: ranks that give it the same numbers get the same answer. */
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

/* Up to `strongest`, which may be a reproducible codec: then nothing lies between it and none. */
bt_codec_ladder bt_codec_ladder_to(const bt_codec *strongest);
/* bits a gradient of long payloads on its way to its owner, and of its sum back; of a codec whose payloads
 * vary in length, a guess */
typedef struct bt_way_bits {
    double there, back;
} bt_way_bits;
bt_way_bits bt_codec_way_bits(const bt_codec *c);
double bt_codec_bits(const bt_codec *c); /* their mean */

/* the step of a window that was held up least: what other work on the machine delays now and then
 * is no matter of the network */
typedef struct bt_dial_window {
    int64_t steps; /* of the window; 0: nothing is known */
    /* busy: without the time that this rank waited for the last one to come */
    double step_s, busy_s, exposed_s;
    double link_s; /* that its exchange takes by the link; 0: not asked for, NaN: not to be told */
    double bytes;  /* of gradients, sent by a rank */
} bt_dial_window;

typedef struct bt_codec_dial {
    double budget;     /* bytes a second; 0: by measured times */
    double room_s;     /* of a step; 0: not known */
    int calm, calm_at; /* windows in a row that would do with rung calm_at */
    int unasked;       /* windows above the first rung since the link was asked for */
} bt_codec_dial;

/* whether turn wants to know link_s of this window */
bool bt_codec_dial_asks(bt_codec_dial *d, int now, int most, const bt_dial_window *w);

/* The rung for the steps that follow, of rungs 0 .. most; now: the rung of this window. share: of a
 * step that would be exposed by the rung, by the dial's estimate; NaN with a budget. */
int bt_codec_dial_turn(bt_codec_dial *d, const bt_codec_ladder *l, int now, int most,
                       const bt_dial_window *w, double *share);

/* "off", "auto", or a rate such as 20Mbit, 1Gbit or 500kbit. rate: bytes a second; 0: auto, -1: off */
bt_code bt_comm_budget_parse(const char *text, double *rate, bt_err *err) BT_MUST_CHECK;

#endif

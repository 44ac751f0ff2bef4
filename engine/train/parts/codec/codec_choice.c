/* codec_choice.c - warm-up, budget control and fallbacks of the gradient codec. */
#include "engine/train/parts/codec/codec_choice.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/parallel/mpi/link.h"
#include "engine/train/trainer_impl.h"
#include "engine/update/residual.h"

enum { BAD_STEPS = 2 };
/* minimum of a frozen second moment, relative to the mean of its tensor */
static const double LEAST_HELD = 0.01;

/* ---- create ---------------------------------------------------------------------------------- */

bt_code bt_codec_choice_create(bt_codec_choice *c, bt_trainer *t, bt_err *err) {
    double rate;
    BT_TRY(bt_comm_budget_parse(t->cfg.comm.budget, &rate, err));
    c->ladder = t->setup.dp > 1 ? bt_codec_ladder_to(bt_rank_setup_form(&t->setup).codec)
                                : bt_codec_ladder_to(bt_codec_at(BT_CODEC_NONE));
    c->by_budget = rate >= 0;
    c->dial.budget = rate > 0 ? rate : 0;
    c->most = c->ladder.n - 1;
    c->at = c->by_budget ? 0 : c->most;
    c->frozen_for = c->ladder.at[0];
    c->n = t->update.table.n;
    c->sent_as_fp32 = calloc(c->n + 1, sizeof *c->sent_as_fp32);
    c->residual_squares = calloc(3 * c->n + 1, sizeof *c->residual_squares);
    if (!c->sent_as_fp32 || !c->residual_squares)
        return bt_fail(err, BT_NOMEM, "cannot take memory for %zu tensors", c->n);
    c->ratio = c->residual_squares + c->n;
    c->bits = c->ratio + c->n;
    return BT_OK;
}

void bt_codec_choice_release(bt_codec_choice *c) {
    free(c->sent_as_fp32);
    free(c->residual_squares);
    *c = (bt_codec_choice){0};
}

/* Marks a tensor of this rank's stage as sent in fp32; ranks of other stages mark their own tensors. */
static void send_as_fp32(bt_codec_choice *c, bt_trainer *t, size_t tensor) {
    const bt_params *p = &t->setup.params;
    c->sent_as_fp32[tensor] = c->fp32_changed = true;
    for (size_t i = 0; i < p->n; i++)
        if (p->tensors[i].number == tensor) t->setup.payload_tensors[i].plain = true;
}

void bt_codec_choice_keep_plain(bt_codec_choice *c, bt_trainer *t) {
    const bt_params *p = &t->setup.params;
    for (size_t i = 0; c->sent_as_fp32 && i < p->n; i++)
        if (c->sent_as_fp32[p->tensors[i].number]) t->setup.payload_tensors[i].plain = true;
}

/* ---- checkpoints ----------------------------------------------------------------------------- */

static void save_codec_choice(void *ctx, bt_json *j) {
    const bt_codec_choice *c = ctx;
    if (c->ladder.n < 2) return;
    bt_json_str(j, "in_use", c->ladder.at[c->at]->name);
    bt_json_str(j, "most", c->ladder.at[c->most]->name);
    bt_json_num(j, "room_s", c->dial.room_s);
    bt_json_str(j, "held_by", c->frozen_for->name);
    bt_json_int(j, "held_at", c->held_at);
    char *digits = calloc(c->n + 1, 1);
    for (size_t i = 0; digits && i < c->n; i++) digits[i] = c->sent_as_fp32[i] ? '1' : '0';
    if (digits) bt_json_str(j, "fell", digits);
    free(digits);
}

static int rung_of(const bt_codec_ladder *l, const char *name, int otherwise) {
    for (int i = 0; name && i < l->n; i++)
        if (strcmp(l->at[i]->name, name) == 0) return i;
    return otherwise;
}

/* A checkpoint written with another --codec has another ladder, so its rung is ignored. */
static void load_codec_choice(void *ctx, const bt_state_values *v) {
    bt_codec_choice *c = ctx;
    const char *digits = bt_state_text(v, "fell");
    c->most = rung_of(&c->ladder, bt_state_text(v, "most"), c->most);
    if (c->by_budget) {
        const int at = rung_of(&c->ladder, bt_state_text(v, "in_use"), 0);
        c->at = at < c->most ? at : c->most;
        c->dial.room_s = bt_state_real(v, "room_s", 0);
    } else {
        c->at = c->most;
    }
    const int frozen_for = rung_of(&c->ladder, bt_state_text(v, "held_by"), -1);
    if (frozen_for >= 0) {
        c->frozen_for = c->ladder.at[frozen_for];
        c->held_at = bt_state_int(v, "held_at", 0);
    }
    if (!digits || strlen(digits) != c->n) return;
    for (size_t i = 0; i < c->n; i++)
        if (digits[i] == '1') send_as_fp32(c, c->trainer, i);
}

void bt_codec_choice_add_state(bt_codec_choice *c, bt_trainer *t, bt_state *s) {
    c->trainer = t;
    bt_state_add(
        s, &(bt_state_row){
               .name = "codec", .ctx = c, .save = save_codec_choice, .load = load_codec_choice});
}

/* ---- selection --------------------------------------------------------------------------------- */

/* Returns the highest rung during the warm-up. For a codec with its own warm-up: the last rung without error
 * feedback, whose gradients are exact enough for AdamW's second moment. If the user chose another codec, this is the
 * top rung. */
static int last_rung(const bt_codec_choice *c, const bt_trainer *t) {
    const bool waits = c->ladder.at[c->most]->warms_up;
    if (t->at.step >= t->cfg.parallel.codec_warmup || (c->by_budget && !waits)) return c->most;
    int rung = waits ? c->most : 0;
    while (rung > 0 && c->ladder.at[rung]->state_bytes > 0) rung--;
    return rung;
}

const bt_codec *bt_codec_choice_now(const bt_codec_choice *c, const bt_trainer *t) {
    const int last = last_rung(c, t);
    return c->ladder.at[c->at < last ? c->at : last];
}

bool bt_codec_choice_stale(const bt_codec_choice *c, const bt_trainer *t) {
    return c->made != bt_codec_choice_now(c, t) || c->fp32_changed;
}

/* A second moment that is frozen after a few steps is too small for elements that had almost no gradient in them
 * (rows of absent tokens), and later gradients would cause too long a step. Tensors sent as fp32 are not frozen,
 * because tensor-parallel ranks hold copies of them. */
static void hold_second_moment(bt_codec_choice *c, bt_trainer *t) {
    c->held_at = t->at.updates;
    for (size_t k = 0; c->held_at > 0 && k < t->setup.params.n; k++)
        if (!t->setup.payload_tensors[k].plain)
            bt_update_raise_second_moments(&t->update, k, LEAST_HELD);
}

void bt_codec_choice_made(bt_codec_choice *c, bt_trainer *t, const bt_codec *codec) {
    c->made = codec;
    c->fp32_changed = false;
    if (codec == c->frozen_for) return;
    /* int8 rounds small gradients to zero for several steps, so a second moment computed from them would be frozen
     * at zero */
    const bool known = c->frozen_for->state_bytes == 0;
    c->frozen_for = codec;
    c->held_at = 0;
    if (codec->holds_variance && known) hold_second_moment(c, t);
}

static void add_to_window(bt_codec_choice *c, double step_s) {
    bt_dial_window *w = &c->window;
    const double exposed_s = (double)c->took.exposed_ns / 1e9;
    if (w->steps++ > 0 && exposed_s * w->step_s >= w->exposed_s * step_s) return;
    w->step_s = step_s;
    w->busy_s = fmax(0, (double)(c->took.busy_ns - c->took.wait_ns) / 1e9);
    w->exposed_s = exposed_s;
}

/* Returns the mean bits per gradient element, over all ranks, that a rank sends to the owner and back. */
static double gradient_bits(const bt_trainer *t, const bt_codec *c, double *ways) {
    const double n = (double)t->setup.dp, replicas = t->setup.sharded ? t->setup.replicas : n,
                 there = (n - 1) / n, back = (replicas - 1) / n;
    const bt_way_bits bits = bt_codec_way_bits(c);
    *ways = there + back;
    return there * bits.there + back * bits.back;
}

static double gradient_bytes(const bt_codec_choice *c, const bt_trainer *t) {
    double ways;
    return (double)t->setup.params.total * gradient_bits(t, c->made, &ways) / 8;
}

/* Mean bits per element and direction. Requires several ranks. */
static double bits_per_direction(const bt_trainer *t, const bt_codec *c) {
    double ways;
    const double bits = gradient_bits(t, c, &ways);
    return bits / ways;
}

/* ---- the dial -------------------------------------------------------------------------------- */

static void record_dial(const bt_codec_choice *c, bt_trainer *t, int from, const bt_dial_window *w,
                        double share) {
    const bt_codec *to = c->ladder.at[c->at];
    const double exposed = w->exposed_s / w->step_s;
    char body[240], why[160], link[64] = "";
    if (w->link_s > 0) snprintf(link, sizeof link, ", as the link takes %.3g s", w->link_s);
    if (c->dial.budget > 0)
        snprintf(why, sizeof why, "comm.budget is %s", t->cfg.comm.budget);
    else if (c->at > from)
        snprintf(why, sizeof why, "exchanges delay steps by %.1f %% of their time%s", 100 * exposed,
                 link);
    else
        snprintf(why, sizeof why, "the network is fast enough (%.1f %% of a step exposed, at most)",
                 100 * share);
    snprintf(
        body, sizeof body,
        "{\"codec\":\"%s\",\"before\":\"%s\",\"bits\":%.4g,\"exposed_frac\":%.4g,\"link_s\":%.4g,"
        "\"steps\":%lld}",
        to->name, c->ladder.at[from]->name, bits_per_direction(t, to), exposed,
        w->link_s > 0 ? w->link_s : 0, (long long)w->steps);
    bt_telemetry_event(
        &t->telemetry, BT_EVENT_CODEC, t->at.step - 1, body,
        "%s: gradients travel as %s from the next step, %.4g bits each, before as %s", why,
        to == c->ladder.at[0] ? "fp32" : to->name, bits_per_direction(t, to),
        from == 0 ? "fp32" : c->ladder.at[from]->name);
}

/* Number of data-parallel ranks that share the traffic of a host. With an exchange by hosts, gradients cross the
 * network once (exchange_route.h). */
static double ranks_per_host(const bt_trainer *t) {
    const int n = (int)t->setup.dp;
    int groups = 1, *hosts = calloc((size_t)n, sizeof *hosts);
    if (!hosts) return 1;
    bt_mesh_dp_hosts(&t->setup.shape, bt_comm_rank(t->mesh.world), hosts);
    for (int d = 1; d < n; d++) groups += hosts[d] != hosts[d - 1];
    free(hosts);
    return groups > 1 ? (double)n / groups : 1;
}

/* Measures the link with a large part of a step's bytes, so that the initial burst of a network does not count. */
static bt_code measure_link(bt_trainer *t, double bytes, double *link_s, bt_err *err) {
    enum { ROUNDS = 4, PART = 8, LEAST = 1 << 16, MOST = 4 << 20 };
    const size_t part = (size_t)fmin(fmax(bytes / PART, LEAST), MOST);
    const double buckets =
        ceil(4.0 * (double)t->setup.params.total / (double)t->cfg.train.bucket_bytes);
    bt_link link;
    BT_TRY(bt_link_measure_long(
        &link, t->mesh.dp, &(bt_link_work){.bytes = part, .memory = part, .rounds = ROUNDS}, err));
    *link_s = bt_link_s(&link, 2 * buckets, bytes / ranks_per_host(t));
    /* The slowest group determines the value, which is unknown if any group could not measure it. */
    double unknown = isnan(*link_s) ? 1 : 0, both[2] = {unknown > 0 ? 0 : *link_s, unknown};
    BT_TRY(bt_all_reduce_f64(t->mesh.world, both, 2, BT_MAX, err));
    *link_s = both[1] > 0 ? NAN : fmax(both[0], 1e-9);
    return BT_OK;
}

/* Reports delays once, until the codec changes or the delays end. */
static void report_delays(bt_codec_choice *c, bt_trainer *t, const bt_dial_window *w) {
    const bool delayed = w->exposed_s > BT_DIAL_UP * w->step_s;
    char body[160];
    if (delayed && !c->reported_delays && w->link_s > 0) {
        snprintf(body, sizeof body, "{\"exposed_frac\":%.4g,\"link_s\":%.4g,\"step_s\":%.4g}",
                 w->exposed_s / w->step_s, w->link_s, w->step_s);
        bt_telemetry_event(&t->telemetry, BT_EVENT_CODEC, t->at.step - 1, body,
                           "exchanges delay steps by %.1f %% of their time, but not because of the "
                           "link: it needs %.3g ms, and compute hides %.3g ms of it. Gradients are "
                           "still sent as %s (other work occupies the cores of ranks)",
                           100 * w->exposed_s / w->step_s, w->link_s * 1e3, c->dial.room_s * 1e3,
                           c->at == 0 ? "fp32" : c->ladder.at[c->at]->name);
        c->reported_delays = true;
    }
    if (!delayed) c->reported_delays = false;
}

static bt_code adjust_codec(bt_codec_choice *c, bt_trainer *t, bt_err *err) {
    double longest[3] = {c->window.step_s, c->window.busy_s, c->window.exposed_s}, share;
    BT_TRY(bt_all_reduce_f64(t->mesh.world, longest, 3, BT_MAX, err));
    bt_dial_window w = {.steps = c->window.steps,
                        .step_s = longest[0],
                        .busy_s = longest[1],
                        .exposed_s = longest[2],
                        .bytes = gradient_bytes(c, t)};
    const int before = c->at, most = last_rung(c, t);
    if (bt_codec_dial_asks(&c->dial, before, most, &w))
        BT_TRY(measure_link(t, w.bytes, &w.link_s, err));
    c->at = bt_codec_dial_turn(&c->dial, &c->ladder, before, most, &w, &share);
    if (c->at == before) {
        if (before < most) report_delays(c, t, &w);
        return BT_OK;
    }
    c->reported_delays = false;
    record_dial(c, t, before, &w, share);
    return BT_OK;
}

/* ---- fallbacks ------------------------------------------------------------------------------- */

static bt_code check_residuals(bt_codec_choice *c, bt_trainer *t, const bt_residual *residual,
                               double loss_scale, bt_err *err) {
    const double *squares;
    const bool feedback = c->made->state_bytes > 0;
    for (size_t i = 0; i < c->n; i++) c->ratio[i] = NAN;
    if (!feedback) return BT_OK;
    BT_TRY(bt_update_tensor_squares(&t->update, 1 / loss_scale, &squares, err));
    memset(c->residual_squares, 0, c->n * sizeof *c->residual_squares);
    bt_residual_squares(residual, c->residual_squares);
    BT_TRY(bt_all_reduce_f64(t->mesh.world, c->residual_squares, c->n, BT_SUM, err));
    for (size_t i = 0; i < c->n; i++)
        if (squares[i] > 0 && c->residual_squares[i] > 0)
            c->ratio[i] = sqrt(c->residual_squares[i] / squares[i]);
    return BT_OK;
}

static void fall_back_to_fp32(bt_codec_choice *c, bt_trainer *t) {
    char body[200];
    for (size_t i = 0; i < c->n; i++) {
        const char *name = t->update.table.tensors[i].name;
        if (!(c->ratio[i] > t->cfg.comm.residual_cap) || c->sent_as_fp32[i]) continue;
        send_as_fp32(c, t, i);
        snprintf(body, sizeof body, "{\"tensor\":\"%s\",\"residual_ratio\":%.4g,\"codec\":\"%s\"}",
                 name, c->ratio[i], c->made->name);
        bt_telemetry_event(&t->telemetry, BT_EVENT_CODEC_FALLBACK, t->at.step - 1, body,
                           "the residual of %s is %.3g times the gradient of %s (comm.residual_cap "
                           "%.3g): the tensor is sent as fp32 from the next step on",
                           c->made->name, c->ratio[i], name, t->cfg.comm.residual_cap);
    }
}

/* Moves to a safer codec after several bad steps in a row, because the codec may be their cause. All ranks count the
 * same steps, and the residuals were restored. */
static void fall_back_after_bad_steps(bt_codec_choice *c, bt_trainer *t, const bt_step_outcome *o) {
    char body[120];
    if (!o->bad) c->bad_in_row = 0;
    if (!o->bad || c->made == c->ladder.at[0] || c->made->order_exact) return;
    if (++c->bad_in_row < BAD_STEPS) return;
    const int before = c->at;
    c->bad_in_row = 0;
    c->most = c->at = c->at - 1;
    snprintf(body, sizeof body, "{\"codec\":\"%s\",\"before\":\"%s\"}", c->ladder.at[c->at]->name,
             c->ladder.at[before]->name);
    bt_telemetry_event(&t->telemetry, BT_EVENT_CODEC_FALLBACK, t->at.step - 1, body,
                       "%d bad steps in a row with --codec %s: gradients travel as %s from now on",
                       BAD_STEPS, c->ladder.at[before]->name,
                       c->at == 0 ? "fp32" : c->ladder.at[c->at]->name);
}

/* ---- after a step ---------------------------------------------------------------------------- */

bt_code bt_codec_choice_step(bt_codec_choice *c, bt_trainer *t, const bt_residual *residual,
                             const bt_step_outcome *o, bt_err *err) {
    const bool check = t->at.step % BT_DIAL_WINDOW == 0,
               was_cold = t->at.step == t->cfg.parallel.codec_warmup;
    /* Over a slow link a window of fp32 steps can take minutes, so the first window has one step. */
    const bool adjust = c->by_budget && (check || !c->budget_applied);
    add_to_window(c, o->rank_values[BT_MR_STEP_TIME] / 1e3);
    fall_back_after_bad_steps(c, t, o);
    if (check && o->applied && t->cfg.comm.residual_cap > 0) {
        BT_TRY(check_residuals(c, t, residual, o->loss_scale, err));
        fall_back_to_fp32(c, t);
    }
    if (adjust) BT_TRY(adjust_codec(c, t, err));
    if (adjust || check) c->window = (bt_dial_window){0};
    c->budget_applied |= adjust;
    if (was_cold && !c->by_budget && bt_codec_choice_stale(c, t))
        bt_telemetry_event(&t->telemetry, BT_EVENT_CODEC, t->at.step - 1, NULL,
                           "the warm-up of --codec %s is over: gradients are encoded from the next "
                           "step",
                           c->ladder.at[c->at]->name);
    return BT_OK;
}

bt_code bt_codec_choice_sample(bt_codec_choice *c, bt_trainer *t, const bt_residual *residual,
                               bt_step_outcome *o, bt_err *err) {
    const bt_params *p = &t->setup.params;
    BT_TRY(check_residuals(c, t, residual, o->loss_scale, err));
    memset(c->bits, 0, c->n * sizeof *c->bits);
    for (size_t i = 0; i < p->n; i++) {
        const bool plain = c->made->state_bytes > 0 && t->setup.payload_tensors[i].plain;
        c->bits[p->tensors[i].number] = plain ? 32 : bits_per_direction(t, c->made);
    }
    BT_TRY(bt_all_reduce_f64(t->mesh.pp, c->bits, c->n, BT_MAX, err));
    o->residual_ratio = c->ratio;
    o->grad_bits = c->bits;
    return BT_OK;
}

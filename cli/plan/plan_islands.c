/* plan_islands.c - what a hub, its link and its rules make of so many islands. */
#include "cli/plan/plan_islands.h"

#include <inttypes.h>
#include <math.h>

#include "engine/base/tables/metric.h"
#include "engine/islands/hub/hub_state.h"
#include "engine/islands/rules/job_settings.h"
#include "engine/islands/rules/vector_code.h"
#include "engine/optim/optim.h"

static const bt_codec plain = {.name = "fp32"};

/* ---- what is known of an exchange ------------------------------------------------------------ */

static bt_code take_bytes(bt_islands_sim *s, const bt_run_cfg *cfg, bt_err *err) {
    bt_model_cfg m;
    bt_params params;
    const bt_codec *codec = bt_codec_at((bt_codec_id)cfg->codec);
    bt_run_cfg_model(cfg, &m);
    BT_TRY(bt_params_init(&params, &m, (bt_model_slice){.tp_size = 1, .pp_size = 1}, err));
    const bt_vector_code coded = {.params = &params, .codec = codec->encode ? codec : &plain},
                         whole = {.params = &params, .codec = &plain};
    s->up_bytes = (double)bt_vector_bytes(&coded);
    /* what the hub changed is coded for who has the version before; who does not gets the weights */
    s->down_bytes = s->bound == 0 ? s->up_bytes : (double)bt_vector_bytes(&whole);
    bt_params_release(&params);
    return BT_OK;
}

/* frames of a message are copied by CURVE (island_message.h), and into or out of the socket */
enum { FRAME_COPIES = 4 };

/* The hub takes updates in, and makes the new weights, with one thread. Each frame has a checksum;
 * messages are in memory that is new each time. What comes is decoded to take its norm (hub_rounds.c,
 * is_poison), and again for the mean, in which an island's share is scaled and added; the mean's norm
 * does not depend on the order of its elements. */
static void take_hub(bt_islands_sim *s, const bt_run_cfg *cfg, const bt_rates *r) {
    bt_model_cfg m;
    bt_run_cfg_model(cfg, &m);
    const double n = (double)bt_model_count(&m).params, read_s = r->norm.large_s,
                 up = s->up_bytes / sizeof(float), down = s->down_bytes / sizeof(float);
    const bt_codec_rate *codec = &r->codec[cfg->codec];
    const bool coded = bt_codec_at((bt_codec_id)cfg->codec)->encode != NULL,
               gradients = cfg->mode != BT_ISLANDS_DILOCO;
    const double copy_s = r->triad_per_s > 0 ? 2 * sizeof(float) / r->triad_per_s : 0,
                 decode_s = coded ? codec->decode_s : copy_s, frame_s = sizeof(float) * r->hash_s,
                 sum_s = s->bound == 0 ? copy_s + r->fresh_s + r->add_s : 0;
    s->add_s = n * (2 * decode_s + read_s + sum_s) + up * (copy_s + r->fresh_s + frame_s);
    s->answer_s = down * (2 * copy_s + r->fresh_s + frame_s);
    s->island_s = n * (coded ? codec->encode_s : copy_s) +
                  up * (2 * copy_s + r->fresh_s + frame_s) +
                  n * (coded && s->bound == 0 ? codec->decode_s + r->add_s : copy_s) +
                  down * (copy_s + r->fresh_s + frame_s) + n * (copy_s + read_s);
    s->coding_s = r->seal_s + FRAME_COPIES * copy_s / sizeof(float);
    s->update_s = n * (gradients ? r->exact_s + r->update[cfg->optimizer].large_s : 2 * r->add_s);
    s->update_s += n * (coded ? codec->encode_s + codec->decode_s + 2 * r->add_s : 0);
    if (!coded || s->bound != 0) s->update_s += n * copy_s; /* the weights as they are sent */
    /* The mean goes into the log of updates, and now and then weights and two states into a
     * checkpoint. Writing is work; then the disk is waited for. */
    const double kept = n * sizeof(float) * (1 + 3.0 / BT_HUB_LOG_MODELS);
    s->update_s += kept * (r->hash_s + r->write_s);
    if (r->disk_per_s > 0) s->keep_s = fmax(0, kept / r->disk_per_s - kept * r->write_s);
}

/* A fragment travels every inner / fragments steps: it is a round of its own here. */
static void take_rounds(bt_islands_sim *s, const bt_run_cfg *cfg) {
    s->inner = 1;
    s->bound = cfg->mode == BT_ISLANDS_SYNC ? 0 : cfg->staleness;
    if (cfg->mode != BT_ISLANDS_DILOCO) return;
    const int64_t parts = cfg->island_fragments;
    s->steps = cfg->steps;
    s->warmup = cfg->island_warmup < 0 ? cfg->steps / 10 : cfg->island_warmup;
    s->ramp = cfg->island_ramp / (double)parts;
    s->inner = cfg->inner / parts > 0 ? cfg->inner / parts : 1;
    s->overlap = cfg->island_overlap < 0 ? s->inner : cfg->island_overlap;
    s->up_bytes /= (double)parts;
    s->down_bytes /= (double)parts;
    s->add_s /= (double)parts;
    s->update_s /= (double)parts;
    s->keep_s /= (double)parts;
    s->answer_s /= (double)parts;
    s->island_s /= (double)parts;
}

bt_code bt_islands_plan_of(bt_islands_plan *out, const bt_islands_words *w, const bt_run_cfg *cfg,
                           const bt_cluster *cluster, const bt_sim_point *island,
                           const bt_rates *rates, bt_err *err) {
    const bt_prediction *time = &island->layout.time;
    *out = (bt_islands_plan){.alone_per_s = time->tokens_per_s,
                             .step_tokens = time->tokens_per_s * time->step.step_s,
                             .disk_per_s = rates->disk_per_s};
    bt_islands_sim *s = &out->asked;
    *s = (bt_islands_sim){.n = (int)w->n,
                          .step_s = time->step.step_s,
                          .spread = cluster->straggler_frac,
                          .island_rate = cluster->bytes_per_s,
                          .hub_rate = cluster->bytes_per_s,
                          .latency_s = cluster->latency_s,
                          .mtbf_s = island->mtbf_s,
                          .restart_s = island->restart_s,
                          .bound = cfg->mode == BT_ISLANDS_SYNC ? 0 : cfg->staleness,
                          .cores = (int)w->shared_cores,
                          .threads = cluster->ranks * (int)cfg->threads,
                          .seed = cluster->seed};
    if (w->hub_bytes_per_s > 0) s->hub_rate = w->hub_bytes_per_s;
    s->latency_s = fmax(s->latency_s, w->hub_latency_s);
    BT_TRY(take_bytes(s, cfg, err));
    take_hub(s, cfg, rates);
    take_rounds(s, cfg);
    for (int n = 1; out->rows < BT_ISLANDS_ROWS; n = n * 2 < s->n ? n * 2 : s->n) {
        bt_islands_sim some = *s;
        some.n = n;
        BT_TRY(bt_islands_simulate(&some, &out->time[out->rows], err));
        out->n[out->rows++] = n;
        if (n == s->n) break;
    }
    return BT_OK;
}

/* ---- shown ----------------------------------------------------------------------------------- */

static double tokens_per_s(const bt_islands_plan *p, size_t row) {
    return p->time[row].steps_per_s * p->step_tokens;
}

double bt_islands_tokens_per_s(const bt_islands_plan *p) { return tokens_per_s(p, p->rows - 1); }

static double kept(const bt_islands_plan *p, size_t row) {
    return tokens_per_s(p, row) / (p->alone_per_s * p->n[row]);
}

static const char *mode_name(const bt_run_cfg *cfg) {
    static const char *const names[] = {"sync", "ps", "diloco"};
    return names[cfg->mode];
}

static void put_rounds(const bt_islands_sim *s, bt_text *out) {
    if (s->warmup == 0 && !(s->ramp > 0)) return;
    bt_text_put(out, "rounds     ");
    if (s->warmup > 0)
        bt_text_printf(out,
                       "the first %" PRId64 " of %" PRId64
                       " steps all together, one a round (islands.warmup)%s",
                       s->warmup, s->steps, s->ramp > 0 ? "; then " : "\n");
    if (s->ramp > 0)
        bt_text_printf(out, "of %.3g times the steps before, at most %" PRId64 " (islands.ramp)\n",
                       s->ramp, s->inner);
}

void bt_islands_put_text(const bt_islands_plan *p, const bt_run_cfg *cfg, bt_text *out) {
    const bt_islands_sim *s = &p->asked;
    char up[32], down[32], rate[32], tokens[32];
    bt_text_printf(out,
                   "\nSIMULATION up to %d such islands around a hub, mode %s, %" PRId64
                   " step%s a round, %s: an update of %s, an answer of %s\n",
                   s->n, mode_name(cfg), s->inner, s->inner == 1 ? "" : "s",
                   s->bound == 0  ? "all together"
                   : s->bound < 0 ? "nobody waits for others"
                                  : "ahead of the slowest by the staleness at most",
                   bt_metric_format(up, sizeof up, s->up_bytes, BT_UNIT_BYTES),
                   bt_metric_format(down, sizeof down, s->down_bytes, BT_UNIT_BYTES));
    bt_text_printf(out,
                   "given      link of the hub %s/s, %.3g us; what staleness and rounds do to the "
                   "loss is not simulated (engine/islands)\n",
                   bt_metric_format(rate, sizeof rate, s->hub_rate, BT_UNIT_BYTES),
                   1e6 * s->latency_s);
    if (s->cores > 0)
        bt_text_printf(out,
                       "cores      all islands and the hub share %d of one machine "
                       "(--shared-cores)\n",
                       s->cores);
    put_rounds(s, out);
    bt_text_printf(out, "%8s %10s %6s %9s %7s %11s %15s %10s\n", "islands", "tokens/s", "kept%",
                   "held up%", "lost%", "hub in/out%", "staleness mean", "most");
    for (size_t i = 0; i < p->rows; i++) {
        const bt_islands_time *t = &p->time[i];
        bt_text_printf(out, "%8d %10s %6.1f %9.1f %7.1f %5.1f/%5.1f %15.1f %10" PRId64 "\n",
                       p->n[i],
                       bt_metric_format(tokens, sizeof tokens, tokens_per_s(p, i), BT_UNIT_COUNT),
                       100 * kept(p, i), 100 * t->held_frac, 100 * t->lost_frac, 100 * t->in_frac,
                       100 * t->out_frac, t->staleness_mean, t->staleness_most);
    }
    const bt_islands_time *full = &p->time[p->rows - 1];
    const bool in = full->in_frac >= full->out_frac;
    if (fmax(full->in_frac, full->out_frac) > 0.9)
        bt_text_printf(
            out,
            "limit      the hub's link is full (%s): a codec (--codec int8), more --inner "
            "steps or a faster --hub-link\n",
            in ? "what comes" : "what leaves");
    else if (full->disk_frac > 0.5)
        bt_text_printf(out,
                       "limit      the hub's disk, %s/s here, takes %.0f %% of the time: every "
                       "update is on it before "
                       "islands hear of it (a faster disk, more --inner steps)\n",
                       bt_metric_format(rate, sizeof rate, p->disk_per_s, BT_UNIT_BYTES),
                       100 * full->disk_frac);
    else if (full->held_frac > 0.1 && s->bound == 0)
        bt_text_put(out, "limit      islands wait: --set islands.overlap, more --inner steps or "
                         "--staleness let them go on\n");
}

void bt_islands_put_json(const bt_islands_plan *p, bt_json *j) {
    const bt_islands_sim *s = &p->asked;
    bt_json_object(j, "islands");
    bt_json_int(j, "inner_steps", s->inner);
    bt_json_int(j, "staleness", s->bound);
    bt_json_int(j, "overlap_steps", s->overlap);
    bt_json_num(j, "update_bytes", s->up_bytes);
    bt_json_num(j, "answer_bytes", s->down_bytes);
    bt_json_num(j, "hub_bytes_per_s", s->hub_rate);
    bt_json_num(j, "hub_add_s", s->add_s);
    bt_json_num(j, "hub_update_s", s->update_s);
    bt_json_num(j, "hub_keep_s", s->keep_s);
    bt_json_num(j, "hub_answer_s", s->answer_s);
    bt_json_num(j, "island_exchange_s", s->island_s);
    bt_json_num(j, "coding_s_per_byte", s->coding_s);
    bt_json_int(j, "shared_cores", s->cores);
    bt_json_int(j, "warmup_steps", s->warmup);
    bt_json_num(j, "ramp", s->ramp);
    bt_json_array(j, "sizes");
    for (size_t i = 0; i < p->rows; i++) {
        const bt_islands_time *t = &p->time[i];
        bt_json_object(j, NULL);
        bt_json_int(j, "n", p->n[i]);
        bt_json_num(j, "tokens_per_s", tokens_per_s(p, i));
        bt_json_num(j, "kept_frac", kept(p, i));
        bt_json_num(j, "held_frac", t->held_frac);
        bt_json_num(j, "lost_frac", t->lost_frac);
        bt_json_num(j, "hub_in_frac", t->in_frac);
        bt_json_num(j, "hub_out_frac", t->out_frac);
        bt_json_num(j, "hub_disk_frac", t->disk_frac);
        bt_json_num(j, "staleness_mean", t->staleness_mean);
        bt_json_int(j, "staleness_most", t->staleness_most);
        bt_json_int(j, "failures", t->failures);
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
    bt_json_end(j, '}');
}

/* plan_print.c - prints the table of layouts, the reasons for the first one, and the changes that would reorder it. */
#include "cli/plan/plan_print.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/plan/plan_advice.h"
#include "engine/base/system/json_fields.h"
#include "engine/base/tables/metric.h"
#include "engine/kernels/table/kernels.h"

/* phases that a plan predicts */
static const bt_phase shown[] = {BT_PH_FWD,  BT_PH_BWD,   BT_PH_COMM_EXPOSED,
                                 BT_PH_WAIT, BT_PH_OPTIM, BT_PH_CKPT};
enum { N_SHOWN = sizeof shown / sizeof shown[0] };

/* load of other programs, in tasks per processor, from which times are unreliable */
static const double CROWDED = 1.5;

const char *bt_plan_words(const bt_layout *l, char *buf, size_t size) {
    bt_layout_words(l, buf, size);
    const size_t n = strlen(buf);
    if (l->time.scaled) snprintf(buf + n, size - n, " (scaled rates)");
    return buf;
}

void bt_plan_put_load(const bt_rates *r, bt_text *out) {
    if (r->load > CROWDED)
        bt_text_printf(out,
                       "warning    rates were measured under load %.1f, so times are pessimistic "
                       "(repeat with --measure on an idle machine)\n",
                       r->load);
}

void bt_plan_load_json(const bt_rates *r, bt_json *j) {
    bt_json_num(j, "probe_s", r->probe_s);
    bt_json_num(j, "probe_load", r->load);
}

static void put_layout_columns(bt_text *out) {
    bt_text_printf(out, "%4s %10s %10s", "", "step", "tokens/s");
    for (int i = 0; i < N_SHOWN; i++) bt_text_printf(out, " %9s", bt_phases[shown[i]].name);
    bt_text_printf(out, " %10s  %s\n", "rank", "layout");
}

static void put_layout_row(const bt_layout *l, int number, bt_text *out) {
    char buf[32], words[160];
    const double step_s = bt_layout_step_s(l), tokens = l->time.tokens_per_s * l->time.step.step_s;
    bt_text_printf(out, "%4d %10s", number,
                   bt_metric_format(buf, sizeof buf, 1e3 * step_s, BT_UNIT_MS));
    bt_text_printf(out, " %10s", bt_metric_format(buf, sizeof buf, tokens / step_s, BT_UNIT_COUNT));
    for (int i = 0; i < N_SHOWN; i++)
        bt_text_printf(out, " %9s",
                       bt_metric_format(buf, sizeof buf, 1e3 * l->time.step.phase_s[shown[i]],
                                        BT_UNIT_MS));
    bt_text_printf(out, " %10s",
                   bt_metric_format(buf, sizeof buf, (double)l->rank_bytes, BT_UNIT_BYTES));
    bt_text_printf(out, "  %s%s", bt_plan_words(l, words, sizeof words),
                   l->fits ? "" : " (does not fit)");
    if (l->trial_s > 0)
        bt_text_printf(out, " (predicted: %s)",
                       bt_metric_format(buf, sizeof buf, 1e3 * l->time.step.step_s, BT_UNIT_MS));
    bt_text_put(out, "\n");
}

void bt_plan_layout_json(bt_json *j, const char *key, const bt_layout *l) {
    static const char *const recompute[] = {"none", "selective", "full"};
    bt_json_object(j, key);
    bt_json_int(j, "pp", l->shape.pp);
    bt_json_int(j, "virtual_stages", l->virtual_stages);
    BT_JSON_FIELDS(j, &l->shape, F(dp_replicate), F(dp_shard), F(tp));
    BT_JSON_FIELDS(j, l, F(zero), F(micro_batch), F(accum));
    bt_json_str(j, "recompute", recompute[l->recompute]);
    bt_json_str(j, "gather", bt_gather_name(l->gather));
    bt_json_str(j, "codec", bt_codec_at((bt_codec_id)l->codec)->name);
    BT_JSON_FIELDS(j, l, F(fits), F(rank_bytes), F(all_bytes));
    bt_json_num(j, "step_ms", 1e3 * l->time.step.step_s);
    bt_json_num(j, "tried_ms", l->trial_s > 0 ? 1e3 * l->trial_s : NAN);
    bt_json_num(j, "tokens_per_s", l->time.tokens_per_s);
    for (int p = 0; p < BT_PHASE_COUNT; p++)
        bt_json_num(j, bt_rank_metrics[bt_phases[p].metric].key, 1e3 * l->time.step.phase_s[p]);
    bt_json_object(j, "processor");
    for (int p = 0; p < BT_PHASE_COUNT; p++)
        bt_json_num(j, bt_rank_metrics[bt_phases[p].metric].key, 1e3 * l->time.step.processor_s[p]);
    bt_json_end(j, '}');
    bt_json_num(j, "bubble_frac", l->time.step.bubble_frac);
    bt_json_num(j, "exchange_exposed_ms", 1e3 * l->time.step.exchange_s);
    bt_json_num(j, "grad_bytes", l->time.grad_bytes);
    bt_json_bool(j, "scaled_rates", l->time.scaled);
    bt_json_end(j, '}');
}

static void put_plan_head(const bt_layout_choice *c, bt_text *out) {
    char params[32];
    bt_model_cfg m;
    const bt_run_cfg *cfg = &c->settings;
    bt_run_cfg_model(cfg, &m);
    bt_text_printf(out,
                   "plan       %s: %s parameters, vocabulary %d, %" PRId64
                   " tokens a step, %d rank%s x %" PRId64 " thread%s, %s kernels\n",
                   cfg->model.preset,
                   bt_metric_format(params, sizeof params, (double)bt_model_count(&m).params,
                                    BT_UNIT_COUNT),
                   m.V, cfg->train.batch_tokens, c->search.cluster.ranks,
                   c->search.cluster.ranks == 1 ? "" : "s", cfg->launch.threads,
                   cfg->launch.threads == 1 ? "" : "s", bt_kernels_isa());
    const bt_cluster *k = &c->search.cluster;
    if (bt_cluster_hosts(k) > 1)
        bt_text_printf(out, "hosts      %d of %s%d rank%s each%s\n", bt_cluster_hosts(k),
                       k->hosts > 0 ? "up to " : "", bt_cluster_fullest(k),
                       bt_cluster_fullest(k) == 1 ? "" : "s",
                       k->hosts > 0 ? ", unequal: times between hosts are predicted for their mean"
                                    : "");
    double crowd = bt_cluster_crowd(&c->search.cluster, cfg);
    if (crowd > 1)
        bt_text_printf(out,
                       "crowded    %d cores for all threads: computing takes %.3g times as long\n",
                       c->search.cluster.cores, crowd);
    bt_text_printf(out,
                   "layouts    %zu legal (%zu fit the memory, %zu combinations refused); the "
                   "times are predictions%s\n",
                   c->layouts.n, c->layouts.fitting, c->layouts.refused,
                   c->layouts.at[0].trial_s > 0
                       ? ", but the steps of the first rows were measured in trials"
                       : "");
    bt_plan_put_load(&c->rates, out);
}

/* Returns the longest time between two checkpoints; 0: only at the end. */
static double checkpoint_interval_s(const bt_layout_choice *c) {
    const bt_run_cfg *cfg = &c->settings;
    return cfg->ckpt.every > 0 ? (double)cfg->ckpt.every * bt_layout_step_s(&c->layouts.at[0])
                               : 60 * cfg->ckpt.minutes;
}

static double checkpoint_disk_share(const bt_layout_choice *c) {
    const double every = checkpoint_interval_s(c);
    return every > 0 ? c->layouts.at[0].time.ckpt_s / every : 0;
}

static double ckpt_bytes(const bt_layout_choice *c) {
    const bt_cluster *k = &c->search.cluster;
    return c->layouts.at[0].time.ckpt_s * c->rates.disk_per_s * bt_cluster_hosts(k);
}

static void put_checkpoint_storage(const bt_layout_choice *c, bt_text *out) {
    char bytes[32], kept[32], rate[32], took[32], every[32];
    const bt_run_cfg *cfg = &c->settings;
    const double ckpt_s = c->layouts.at[0].time.ckpt_s, share = checkpoint_disk_share(c);
    if (!(ckpt_s > 0)) return;
    bt_text_printf(
        out,
        "storage    a checkpoint of %s (%s for the %" PRId64 " kept) takes %s at %s/s of the disk",
        bt_metric_format(bytes, sizeof bytes, ckpt_bytes(c), BT_UNIT_BYTES),
        bt_metric_format(kept, sizeof kept, (double)cfg->ckpt.keep * ckpt_bytes(c), BT_UNIT_BYTES),
        cfg->ckpt.keep, bt_duration(took, sizeof took, ckpt_s),
        bt_metric_format(rate, sizeof rate, c->rates.disk_per_s, BT_UNIT_BYTES));
    if (share > 0)
        bt_text_printf(out, ": of every %s, %.2g %% of what the disk can write%s",
                       bt_duration(every, sizeof every, checkpoint_interval_s(c)), 100 * share,
                       share > 1     ? ", which is too much (a longer --ckpt-every)"
                       : share > 0.1 ? ", which other writers will feel (a longer --ckpt-every)"
                                     : "");
    bt_text_put(out, "\n");
}

static bt_bill fill_plan_bill(const bt_layout_choice *c, const bt_train_time *time,
                              const bt_bill *asked) {
    const bt_cluster *k = &c->search.cluster;
    const bool given = asked->host_watts > 0;
    /* ranks above the number that can compute at the same time use no additional power */
    const int busy = c->rates.ranks < k->ranks_per_host ? c->rates.ranks : k->ranks_per_host;
    return (bt_bill){.host_watts = given ? asked->host_watts : c->rates.rank_watts * busy,
                     .given = given,
                     .host_price = asked->host_price,
                     .hosts = bt_cluster_hosts(k),
                     .seconds = time->seconds,
                     .tokens = (double)c->settings.train.steps *
                               (double)c->settings.train.batch_tokens};
}

void bt_plan_put_text(const bt_layout_choice *c, int rows, const bt_train_time *time,
                      const bt_bill *asked, bt_text *out) {
    put_plan_head(c, out);
    put_layout_columns(out);
    for (size_t i = 0; i < c->layouts.n && (int)i < rows; i++) {
        if (i > 0 && c->layouts.at[i - 1].trial_s > 0 && !(c->layouts.at[i].trial_s > 0))
            bt_text_printf(out, "%4s not tried, predicted:\n", "");
        put_layout_row(&c->layouts.at[i], (int)i + 1, out);
    }
    if (c->layouts.n > (size_t)rows)
        bt_text_printf(out, "%4s and %zu slower ones\n", "", c->layouts.n - (size_t)rows);
    bt_text_put(out, "why        ");
    bt_layout_why(&c->layouts, out);
    bt_text_put(out, "\n");
    bt_plan_put_advice(c, out);
    put_checkpoint_storage(c, out);
    bt_train_time_put(time, c->settings.train.steps, "", out);
    const bt_bill paid = fill_plan_bill(c, time, asked);
    bt_bill_put_text(&paid, out);
}

void bt_plan_put_json(const bt_layout_choice *c, int rows, const bt_train_time *time,
                      const bt_bill *asked, bt_text *out) {
    bt_json j;
    bt_model_cfg m;
    bt_text why;
    const bt_run_cfg *cfg = &c->settings;
    bt_run_cfg_model(cfg, &m);
    bt_text_init(&why);
    bt_layout_why(&c->layouts, &why);
    bt_json_begin(&j, out);
    bt_json_object(&j, NULL);
    bt_json_int(&j, "version", 1);
    bt_json_bool(&j, "simulation", false);
    bt_json_bool(&j, "prediction", true);
    bt_json_str(&j, "preset", cfg->model.preset);
    bt_json_int(&j, "params", (int64_t)bt_model_count(&m).params);
    bt_json_int(&j, "ranks", c->search.cluster.ranks);
    bt_json_int(&j, "threads", cfg->launch.threads);
    bt_json_int(&j, "cores", c->search.cluster.cores);
    bt_json_int(&j, "batch_tokens", cfg->train.batch_tokens);
    bt_json_int(&j, "steps", cfg->train.steps);
    bt_json_str(&j, "isa", bt_kernels_isa());
    bt_json_int(&j, "legal", (int64_t)c->layouts.n);
    bt_json_int(&j, "fitting", (int64_t)c->layouts.fitting);
    bt_json_str(&j, "why", bt_text_str(&why));
    bt_json_num(&j, "seconds", time->seconds);
    bt_json_str(&j, "seconds_from", bt_train_time_source(time));
    const bt_bill paid = fill_plan_bill(c, time, asked);
    bt_bill_put_json(&paid, &j);
    bt_plan_advice_json(c, &j);
    bt_json_num(&j, "ckpt_s", c->layouts.at[0].time.ckpt_s);
    bt_json_num(&j, "ckpt_bytes", ckpt_bytes(c));
    bt_json_num(&j, "ckpt_interval_s",
                checkpoint_interval_s(c) > 0 ? checkpoint_interval_s(c) : NAN);
    bt_json_num(&j, "disk_frac", checkpoint_disk_share(c));
    bt_plan_load_json(&c->rates, &j);
    bt_json_array(&j, "layouts");
    for (size_t i = 0; i < c->layouts.n && (int)i < rows; i++)
        bt_plan_layout_json(&j, NULL, &c->layouts.at[i]);
    bt_json_end(&j, ']');
    bt_json_end(&j, '}');
    bt_text_put(out, "\n");
    bt_text_release(&why);
}

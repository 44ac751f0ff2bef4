/* plan_simulate.c - predicts a run on a cluster of 1, 2, 4, ... hosts, each with its best layout. */
#include "cli/plan/plan_simulate.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/progress.h"
#include "cli/layout/choose_layout.h"
#include "cli/plan/plan_print.h"
#include "engine/base/system/json_fields.h"
#include "engine/base/tables/metric.h"
#include "engine/kernels/table/kernels.h"
#include "engine/plan/layout_remedy.h"
#include "engine/plan/simulate.h"

enum { POINTS_MOST = 24, SHAPES_MOST = 12, BAR = 24 };
#define DEFAULT_LINK "100Gbit,3us"
static const double PROBE_S = 3;
/* goodput (useful time over all time) below which a job counts as impossible */
static const double HARDLY = 1e-3;

typedef struct simulation {
    bt_train_plan *p;
    const bt_simulation_words *w;
    bt_layout_search search; /* at the full size */
    bt_rates *rates;
    double job_mtbf_s;
    bool batch_made_up;
    bt_sim_point *points; /* the last point is the full size */
    size_t n;
} simulation;

/* ---- simulated cluster ----------------------------------------------------------------------- */

static bt_code read_cluster(simulation *s, bt_err *err) {
    bt_cluster *c = &s->search.cluster;
    int hosts;
    *c = (bt_cluster){.simulated = true,
                      .straggler_frac = s->w->straggler_frac,
                      .seed = (uint64_t)s->p->cfg.run.seed};
    BT_TRY(bt_sim_parse_hosts(s->w->hosts, &hosts, &c->ranks_per_host, err));
    c->ranks = hosts * c->ranks_per_host;
    BT_TRY(bt_sim_parse_link(s->w->link[0] ? s->w->link : DEFAULT_LINK, "--link", &c->bytes_per_s,
                             &c->latency_s, err));
    if (s->w->memory[0])
        BT_TRY(bt_sim_parse_bytes(s->w->memory, "--memory", &c->memory_bytes, err));
    if (s->w->mtbf[0]) BT_TRY(bt_sim_parse_time(s->w->mtbf, "--mtbf", &s->job_mtbf_s, err));
    /* --mtbf is the time between failures of the whole job; hosts fail independently of each other */
    c->mtbf_s = s->job_mtbf_s * hosts;
    return BT_OK;
}

/* The preset's batch is for one machine. A batch of about one sequence for every fourth rank permits several
 * layouts. */
static void choose_simulated_batch(simulation *s) {
    bt_run_cfg *cfg = &s->p->cfg;
    int64_t sequences = 1;
    if (bt_opts_given(&s->p->opts, "train.batch_tokens")) return;
    while (sequences * 4 < s->search.cluster.ranks) sequences *= 2;
    if (sequences * cfg->model.seq_len <= cfg->train.batch_tokens) return;
    cfg->train.batch_tokens = sequences * cfg->model.seq_len;
    s->batch_made_up = true;
}

/* Fails if the full size has no layout, because nothing could be shown. */
static bt_code check_full_size(const bt_layout_search *search, const bt_sim_point *full,
                               bt_err *err) {
    if (!full->refused[0]) return BT_OK;
    if (!strstr(full->refused, "fits")) return bt_fail(err, BT_ARG, "%s", full->refused);
    bt_text would;
    bt_text_init(&would);
    bt_layout_remedies(search, &would);
    bt_code code = bt_fail(err, BT_NOMEM, "%s; would fit: %s", full->refused, bt_text_str(&would));
    bt_text_release(&would);
    return code;
}

/* Fails if no layout fits. This check needs no rates, so it precedes their measurement. */
static bt_code fail_if_nothing_fits(const simulation *s, bt_err *err) {
    bt_sim_point full;
    BT_TRY(bt_sim_point_of(&full, &s->search, s->rates, err));
    return check_full_size(&s->search, &full, err);
}

static bt_code measure_simulation_rates(simulation *s, bt_err *err) {
    bt_text notes;
    bt_layouts l = {0};
    bt_part_shape *shapes = calloc(SHAPES_MOST, sizeof *shapes);
    bt_run_cfg *first = malloc(sizeof *first);
    bt_code code = shapes && first ? bt_layouts_find(&l, &s->search, err)
                                   : bt_fail(err, BT_NOMEM, "no memory for the shapes of layers");
    if (code == BT_OK && l.fitting == 0) code = fail_if_nothing_fits(s, err);
    if (code == BT_OK) code = bt_layout_settings(&s->search, &l.at[0], first, err);
    if (code == BT_OK) {
        int concurrent = bt_rates_concurrent(&first->launch, s->search.cluster.ranks_per_host);
        size_t n = bt_layouts_shapes(&l, &s->search, shapes, SHAPES_MOST);
        const bt_rates_request wanted = {.cfg = first,
                                         .ranks = concurrent,
                                         .ranks_per_host = concurrent,
                                         .parts = shapes,
                                         .n_parts = n,
                                         .store = s->p->store,
                                         /* speeds of links between hosts are given */
                                         .no_links = s->search.cluster.ranks_per_host == 1,
                                         .anew = s->w->anew,
                                         .budget_s = PROBE_S,
                                         .quiet = s->p->cfg.run.quiet};
        bt_text_init(&notes);
        code = bt_machine_rates(&wanted, s->rates, &notes, err);
        fputs(bt_text_str(&notes), stderr);
        bt_text_release(&notes);
    }
    bt_layouts_release(&l);
    free(shapes);
    free(first);
    return code;
}

/* Evaluates 1, 2, 4, ... hosts and all hosts. */
static bt_code evaluate_cluster_sizes(simulation *s, bt_err *err) {
    const bt_cluster whole = s->search.cluster;
    int hosts = whole.ranks / whole.ranks_per_host;
    bt_layout_search at = s->search;
    bt_progress bar;
    bt_code code = BT_OK;
    bt_progress_begin(&bar, s->p->cfg.run.quiet);
    for (int h = 1; code == BT_OK && s->n < POINTS_MOST; h = h * 2 < hosts ? h * 2 : hosts) {
        at.cluster.ranks = h * whole.ranks_per_host;
        bt_progress_show(&bar, "simulating", log2(h) / log2(2 * hosts), "");
        code = bt_sim_point_of(&s->points[s->n++], &at, s->rates, err);
        if (h == hosts) break;
    }
    bt_progress_end(&bar);
    return code;
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Useful tokens per rank, relative to the smallest size that can train. */
static double scaling_efficiency(const simulation *s, const bt_sim_point *p) {
    for (size_t i = 0; i < s->n; i++) {
        const bt_sim_point *first = &s->points[i];
        if (first->refused[0]) continue;
        return (p->tokens_per_s / p->ranks) / (first->tokens_per_s / first->ranks);
    }
    return NAN;
}

static void put_simulation_head(const simulation *s, bt_text *out) {
    char params[32], rate[32], ram[32], mtbf[32];
    const bt_run_cfg *cfg = &s->p->cfg;
    const bt_cluster *c = &s->search.cluster;
    const int hosts = c->ranks / c->ranks_per_host;
    bt_model_cfg m;
    bt_run_cfg_model(cfg, &m);
    bt_text_printf(out,
                   "SIMULATION %d host%s x %d rank%s: %s, %s parameters, vocabulary %d, %" PRId64
                   " tokens a step%s\n",
                   hosts, hosts == 1 ? "" : "s", c->ranks_per_host,
                   c->ranks_per_host == 1 ? "" : "s", cfg->model.preset,
                   bt_metric_format(params, sizeof params, (double)bt_model_count(&m).params,
                                    BT_UNIT_COUNT),
                   m.V, cfg->train.batch_tokens,
                   s->batch_made_up ? " (chosen: a sequence for four ranks)" : "");
    bt_text_printf(out, "given      link of a host %s/s and %.3g us%s; memory of a host %s; ",
                   bt_metric_format(rate, sizeof rate, c->bytes_per_s, BT_UNIT_BYTES),
                   1e6 * c->latency_s, s->w->link[0] ? "" : " (default " DEFAULT_LINK ")",
                   c->memory_bytes > 0
                       ? bt_metric_format(ram, sizeof ram, c->memory_bytes, BT_UNIT_BYTES)
                       : "not given, not checked");
    if (s->job_mtbf_s > 0)
        bt_text_printf(out, "a failure of the job every %s",
                       bt_duration(mtbf, sizeof mtbf, s->job_mtbf_s));
    else
        bt_text_put(out, "no failures");
    bt_text_printf(out, "; stragglers %.3g\n", c->straggler_frac);
    bt_text_printf(out,
                   "taken      every rank computes as one of %d here, on %d thread%s of %s (%s "
                   "kernels), measured at a machine load of %.2f; all hosts alike\n",
                   s->rates->ranks, s->rates->threads, s->rates->threads == 1 ? "" : "s",
                   s->rates->machine, bt_kernels_isa(), s->rates->load);
    bt_plan_put_load(s->rates, out);
}

static void put_point(const simulation *s, const bt_sim_point *p, bt_text *out) {
    char ms[32], rate[32], words[160], bar[BAR + 1] = "";
    if (p->refused[0]) {
        bt_text_printf(out, "%6d %6d  %s\n", p->hosts, p->ranks, p->refused);
        return;
    }
    const bt_step_time *t = &p->layout.time.step;
    double kept = scaling_efficiency(s, p);
    size_t n = (size_t)fmin(BAR, fmax(0, round(kept * BAR)));
    memset(bar, '#', n);
    bt_text_printf(out, "%6d %6d %10s %7.1f %7.1f %7.1f %8.1f %10s %6.1f %-*s %s\n", p->hosts,
                   p->ranks, bt_metric_format(ms, sizeof ms, 1e3 * t->step_s, BT_UNIT_MS),
                   100 * t->bubble_frac, 100 * t->phase_s[BT_PH_COMM_EXPOSED] / t->step_s,
                   100 * t->phase_s[BT_PH_WAIT] / t->step_s, 100 * p->goodput.frac,
                   bt_metric_format(rate, sizeof rate, p->tokens_per_s, BT_UNIT_COUNT), 100 * kept,
                   BAR, bar, bt_plan_words(&p->layout, words, sizeof words));
}

static void put_failures(const bt_sim_point *p, bt_text *out) {
    char ckpt[32], young[32], daly[32], restart[32];
    bt_duration(ckpt, sizeof ckpt, p->layout.time.ckpt_s);
    if (!(p->layout.time.ckpt_s > 0)) {
        bt_text_put(out, "checkpoint not known: this disk's rate could not be measured\n");
        return;
    }
    if (!(p->mtbf_s > 0)) {
        bt_text_printf(out,
                       "checkpoint %s, written by all hosts at this disk's rate; no failures: none "
                       "is counted\n",
                       ckpt);
        return;
    }
    bt_text_printf(
        out,
        "checkpoint %s, written by all hosts at this disk's rate; every %s (Young: %s), %s lost at "
        "each "
        "failure before training continues: %.1f %% of the time is useful (Daly 2006, FGCS 22)\n",
        ckpt, bt_duration(daly, sizeof daly, p->goodput.daly_s),
        bt_duration(young, sizeof young, p->goodput.young_s),
        bt_duration(restart, sizeof restart, p->restart_s), 100 * p->goodput.frac);
}

static int64_t simulated_steps(const bt_run_cfg *cfg) {
    const bt_preset *preset = bt_preset_find(cfg->model.preset);
    if (cfg->train.tokens)
        return (cfg->train.tokens + cfg->train.batch_tokens - 1) / cfg->train.batch_tokens;
    return cfg->train.steps ? cfg->train.steps : preset ? preset->steps : 0;
}

/* Bill of the whole cluster. Without --watts each rank counts as much power as a rank of this machine. */
static bt_bill bill_of_cluster(const simulation *s) {
    const bt_cluster *c = &s->search.cluster;
    const bt_sim_point *full = &s->points[s->n - 1];
    const bool given = s->w->watts > 0;
    bt_bill b = {.host_watts = given ? s->w->watts : s->rates->rank_watts * c->ranks_per_host,
                 .given = given,
                 .host_price = s->w->price,
                 .hosts = (double)c->ranks / c->ranks_per_host,
                 .tokens = (double)simulated_steps(&s->p->cfg) *
                           (double)s->p->cfg.train.batch_tokens};
    b.seconds = b.tokens / full->tokens_per_s / full->goodput.frac;
    return b;
}

static void put_simulation_text(const simulation *s, bt_text *out) {
    const bt_sim_point *full = &s->points[s->n - 1];
    char time[32], again[32];
    put_simulation_head(s, out);
    bt_text_printf(out, "%6s %6s %10s %7s %7s %7s %8s %10s %6s %-*s layout\n", "hosts", "ranks",
                   "step", "bubble%", "comm%", "wait%", "goodput%", "tokens/s", "kept%", BAR,
                   "tokens/s per rank");
    for (size_t i = 0; i < s->n; i++) put_point(s, &s->points[i], out);
    if (!full->refused[0]) bt_text_printf(out, "why        %s\n", full->why);
    put_failures(full, out);
    const int64_t steps = simulated_steps(&s->p->cfg);
    if (steps == 0) return;
    const bt_bill paid = bill_of_cluster(s);
    if (full->goodput.frac < HARDLY) {
        bt_text_printf(out,
                       "time       %" PRId64 " steps would hardly ever be done: the job fails "
                       "every %s, and going on takes %s each time (--mtbf, fewer hosts)\n",
                       steps, bt_duration(time, sizeof time, full->mtbf_s),
                       bt_duration(again, sizeof again, full->restart_s));
        return;
    }
    bt_text_printf(out, "time       %s for %" PRId64 " steps, simulated%s\n",
                   bt_duration(time, sizeof time, paid.seconds), steps,
                   full->goodput.frac < 1 ? ", with what failures cost" : "");
    bt_bill_put_text(&paid, out);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void put_simulation_point(const simulation *s, bt_json *j, const bt_sim_point *p) {
    bt_json_object(j, NULL);
    bt_json_int(j, "hosts", p->hosts);
    bt_json_int(j, "ranks", p->ranks);
    if (p->refused[0]) {
        bt_json_str(j, "refused", p->refused);
    } else {
        BT_JSON_FIELDS(j, p, F(legal), F(fitting), F(tokens_per_s));
        bt_json_num(j, "kept_frac", scaling_efficiency(s, p));
        bt_json_num(j, "goodput_frac", p->goodput.frac);
        bt_json_num(j, "ckpt_s", p->layout.time.ckpt_s);
        bt_json_num(j, "restart_s", p->restart_s);
        bt_json_num(j, "mtbf_s", p->mtbf_s > 0 ? p->mtbf_s : NAN);
        bt_json_num(j, "ckpt_interval_s", p->mtbf_s > 0 ? p->goodput.daly_s : NAN);
        bt_json_num(j, "young_interval_s", p->mtbf_s > 0 ? p->goodput.young_s : NAN);
        bt_plan_layout_json(j, "layout", &p->layout);
        bt_json_str(j, "why", p->why);
    }
    bt_json_end(j, '}');
}

static void put_simulation_json(const simulation *s, bt_text *out) {
    bt_json j;
    bt_model_cfg m;
    const bt_cluster *c = &s->search.cluster;
    bt_run_cfg_model(&s->p->cfg, &m);
    bt_json_begin(&j, out);
    bt_json_object(&j, NULL);
    bt_json_int(&j, "version", 1);
    bt_json_bool(&j, "simulation", true);
    bt_json_str(&j, "preset", s->p->cfg.model.preset);
    bt_json_int(&j, "params", (int64_t)bt_model_count(&m).params);
    bt_json_int(&j, "vocab", m.V);
    bt_json_int(&j, "batch_tokens", s->p->cfg.train.batch_tokens);
    bt_json_int(&j, "hosts", c->ranks / c->ranks_per_host);
    BT_JSON_FIELDS(&j, c, F(ranks_per_host), F_AS("link_bytes_per_s", bytes_per_s),
                   F_AS("link_latency_s", latency_s));
    bt_json_num(&j, "memory_bytes", c->memory_bytes > 0 ? c->memory_bytes : NAN);
    bt_json_num(&j, "straggler_frac", c->straggler_frac);
    bt_json_str(&j, "rates_of", s->rates->machine);
    bt_plan_load_json(s->rates, &j);
    const bt_bill paid = bill_of_cluster(s);
    bt_json_num(&j, "seconds", paid.seconds);
    bt_bill_put_json(&paid, &j);
    bt_json_array(&j, "sizes");
    for (size_t i = 0; i < s->n; i++) put_simulation_point(s, &j, &s->points[i]);
    bt_json_end(&j, ']');
    bt_json_end(&j, '}');
    bt_text_put(out, "\n");
}

/* ---- all of it ------------------------------------------------------------------------------- */

static bt_code print_simulation(const simulation *s, bt_err *err) {
    bt_text out;
    bt_text_init(&out);
    if (s->p->cfg.run.json)
        put_simulation_json(s, &out);
    else
        put_simulation_text(s, &out);
    bt_code code = out.failed ? bt_fail(err, BT_NOMEM, "no memory for the simulation") : BT_OK;
    if (code == BT_OK) fputs(bt_text_str(&out), stdout);
    bt_text_release(&out);
    return code;
}

bt_code bt_plan_simulate(bt_train_plan *p, const bt_simulation_words *w, bt_err *err) {
    simulation s = {.p = p,
                    .w = w,
                    .search = {.cfg = &p->cfg,
                               .parts = bt_parts_memory,
                               .one_micro_batch = true,
                               .choice_only = true}};
    s.search.may = bt_layout_freedom_of(&p->opts);
    BT_TRY(read_cluster(&s, err));
    /* memory of the simulated host, not of this machine */
    if (p->cfg.launch.threads == 0) p->cfg.launch.threads = 1;
    if (p->cfg.launch.hosts[0])
        return bt_fail(err, BT_ARG, "--simulate is of hosts that are not here (leave --hosts out)");
    /* the simulation derives the checkpoint interval from the failure rate */
    p->cfg.ckpt.minutes = 0;
    p->cfg.ckpt.every = 0;
    BT_TRY(bt_train_init_from(p, err));
    /* the preset's vocabulary, unless text or tokenizer were given */
    if (bt_opts_given(&p->opts, "data.path") || bt_opts_given(&p->opts, "data.tokenizer")) {
        BT_TRY(bt_train_tokenizer(p, err));
        BT_TRY(bt_train_vocab(p, err));
        BT_TRY(bt_train_template(p, err));
        BT_TRY(bt_train_labels(p, err));
    }
    choose_simulated_batch(&s);
    BT_TRY(bt_kernels_select(p->cfg.launch.isa, err));
    s.rates = calloc(1, sizeof *s.rates);
    s.points = calloc(POINTS_MOST, sizeof *s.points);
    bt_code code = s.rates && s.points ? measure_simulation_rates(&s, err)
                                       : bt_fail(err, BT_NOMEM, "no memory for the simulation");
    if (code == BT_OK) code = evaluate_cluster_sizes(&s, err);
    if (code == BT_OK) code = check_full_size(&s.search, &s.points[s.n - 1], err);
    if (code == BT_OK) code = print_simulation(&s, err);
    free(s.rates);
    free(s.points);
    return code;
}

/* simulate.c - parses the description of a cluster, computes checkpoint intervals, and simulates one cluster size. */
#include "engine/plan/simulate.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/tables/metric.h"
#include "engine/plan/layout_why.h"

typedef struct unit {
    const char *name;
    double is;
} unit;

/* Plausible ranges of real hardware; a value outside of them probably has a wrong unit. */
static const double LINK_LEAST = 125, LINK_MOST = 1.25e14, LATENCY_MOST = 60, BYTES_LEAST = 1048576,
                    BYTES_MOST = 1152921504606846976.0, TIME_LEAST = 1, TIME_MOST = 3.2e10;

/* Parses a number with a unit that ends at `end` (NULL: at the end of the text). */
static bool read_amount(const char *text, const char *end, const unit *units, size_t n,
                        double *out) {
    char *after;
    double v = strtod(text, &after);
    if (after == text || !(v > 0) || !isfinite(v)) return false;
    size_t left = end ? (size_t)(end - after) : strlen(after);
    for (size_t i = 0; i < n; i++) {
        if (strlen(units[i].name) != left || strncmp(after, units[i].name, left) != 0) continue;
        *out = v * units[i].is;
        return true;
    }
    return false;
}

bt_code bt_sim_parse_hosts(const char *text, int *hosts, int *ranks_per_host, bt_err *err) {
    char *after;
    errno = 0;
    long h = strtol(text, &after, 10), r = 0;
    bool read = after != text && *after == 'x';
    if (read) {
        const char *second = after + 1;
        r = strtol(second, &after, 10);
        read = after != second && *after == '\0' && h > 0 && r > 0;
    }
    if (!read)
        return bt_fail(err, BT_ARG,
                       "--simulate '%.60s' is not of the form HOSTSxRANKS, hosts times ranks on "
                       "each, such as 64x8",
                       text);
    if (errno == ERANGE || r > BT_SIM_HOST_RANKS_MOST || h > BT_SIM_RANKS_MOST ||
        h * r > BT_SIM_RANKS_MOST)
        return bt_fail(err, BT_ARG,
                       "--simulate %.60s is too large: a job has at most %d ranks, and at most %d "
                       "on a host (use %ldx%ld)",
                       text, BT_SIM_RANKS_MOST, BT_SIM_HOST_RANKS_MOST,
                       BT_SIM_RANKS_MOST / (r > BT_SIM_HOST_RANKS_MOST ? 8 : r),
                       r > BT_SIM_HOST_RANKS_MOST ? 8 : r);
    *hosts = (int)h;
    *ranks_per_host = (int)r;
    return BT_OK;
}

bt_code bt_sim_parse_link(const char *text, const char *flag, double *bytes_per_s,
                          double *latency_s, bt_err *err) {
    static const unit rates[] = {{"kbit", 125}, {"Mbit", 125e3}, {"Gbit", 125e6}, {"Tbit", 125e9},
                                 {"kB", 1e3},   {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
    static const unit times[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
    const char *comma = strchr(text, ',');
    if (comma && read_amount(text, comma, rates, sizeof rates / sizeof *rates, bytes_per_s) &&
        read_amount(comma + 1, NULL, times, sizeof times / sizeof *times, latency_s)) {
        if (*bytes_per_s >= LINK_LEAST && *bytes_per_s <= LINK_MOST && *latency_s <= LATENCY_MOST)
            return BT_OK;
        return bt_fail(err, BT_ARG,
                       "%s '%.60s' is outside the possible range of a link (1 kbit to 1000 Tbit "
                       "per second, a latency of at most 60 s)",
                       flag, text);
    }
    return bt_fail(err, BT_ARG,
                   "%s '%.60s' is not of the form RATE,LATENCY of a host's link, such as "
                   "25Gbit,5us or 3GB,1ms",
                   flag, text);
}

bt_code bt_sim_parse_bytes(const char *text, const char *what, double *bytes, bt_err *err) {
    static const unit units[] = {
        {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0},
        {"MB", 1e6},        {"GB", 1e9},           {"TB", 1e12}};
    if (!read_amount(text, NULL, units, sizeof units / sizeof *units, bytes))
        return bt_fail(err, BT_ARG, "%s '%.60s' is not a size such as 64GiB", what, text);
    if (*bytes >= BYTES_LEAST && *bytes <= BYTES_MOST) return BT_OK;
    return bt_fail(err, BT_ARG,
                   "%s '%.60s' is outside the possible range of memory (1MiB to 1048576TiB)", what,
                   text);
}

bt_code bt_sim_parse_time(const char *text, const char *what, double *seconds, bt_err *err) {
    static const unit units[] = {{"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600}, {"d", 86400}};
    if (!read_amount(text, NULL, units, sizeof units / sizeof *units, seconds))
        return bt_fail(err, BT_ARG, "%s '%.60s' is not a time such as 90s, 30m, 8h or 2d", what,
                       text);
    if (*seconds >= TIME_LEAST && *seconds <= TIME_MOST) return BT_OK;
    return bt_fail(err, BT_ARG, "%s '%.60s' is outside the possible range (1s to 365000d)", what,
                   text);
}

double bt_goodput_at(double interval_s, double ckpt_s, double restart_s, double mtbf_s) {
    if (!(mtbf_s > 0)) return interval_s / (interval_s + ckpt_s);
    return interval_s / (mtbf_s * exp(restart_s / mtbf_s) * expm1((interval_s + ckpt_s) / mtbf_s));
}

bt_goodput bt_goodput_of(double ckpt_s, double restart_s, double mtbf_s) {
    bt_goodput g = {.frac = 1};
    if (!(mtbf_s > 0) || !(ckpt_s > 0)) return g;
    double x = ckpt_s / (2 * mtbf_s);
    g.young_s = sqrt(2 * ckpt_s * mtbf_s);
    g.daly_s = x < 1 ? g.young_s * (1 + sqrt(x) / 3 + x / 9) - ckpt_s : mtbf_s;
    g.frac = bt_goodput_at(g.daly_s, ckpt_s, restart_s, mtbf_s);
    return g;
}

static void put_refusal_reason(bt_sim_point *out, const bt_layouts *l) {
    bt_text text;
    bt_text_init(&text);
    bt_layout_why(l, &text);
    snprintf(out->why, sizeof out->why, "%s", bt_text_str(&text));
    bt_text_release(&text);
}

static void put_refusal(bt_sim_point *out, const bt_layouts *l, const bt_cluster *c) {
    char rank[32], host[32], have[32], lacks[32];
    const int here = bt_cluster_fullest(c);
    double need = (double)l->least_bytes * here;
    snprintf(out->refused, sizeof out->refused,
             "no layout of %d rank%s fits: the least is %s a rank, %s a host, which has %s (%s too "
             "little)",
             c->ranks, c->ranks == 1 ? "" : "s",
             bt_metric_format(rank, sizeof rank, (double)l->least_bytes, BT_UNIT_BYTES),
             bt_metric_format(host, sizeof host, need, BT_UNIT_BYTES),
             bt_metric_format(have, sizeof have, c->memory_bytes, BT_UNIT_BYTES),
             bt_metric_format(lacks, sizeof lacks, need - c->memory_bytes, BT_UNIT_BYTES));
}

/* A job with failures writes checkpoints at Daly's interval; their time is part of the goodput. */
static void apply_failures(bt_sim_point *out, const bt_cluster *c) {
    double ckpt = out->layout.time.ckpt_s;
    out->mtbf_s = c->mtbf_s > 0 ? c->mtbf_s / out->hosts : 0;
    out->restart_s = BT_SIM_LAUNCH_S + ckpt;
    out->goodput = bt_goodput_of(ckpt, out->restart_s, out->mtbf_s);
    out->tokens_per_s = out->layout.time.tokens_per_s * out->goodput.frac;
}

bt_code bt_sim_point_of(bt_sim_point *out, const bt_layout_search *search, const bt_rates *r,
                        bt_err *err) {
    bt_layouts l = {0};
    bt_layout_search s =
        *search; /* the layout is chosen as if all ranks were equally fast; stragglers are added afterwards */
    bt_err trouble = BT_ERR_INIT;
    bt_run_cfg *cfg = malloc(sizeof *cfg);
    if (!cfg) return bt_fail(err, BT_NOMEM, "cannot allocate memory for the settings");
    s.cluster.straggler_frac = 0;
    *out = (bt_sim_point){.ranks = s.cluster.ranks, .hosts = bt_cluster_hosts(&s.cluster)};
    bt_code code = bt_layouts_find(&l, &s, &trouble);
    if (code == BT_ARG) {
        snprintf(out->refused, sizeof out->refused, "%.230s", trouble.msg);
        code = BT_OK;
    } else if (code == BT_OK && l.fitting == 0) {
        put_refusal(out, &l, &s.cluster);
    } else if (code == BT_OK) {
        out->legal = l.n;
        out->fitting = l.fitting;
        code = bt_layouts_predict(&l, &s, r, err);
        if (code == BT_OK) code = bt_layout_settings(&s, &l.at[0], cfg, err);
        out->layout = l.at[0];
        if (code == BT_OK) put_refusal_reason(out, &l);
        if (code == BT_OK && search->cluster.straggler_frac > 0)
            code = bt_time_predict(cfg, r, &search->cluster, &out->layout.time, err);
        if (code == BT_OK) apply_failures(out, &search->cluster);
    } else if (err) {
        *err = trouble;
    }
    bt_layouts_release(&l);
    free(cfg);
    return code;
}

/* layout_remedy.c - searches for larger clusters, and for fewer ranks per host, on which a layout fits. */
#include "engine/plan/layout_remedy.h"

#include <stdlib.h>

#include "engine/base/tables/metric.h"
#include "engine/model/net/model.h"
#include "engine/plan/simulate.h"

/* The search stops if twice as many hosts do not reduce a rank's least memory to this share. */
static const double HELPS = 0.97;

/* Restricts the search to the layouts with the least memory: one sequence per micro-batch, full recomputation, one
 * chunk of layers per stage, unless the user has set them. */
static void restrict_to_least_memory(bt_layout_search *s, bt_run_cfg *cfg) {
    *cfg = *s->cfg;
    if (s->may.micro_batch) cfg->train.micro_batch = 1;
    if (s->may.recompute) cfg->train.recompute = BT_RECOMPUTE_FULL;
    if (s->may.virtual_stages) cfg->parallel.virtual_stages = 1;
    s->may.micro_batch = s->may.recompute = s->may.virtual_stages = false;
    s->cfg = cfg;
}

/* Returns true if a layout on these hosts and ranks fits. *least: bytes of a rank; 0 if no layout is legal. */
static bool fits_on_hosts(const bt_layout_search *s, int hosts, int ranks_per_host, double *least) {
    bt_err why = BT_ERR_INIT;
    bt_layouts l = {0};
    bt_layout_search other = *s;
    other.cluster.ranks = hosts * ranks_per_host;
    other.cluster.ranks_per_host = ranks_per_host;
    other.cluster.hosts = 0; /* all hosts have equally many ranks */
    const bool found = bt_layouts_find(&l, &other, &why) == BT_OK && l.fitting > 0;
    *least = (double)l.least_bytes;
    bt_layouts_release(&l);
    return found;
}

static void put_remedies(const bt_layout_search *s, bt_text *out) {
    const bt_cluster *c = &s->cluster;
    const int each = bt_cluster_fullest(c), hosts = bt_cluster_hosts(c);
    double least = 0, ignored = 0;
    char bytes[32];
    const char *between = "";
    (void)fits_on_hosts(s, hosts, each, &least);
    int more = hosts;
    bool found = false;
    double before = least * 2;
    for (double now = least; !found && now > 0 && now < HELPS * before;) {
        more *= 2;
        before = now;
        if (more > BT_SIM_RANKS_MOST / each) break;
        found = fits_on_hosts(s, more, each, &now);
    }
    if (found) {
        bt_text_printf(out, "%d hosts of %d rank%s", more, each, each == 1 ? "" : "s");
        between = ", ";
    }
    int fewer = each;
    for (found = false; fewer > 1 && !found;) {
        fewer /= 2;
        found = fits_on_hosts(s, hosts, fewer, &ignored);
    }
    if (found) {
        bt_text_printf(out, "%s%d rank%s on %s%d host%s", between, fewer, fewer == 1 ? "" : "s",
                       hosts == 1 ? "the " : "each of the ", hosts, hosts == 1 ? "" : "s");
        between = ", ";
    }
    if (least > 0)
        bt_text_printf(out, "%s%shosts with %s", between, between[0] ? "or " : "",
                       bt_metric_format(bytes, sizeof bytes, least * each, BT_UNIT_BYTES));
}

void bt_layout_remedies(const bt_layout_search *s, bt_text *out) {
    bt_layout_search least = *s;
    bt_run_cfg *cfg = malloc(sizeof *cfg);
    if (!cfg) {
        out->failed = true;
        return;
    }
    restrict_to_least_memory(&least, cfg);
    put_remedies(&least, out);
    free(cfg);
}

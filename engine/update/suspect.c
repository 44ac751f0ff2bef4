/* suspect.c - rank 0 writes and reads suspect.json. */
#include "engine/update/suspect.h"

#include <float.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const double FAR = 10;

static bool suspect_path(char *out, size_t size, const char *dir) {
    return dir[0] && snprintf(out, size, "%s/suspect.json", dir) < (int)size;
}

/* Hashes cover the part of a rank, which depends on the mesh. */
static void layout_of(char out[64], const bt_mesh *m) {
    snprintf(out, 64, "%dx%dx%dx%d", m->shape.pp, m->shape.dp_replicate, m->shape.dp_shard,
             m->shape.tp);
}

void bt_suspect_write(const char *dir, const bt_mesh *mesh, const bt_suspect *s) {
    char path[PATH_MAX], layout[64];
    const bt_replica_blame *b = &s->blame;
    if (!suspect_path(path, sizeof path, dir)) return;
    layout_of(layout, mesh);
    json_t *ranks = json_array();
    for (int i = 0; i < 2; i++)
        json_array_append_new(ranks,
                              json_pack("{s:i, s:s, s:f}", "rank", b->rank[i], "host", b->host[i],
                                        "value", isfinite(b->value[i]) ? b->value[i] : DBL_MAX));
    json_t *all = json_pack("{s:I, s:s, s:s, s:I, s:o}", "step", (json_int_t)s->step, "layout",
                            layout, "tensor", b->tensor, "element", (json_int_t)b->element, "ranks",
                            ranks);
    if (json_dump_file(all, path, JSON_INDENT(1)) != 0) unlink(path);
    json_decref(all);
}

static bool parse_suspect(const json_t *all, const char *layout, bt_suspect *out) {
    const char *of = "", *tensor = "";
    json_int_t step = -1, element = -1;
    const json_t *ranks = NULL;
    if (json_unpack((json_t *)(uintptr_t)all, "{s:I, s:s, s:s, s:I, s:o}", "step", &step, "layout",
                    &of, "tensor", &tensor, "element", &element, "ranks", &ranks) != 0 ||
        strcmp(of, layout) != 0 || json_array_size(ranks) != 2 || element < 0)
        return false;
    for (size_t i = 0; i < 2; i++) {
        const char *host = "";
        if (json_unpack(json_array_get(ranks, i), "{s:i, s:s, s:F}", "rank", &out->blame.rank[i],
                        "host", &host, "value", &out->blame.value[i]) != 0)
            return false;
        snprintf(out->blame.host[i], sizeof out->blame.host[i], "%s", host);
    }
    out->blame.element = (int64_t)element;
    snprintf(out->blame.tensor, sizeof out->blame.tensor, "%s", tensor);
    out->step = (int64_t)step;
    return true;
}

bt_code bt_suspect_read(const char *dir, const bt_mesh *mesh, int64_t at_step, bt_suspect *out,
                        bt_err *err) {
    char path[PATH_MAX], layout[64];
    *out = (bt_suspect){.step = -1};
    if (bt_comm_rank(mesh->world) == 0 && suspect_path(path, sizeof path, dir)) {
        json_t *all = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
        layout_of(layout, mesh);
        if (!parse_suspect(all, layout, out) || out->step <= at_step) out->step = -1;
        if (out->step < 0) unlink(path);
        json_decref(all);
    }
    return bt_broadcast(mesh->world, out, sizeof *out, 0, err);
}

bt_code bt_suspect_resolve(const char *dir, bt_suspect *s, const bt_replica_check *c, int *which,
                           bt_err *err) {
    const bt_mesh *mesh = c->update->mesh;
    char path[PATH_MAX];
    const bt_replica_blame *b = &s->blame;
    double far[2] = {0, 0};
    const bt_model *m = c->update->model;
    if (b->rank[0] == bt_comm_rank(mesh->world) && b->element < (int64_t)bt_model_params(m)->total)
        for (int i = 0; i < 2; i++)
            far[i] = fabs(b->value[i] - (double)bt_model_weight_at(m, (size_t)b->element));
    BT_TRY(bt_all_reduce_f64(mesh->world, far, 2, BT_MAX, err));
    *which = far[0] > FAR * far[1] ? 0 : far[1] > FAR * far[0] ? 1 : -1;
    s->step = -1;
    if (bt_comm_rank(mesh->world) == 0 && suspect_path(path, sizeof path, dir)) unlink(path);
    return BT_OK;
}

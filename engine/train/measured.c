/* measured.c - measures, or reads what an attempt before measured, and hands it to all ranks. */
#include "engine/train/measured.h"

#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/base/log.h"
#include "engine/base/threads.h"
#include "engine/bench/peak.h"
#include "engine/train/trainer_impl.h"

#define FILE_MAGIC "BTMEAS01"

typedef struct kept {
    char magic[8];
    uint64_t place;
    bt_measured what;
    uint64_t self_hash; /* XXH3-64 of what precedes */
} kept;

static bool path_of(const char *dir, const char *name, char out[PATH_MAX]) {
    return dir && dir[0] && snprintf(out, PATH_MAX, "%s/%s", dir, name) < PATH_MAX;
}

static uint64_t hash_of(const kept *k) { return XXH3_64bits(k, offsetof(kept, self_hash)); }

bool bt_measured_read(bt_measured *m, const char *dir, uint64_t place) {
    char path[PATH_MAX];
    kept k;
    if (!path_of(dir, "measured", path)) return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    ssize_t n = read(fd, &k, sizeof k);
    close(fd);
    if (n != (ssize_t)sizeof k || memcmp(k.magic, FILE_MAGIC, sizeof k.magic) != 0 ||
        k.place != place || k.self_hash != hash_of(&k))
        return false;
    *m = k.what;
    return true;
}

void bt_measured_write(const bt_measured *m, const char *dir, uint64_t place) {
    char path[PATH_MAX], fresh[PATH_MAX];
    kept k;
    if (!path_of(dir, "measured", path) || !path_of(dir, "measured.new", fresh)) return;
    memset(&k, 0, sizeof k); /* the padding is hashed */
    memcpy(k.magic, FILE_MAGIC, sizeof k.magic);
    k.place = place;
    memcpy(&k.what, m, sizeof *m);
    k.self_hash = hash_of(&k);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && write(fd, &k, sizeof k) == (ssize_t)sizeof k;
    if (fd >= 0) close(fd);
    if (ok && rename(fresh, path) == 0) return;
    unlink(fresh);
    bt_log(BT_LOG_DEBUG, "what was measured could not be kept in '%s'", path);
}

/* of every rank's host, threads, kernels and place in the mesh; the same on all ranks */
static bt_code fingerprint(const bt_trainer *t, uint64_t *out, bt_err *err) {
    char here[512], host[BT_HOST_MAX] = "";
    const bt_mesh_coord *me = &t->mesh.me;
    gethostname(host, sizeof host - 1);
    int n = snprintf(here, sizeof here, "%d/%d %s %d %s %d %d %d %d", bt_comm_rank(t->mesh.world),
                     bt_comm_size(t->mesh.world), host, bt_threads_count(), bt_kernels_isa(),
                     me->pp, me->dp_replicate, me->dp_shard, me->tp);
    /* half the bits: the sum over any number of ranks fits */
    int64_t sum = (int64_t)(XXH3_64bits(here, (size_t)n) >> 32);
    bt_code code = bt_all_reduce_i64(t->mesh.world, &sum, 1, BT_SUM, err);
    *out = (uint64_t)sum;
    return code;
}

static bt_code measure(bt_trainer *t, bt_measured *m, bool peak, bt_err *err) {
    memset(m, 0, sizeof *m);
    m->attempt = t->number;
    BT_TRY(bt_observer_links(t->observer, err));
    for (int a = 0; a < BT_AXIS_COUNT; a++)
        m->links[a] = *bt_observer_link(t->observer, (bt_axis)a);
    m->peak_flops = peak ? bt_peak_flops(bt_threads_count()) : 0;
    return bt_all_reduce_f64(t->mesh.world, &m->peak_flops, 1, BT_SUM, err);
}

bt_code bt_trainer_measure(bt_trainer *t, const char *dir, bool peak, bt_err *err) {
    struct {
        bt_measured what;
        int64_t found;
    } all;
    uint64_t place;
    const bool first = bt_comm_rank(t->mesh.world) == 0;
    memset(&all, 0, sizeof all);
    BT_TRY(fingerprint(t, &place, err));
    if (first) all.found = bt_measured_read(&all.what, dir, place);
    BT_TRY(bt_broadcast(t->mesh.world, &all, sizeof all, 0, err));
    if (all.found)
        bt_observer_set_links(t->observer, all.what.links);
    else {
        BT_TRY(measure(t, &all.what, peak, err));
        if (first) bt_measured_write(&all.what, dir, place);
    }
    t->measured_by = all.what.attempt;
    t->telemetry.peak_flops = all.what.peak_flops;
    return BT_OK;
}

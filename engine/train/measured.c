/* measured.c - measures, or reads the values of an earlier attempt, and distributes them to all ranks. */
#include "engine/train/measured.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/base/log.h"
#include "engine/base/os/processors.h"
#include "engine/base/threads.h"
#include "engine/bench/peak.h"
#include "engine/kernels/table/cpu.h"
#include "engine/observe/meter.h"
#include "engine/train/trainer_impl.h"

#define FILE_MAGIC "BTMEAS02"

typedef struct kept {
    char magic[8];
    uint64_t place;
    bt_measured what;
    uint64_t self_hash; /* XXH3-64 of the fields above */
} kept;

static bool measured_path(const char *dir, const char *name, char out[PATH_MAX]) {
    return dir && dir[0] && snprintf(out, PATH_MAX, "%s/%s", dir, name) < PATH_MAX;
}

static uint64_t kept_hash(const kept *k) { return XXH3_64bits(k, offsetof(kept, self_hash)); }

bool bt_measured_read(bt_measured *m, const char *dir, uint64_t place) {
    char path[PATH_MAX];
    kept k;
    if (!measured_path(dir, "measured", path)) return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    ssize_t n = read(fd, &k, sizeof k);
    close(fd);
    if (n != (ssize_t)sizeof k || memcmp(k.magic, FILE_MAGIC, sizeof k.magic) != 0 ||
        k.place != place || k.self_hash != kept_hash(&k))
        return false;
    *m = k.what;
    return true;
}

void bt_measured_write(const bt_measured *m, const char *dir, uint64_t place) {
    char path[PATH_MAX], fresh[PATH_MAX];
    kept k;
    if (!measured_path(dir, "measured", path) || !measured_path(dir, "measured.new", fresh)) return;
    memset(&k, 0, sizeof k); /* the padding is hashed */
    memcpy(k.magic, FILE_MAGIC, sizeof k.magic);
    k.place = place;
    memcpy(&k.what, m, sizeof *m);
    k.self_hash = kept_hash(&k);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && write(fd, &k, sizeof k) == (ssize_t)sizeof k;
    if (fd >= 0) close(fd);
    if (ok && rename(fresh, path) == 0) return;
    unlink(fresh);
    bt_log(BT_LOG_DEBUG, "the measurements could not be stored in '%s'", path);
}

/* Hash over all ranks of host, threads, kernels and coordinates; equal on all ranks. */
static bt_code job_fingerprint(const bt_trainer *t, uint64_t *out, bt_err *err) {
    char here[512], host[BT_HOST_MAX] = "";
    const bt_mesh_coord *me = &t->mesh.me;
    gethostname(host, sizeof host - 1);
    int n = snprintf(here, sizeof here, "%d/%d %s %d %s %d %d %d %d", bt_comm_rank(t->mesh.world),
                     bt_comm_size(t->mesh.world), host, bt_threads_count(), bt_kernels_isa(),
                     me->pp, me->dp_replicate, me->dp_shard, me->tp);
    /* Half of the bits are used, so that the sum over ranks does not overflow. */
    int64_t sum = (int64_t)(XXH3_64bits(here, (size_t)n) >> 32);
    bt_code code = bt_all_reduce_i64(t->mesh.world, &sum, 1, BT_SUM, err);
    *out = (uint64_t)sum;
    return code;
}

/* Number of cores that the threads of a group can use, divided by the number on which its ranks were measured. A
 * rank's best burst may have occurred while other ranks on its cores waited. */
static double usable_cores(const bt_peak_part *all, size_t n, const bt_peak_part *of) {
    double wanted = 0;
    for (size_t i = 0; i < n; i++)
        if (all[i].host == of->host && all[i].cpus == of->cpus)
            wanted += all[i].threads < all[i].cores ? all[i].threads : all[i].cores;
    return wanted > of->cores ? of->cores / wanted : 1;
}

double bt_measured_peak(const bt_peak_part *all, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += all[i].flops * usable_cores(all, n, &all[i]);
    return sum;
}

static bt_code peak_of_all(bt_comm *world, double *out, bt_err *err) {
    cpu_set_t cpus;
    const size_t n = (size_t)bt_comm_size(world);
    (void)bt_processors_allowed(&cpus);
    bt_peak_part mine, *all = calloc(n, sizeof *all);
    memset(&mine, 0, sizeof mine);
    mine.flops = bt_peak_flops(bt_threads_count());
    mine.cpus = XXH3_64bits(&cpus, sizeof cpus);
    mine.host = bt_comm_host(bt_comm_rank(world));
    mine.cores = bt_cpu_get()->cores;
    mine.threads = bt_threads_count();
    bt_code code = bt_agree(world, all ? BT_OK : bt_fail(err, BT_NOMEM, "no memory to measure"),
                            err);
    if (code == BT_OK) code = bt_all_gather(world, &mine, sizeof mine, all, err);
    if (code == BT_OK) *out = bt_measured_peak(all, n);
    free(all);
    return code;
}

/* load of the busiest host */
static bt_code load_of_all(bt_comm *world, double *out, bt_err *err) {
    double load = bt_machine_load_of_others();
    if (isnan(load)) load = -1;
    BT_TRY(bt_all_reduce_f64(world, &load, 1, BT_MAX, err));
    *out = load < 0 ? NAN : load;
    return BT_OK;
}

static bt_code measure_or_restore(bt_trainer *t, bt_measured *m, bool peak, bt_err *err) {
    memset(m, 0, sizeof *m);
    m->attempt = t->attempt.number;
    m->load = NAN;
    if (peak) BT_TRY(load_of_all(t->mesh.world, &m->load, err));
    BT_TRY(bt_observer_links(t->observer, err));
    for (int a = 0; a < BT_AXIS_COUNT; a++)
        m->links[a] = *bt_observer_link(t->observer, (bt_axis)a);
    return peak ? peak_of_all(t->mesh.world, &m->peak_flops, err) : BT_OK;
}

bt_code bt_trainer_measure(bt_trainer *t, const char *dir, bool peak, bt_err *err) {
    struct {
        bt_measured what;
        int64_t found;
    } all;
    uint64_t place;
    const bool first = bt_comm_rank(t->mesh.world) == 0;
    memset(&all, 0, sizeof all);
    BT_TRY(job_fingerprint(t, &place, err));
    if (first) all.found = bt_measured_read(&all.what, dir, place);
    BT_TRY(bt_broadcast(t->mesh.world, &all, sizeof all, 0, err));
    if (all.found)
        bt_observer_set_links(t->observer, all.what.links);
    else {
        BT_TRY(measure_or_restore(t, &all.what, peak, err));
        if (first) bt_measured_write(&all.what, dir, place);
    }
    t->attempt.measured_by = all.what.attempt;
    t->attempt.measured_load = all.what.load;
    t->telemetry.peak_flops = all.what.peak_flops;
    return BT_OK;
}

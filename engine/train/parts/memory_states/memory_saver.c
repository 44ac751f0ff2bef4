/* memory_saver.c - opens, paces and writes the states in shared memory. */
#include "engine/train/parts/memory_states/memory_saver.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/clock.h"
#include "engine/train/trainer_impl.h"

/* Maximum share of the time for copies. It is smaller if a step takes SLOW_S or more, because a restart itself costs
 * part of such a step, and two steps are soon repeated. */
static const double SHARE = 0.02, SHARE_SLOW = 0.005, SLOW_S = 0.5, FORGET = 0.0625;
enum { LONGEST = 1000 };

static int64_t slices_bytes(const bt_slices *l) {
    int64_t sum = 0;
    for (size_t i = 0; i < l->n; i++)
        sum += (int64_t)(l->at[i].count * bt_ckpt_type_bytes(l->at[i].type));
    return sum;
}

/* Determines the slices that this rank keeps. spread: the ranks of rank 0's host do not hold the whole state. */
static bt_code slices_here(bt_trainer *t, bt_slices *mine, bool *spread, bt_err *err) {
    bt_slices all = {0};
    bt_comm *world = t->mesh.world;
    bt_code code = bt_state_slices(&t->saver.state, BT_STATE_SAVE_HOST, mine, err);
    if (code == BT_OK) code = bt_state_slices(&t->saver.state, BT_STATE_SAVE, &all, err);
    const bool here = bt_memory_is_here(bt_comm_rank(world));
    int64_t lacks = slices_bytes(&all) - (here ? slices_bytes(mine) : 0);
    code = bt_agree(world, code, err);
    *spread = false;
    if (code == BT_OK && !bt_memory_all_here(world)) {
        code = bt_all_reduce_i64(world, &lacks, 1, BT_SUM, err);
        *spread = lacks != 0;
    }
    if (code == BT_OK && *spread) {
        bt_slices_release(mine);
        *mine = all;
        return BT_OK;
    }
    bt_slices_release(&all);
    return code;
}

/* Estimated duration of the first copy to another host over the slowest measured link; 0 if no link was measured. */
static double copy_time(bt_trainer *t, const bt_slices *mine) {
    double rate = 0;
    for (int a = 0; a < BT_AXIS_COUNT; a++) {
        const double r = bt_observer_link(t->observer, (bt_axis)a)->bytes_per_s;
        if (r > 0 && (!(rate > 0) || r < rate)) rate = r;
    }
    return rate > 0 ? (double)slices_bytes(mine) / rate : 0;
}

/* Selects the ranks that write, and creates their folder on other hosts. */
static bt_code prepare_memory_ranks(bt_memory_saver *m, bt_trainer *t, bool here, bt_err *err) {
    const char *dir = t->attempt.memory_dir;
    bt_comm *world = t->mesh.world;
    if (bt_memory_all_here(world)) return BT_OK;
    if (m->spread) return bt_agree(world, here ? BT_OK : bt_memory_dir_make(dir, err), err);
    return bt_agree(world, bt_comm_split(&m->here, world, here, bt_comm_rank(world), err), err);
}

static void stop_saving(bt_trainer *t, const bt_err *why) {
    t->attempt.memory_states = false;
    snprintf(t->attempt.no_memory_states, sizeof t->attempt.no_memory_states, "%.190s", why->msg);
}

bt_code bt_memory_saver_open(bt_memory_saver *m, bt_trainer *t, const bt_memory_id *begun_from,
                             bt_err *err) {
    const char *dir = t->attempt.memory_dir;
    bt_comm *world = t->mesh.world;
    bt_slices mine = {0};
    bt_err why = BT_ERR_INIT;
    m->every = 1;
    if (!t->attempt.memory_states) return BT_OK;
    bt_code code = slices_here(t, &mine, &m->spread, err);
    if (code != BT_OK) {
        bt_slices_release(&mine);
        return code;
    }
    const bool here = bt_memory_is_here(bt_comm_rank(world));
    code = prepare_memory_ranks(m, t, here, &why);
    const bt_memory_cfg cfg = {.dir = dir,
                               .world = m->here ? m->here : world,
                               .slices = mine.at,
                               .n = mine.n,
                               .attempt = t->saver.attempt,
                               .spread = m->spread,
                               .begun_from = begun_from};
    if (code == BT_OK && (here || m->spread)) code = bt_memory_state_open(&m->to, &cfg, &why);
    if (m->spread && m->copies == 0) m->copy_s = copy_time(t, &mine);
    bt_slices_release(&mine);
    if (code != BT_OK) stop_saving(t, &why);
    return BT_OK;
}

void bt_memory_saver_close(bt_memory_saver *m) {
    bt_memory_state_close(m->to);
    m->to = NULL;
    bt_comm_free(m->here);
    m->here = NULL;
    bt_ckpt_meta_release(&m->meta);
}

int64_t bt_memory_saver_interval(const bt_memory_saver *m, double step_s) {
    if (!m->to || !(m->copy_s > 0)) return 1;
    if (!(step_s > 0)) return m->copies > 0 ? 1 : LONGEST;
    const double k = ceil(m->copy_s / ((step_s < SLOW_S ? SHARE : SHARE_SLOW) * step_s));
    return k < 1 ? 1 : k > LONGEST ? LONGEST : (int64_t)k;
}

bt_code bt_memory_saver_write(bt_memory_saver *m, bt_trainer *t, bt_err *err) {
    const int64_t began = bt_now_ns();
    bt_text_clear(&m->meta.state);
    bt_saver_identify(&t->saver, &m->meta);
    BT_TRY(bt_state_save_values(&t->saver.state, &m->meta.state, err));
    bt_err why = BT_ERR_INIT;
    m->all_written = false;
    const bt_code code = bt_memory_state_write(m->to, &m->meta, t->saver.saved_ns, &why);
    if (code == BT_MPI) return bt_fail(err, code, "%s", why.msg);
    if (code != BT_OK) {
        /* All ranks receive the same error here, so all of them stop keeping states. */
        bt_telemetry_event(&t->telemetry, BT_EVENT_CHECKPOINT_FAILED, t->at.step - 1, NULL,
                           "no state is kept in memory from step %" PRId64
                           " on, training and checkpoints continue: %s",
                           t->at.step, why.msg);
        stop_saving(t, &why);
        bt_memory_saver_close(m);
        return BT_OK;
    }
    const double took = (double)(bt_now_ns() - began) / 1e9;
    /* Other work probably delayed a slow copy, so it has little weight. */
    m->copy_s = m->copies++ == 0 || took < m->copy_s ? took
                                                     : m->copy_s + FORGET * (took - m->copy_s);
    BT_TRY(bt_telemetry_poll(&t->telemetry,
                             err)); /* the messages of other ranks have had time to arrive */
    bt_memory_saver_publish(m, t);
    return BT_OK;
}

void bt_memory_saver_publish(bt_memory_saver *m, bt_trainer *t) {
    /* Rank 0's part becomes valid only after the step's record and the parts of other hosts are complete. */
    const bool waits = t->telemetry.pending || (m->spread && !m->all_written);
    if (!m->to || (waits && bt_comm_rank(t->mesh.world) == 0)) return;
    bt_memory_state_publish(m->to);
}

void bt_memory_saver_synchronised(bt_memory_saver *m, bt_trainer *t) {
    m->all_written = true;
    if (m->spread) bt_memory_saver_publish(m, t);
}

void bt_memory_saver_forget(const bt_memory_saver *m, bt_trainer *t) {
    if (!m->to || !m->spread || bt_comm_local_rank() != 0) return;
    bt_memory_state_drop(t->attempt.memory_dir);
    bt_memory_dir_remove(t->attempt.memory_dir);
}

/* train_plan.c - `bitrain train --dry-run`: prints work, layout, memory of each rank, passes over the data and
 * expected time without starting a job. The dry run refuses the same settings as `train`. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "cli/train/print_config.h"
#include "cli/train/train_parts.h"
#include "engine/base/tables/metric.h"
#include "engine/ckpt/ckpt.h"
#include "engine/config/rank_setup.h"
#include "engine/config/tune_cfg.h"
#include "engine/kernels/table/kernels.h"
#include "engine/model/net/model.h"
#include "engine/plan/plan.h"
#include "monitor/job/launch/host_file.h"
#include "monitor/job/launch/launch.h"

typedef struct rank_plan {
    bt_mesh_coord at;
    bt_arena_row rows[BT_PLAN_MAX];
    size_t n, bytes;
} rank_plan;

static rank_plan plan_rank(const bt_run_cfg *cfg, const bt_mesh_shape *mesh, int rank) {
    rank_plan r = {.at = bt_mesh_coord_of(mesh, rank)};
    r.n = bt_plan_memory(cfg, rank, bt_parts_memory, r.rows);
    for (size_t i = 0; i < r.n; i++) r.bytes += r.rows[i].bytes;
    return r;
}

static bool has_same_bytes(const rank_plan *a, const rank_plan *b) {
    bool same = a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++) same = a->rows[i].bytes == b->rows[i].bytes;
    return same;
}

/* ---- disk ------------------------------------------------------------------------------------ */

/* Returns the size of a checkpoint, from the size of the state copies that ranks write; 0 if they make no copy. */
static double planned_checkpoint_bytes(const bt_run_cfg *cfg, const bt_mesh_shape *mesh,
                                       int ranks) {
    double sum = 0;
    for (int r = 0; r < ranks; r++) {
        const rank_plan plan = plan_rank(cfg, mesh, r);
        for (size_t i = 0; i < plan.n; i++)
            if (strcmp(plan.rows[i].name, "checkpoint") == 0) sum += (double)plan.rows[i].bytes;
    }
    return sum;
}

/* Returns the free bytes of the file system of `out`; NaN: unknown. */
static double free_disk_bytes(const char *out) {
    char path[PATH_MAX];
    struct statvfs v;
    (void)snprintf(path, sizeof path, "%s", out);
    while (statvfs(path, &v) != 0) {
        char *slash = strrchr(path, '/');
        if (!slash || slash == path) return NAN;
        *slash = '\0';
    }
    return (double)v.f_bavail * (double)v.f_frsize;
}

static void print_disk(const bt_train_plan *p, const bt_run_cfg *cfg, const bt_mesh_shape *mesh) {
    char one[32], all[32], left[32];
    const double bytes = planned_checkpoint_bytes(cfg, mesh, p->ranks),
                 room = free_disk_bytes(p->out), wanted = (double)(cfg->ckpt.keep + 1) * bytes;
    /* A resumed run already has checkpoints, and other hosts have other disks. */
    if (p->resume || cfg->launch.hosts[0] || !(bytes > 0) || !isfinite(room)) return;
    printf("disk       a checkpoint takes %s, the %" PRId64
           " that are kept and a new one %s; '%s' has %s free%s\n",
           bt_metric_format(one, sizeof one, bytes, BT_UNIT_BYTES), cfg->ckpt.keep,
           bt_metric_format(all, sizeof all, wanted, BT_UNIT_BYTES), p->out,
           bt_metric_format(left, sizeof left, room, BT_UNIT_BYTES),
           room < bytes    ? ": none can be saved there (another --out)"
           : room < wanted ? ": older ones are removed for newer ones (another --out keeps them)"
                           : "");
}

/* ---- text ------------------------------------------------------------------------------------ */

static double planned_epochs(const bt_train_plan *p, const bt_train_data *data) {
    return data->seen && data->epoch_tokens > 0
               ? (double)bt_run_cfg_tokens(&p->cfg) / (double)data->epoch_tokens
               : NAN;
}

/* Writes for example ", 1.20 k of them learned"; "" if all are learned. */
static const char *learned_share_text(char *buf, size_t size, int64_t counted, const char *what) {
    char many[32];
    buf[0] = '\0';
    if (counted >= 0)
        snprintf(buf, size, ", %s of them %s",
                 bt_metric_format(many, sizeof many, (double)counted, BT_UNIT_COUNT), what);
    return buf;
}

static void print_data(const bt_train_plan *p, const bt_train_data *data) {
    char buf[32], part[64];
    if (!data->seen)
        printf("data       on the hosts of '%s': not read\n", p->cfg.launch.hosts);
    else if (data->tokens < 0)
        printf("data       endless\n");
    else {
        const double times = planned_epochs(p, data);
        printf("data       %s tokens to train on%s: %.3g epoch%s",
               bt_metric_format(buf, sizeof buf, (double)data->tokens, BT_UNIT_COUNT),
               learned_share_text(part, sizeof part, data->counted, "learned"), times,
               fabs(times - 1) < 5e-4 ? "" : "s");
        if (data->val_tokens > 0)
            printf("; %s to validate with%s",
                   bt_metric_format(buf, sizeof buf, (double)data->val_tokens, BT_UNIT_COUNT),
                   learned_share_text(part, sizeof part, data->val_counted, "counted"));
        printf("\n");
    }
}

/* Time of the remaining steps, and its source. */
typedef struct work_time {
    bt_train_time time;
    bool has_rates;
    bt_text rates; /* file of the rates, or the reason for which the rates are not used */
} work_time;

static void predict_work_time(const bt_train_plan *p, work_time *t) {
    bt_prediction predicted;
    bt_trial_rate tried;
    bt_text_init(&t->rates);
    t->has_rates = bt_train_predict(p, &predicted, &tried, &t->rates);
    bt_train_time_of(p, t->has_rates ? predicted.step.step_s : NAN, &tried, &t->time);
}

double bt_train_seconds(const bt_train_plan *p) {
    work_time t;
    predict_work_time(p, &t);
    bt_text_release(&t.rates);
    return t.time.seconds;
}

/* Prints the command `bitrain plan` for the same settings, whose rates this plan uses. */
static void print_plan_command(const bt_train_plan *p) {
    static const char dry[] = " --dry-run", train[] = "bitrain train";
    const char *words = bt_text_str(&p->argv), *cut = strstr(words, dry);
    if (p->resume || strncmp(words, train, strlen(train)) != 0) {
        printf("bitrain plan --preset %s --ranks %d\n", p->cfg.model.preset, p->ranks);
        return;
    }
    words += strlen(train);
    printf("bitrain plan%.*s%s\n", cut ? (int)(cut - words) : (int)strlen(words), words,
           cut ? cut + strlen(dry) : "");
}

static void print_time(const bt_train_plan *p) {
    work_time t;
    bt_text line;
    predict_work_time(p, &t);
    bt_text_init(&line);
    bt_train_time_put(&t.time, p->cfg.train.steps - p->from.step,
                      t.has_rates ? bt_text_str(&t.rates) : "", &line);
    fputs(bt_text_str(&line), stdout);
    bt_text_release(&line);
    if (t.time.source == BT_TIME_UNKNOWN)
        printf("time       not known yet: no run of such a size on %d rank%s x %" PRId64
               " is recorded here; to measure the speed: bitrain bench train --preset %s --ranks "
               "%d\n",
               p->ranks, p->ranks == 1 ? "" : "s", p->cfg.launch.threads, p->cfg.model.preset,
               p->ranks);
    if (!t.has_rates) {
        fputs(bt_text_str(&t.rates), stdout); /* printed on a separate line */
        printf("prediction none: the planner has no rates of this machine for %d rank%s x %" PRId64
               "; to measure them: ",
               p->ranks, p->ranks == 1 ? "" : "s", p->cfg.launch.threads);
        print_plan_command(p);
    }
    bt_text_release(&t.rates);
}

static void print_work(const bt_train_plan *p, const bt_mesh_shape *mesh) {
    bt_model_cfg m;
    char buf[32];
    bt_run_cfg_model(&p->cfg, &m);
    const bt_model_counts counts = bt_tune_count(&p->cfg);
    printf("run        %s in '%s', metrics in '%s'\n", bt_text_shown(p->run), bt_text_shown(p->out),
           bt_text_shown(p->store));
    printf("model      %s: %d layers, width %d, %d heads (%d kv) of %d, feed-forward %d, sequences "
           "of %d, vocabulary %d (%s): %s parameters\n",
           p->cfg.model.preset, m.L, m.C, m.H, m.KV, m.D, m.F, m.T, m.V,
           bt_train_setting_where(p, "model.vocab"),
           bt_metric_format(buf, sizeof buf, (double)counts.params, BT_UNIT_COUNT));
    if (counts.adapters)
        printf("training   %s parameters of adapters; those of the model do not change\n",
               bt_metric_format(buf, sizeof buf, (double)counts.adapters, BT_UNIT_COUNT));
    printf("work       %" PRId64 " steps of %" PRId64 " tokens: %s", p->cfg.train.steps,
           p->cfg.train.batch_tokens,
           bt_metric_format(buf, sizeof buf, (double)bt_run_cfg_tokens(&p->cfg), BT_UNIT_COUNT));
    bt_metric_format(buf, sizeof buf, counts.flop_token * (double)bt_run_cfg_tokens(&p->cfg),
                     BT_UNIT_COUNT);
    printf(" tokens, %sFLOP\n", buf);
    char chunks[32] = "";
    if (p->cfg.parallel.virtual_stages > 1)
        snprintf(chunks, sizeof chunks, " (%" PRId64 " virtual)", p->cfg.parallel.virtual_stages);
    printf(
        "layout     %d rank%s: pp %d%s x dp_replicate %d x dp_shard %d x tp %d; a rank has %" PRId64
        " micro-batch%s of %" PRId64 " sequence%s a step\n",
        p->ranks, p->ranks == 1 ? "" : "s", mesh->pp, chunks, mesh->dp_replicate, mesh->dp_shard,
        mesh->tp, p->cfg.train.accum, p->cfg.train.accum == 1 ? "" : "es", p->cfg.train.micro_batch,
        p->cfg.train.micro_batch == 1 ? "" : "s");
}

/* Memory of P parameters, T of them in linear layers and E in an embedding and head that are divided among ranks,
 * over S shards by ZeRO stage. */
typedef struct shares {
    double P, T, E, S, L;
    /* bytes of a latent weight of linear layers; of the optimizer's states per matrix element and per other
     * parameter */
    size_t weight, matrix_state, state;
    bool latent, grads, dense, half, adapters;
    bt_weight_source weight_source;
} shares;

static size_t state_bytes(const bt_optim_rule *rule, const bt_run_cfg *cfg) {
    size_t bytes = 0;
    for (size_t k = 0; k < rule->n_states; k++)
        bytes += bt_moment_bytes(bt_optim_form(rule, (bt_states_kind)cfg->optim.states, k));
    return bytes;
}

static shares compute_parameter_shares(const bt_run_cfg *cfg, const bt_mesh_shape *mesh) {
    bt_model_cfg m;
    bt_params p;
    shares s = {.S = cfg->mesh.zero > 0 ? mesh->dp_shard : 1};
    bt_run_cfg_model(cfg, &m);
    if (bt_params_init(&p, &m, (bt_model_slice){.tp_size = mesh->tp, .pp_size = mesh->pp}, NULL) !=
        BT_OK)
        return s;
    const bt_optim_info *optim = bt_optim_info_of((bt_optim_id)cfg->optim.name);
    s.P = (double)p.count;
    s.weight = cfg->optim.weights == BT_STATES_BF16 ? 2 : 4;
    s.matrix_state = state_bytes(optim->matrices, cfg);
    s.state = state_bytes(optim->rest, cfg);
    s.latent = bt_run_cfg_weight_source(cfg) != BT_WEIGHTS_LOCAL;
    s.dense = cfg->model.linear == BT_LIN_DENSE;
    s.adapters = cfg->tune.mode == BT_TUNE_LORA;
    s.half = cfg->train.precision == BT_PREC_BF16 && bt_kernels_multiply_bf16();
    for (size_t i = 0; i < p.n; i++)
        if (p.tensors[i].linear)
            s.T += (double)p.tensors[i].count;
        else if (s.latent && bt_model_shares_out(&p.tensors[i], (bt_prec)cfg->train.precision))
            s.E += (double)p.tensors[i].count;
    bt_params_release(&p);
    s.L = (double)cfg->model.layers;
    s.weight_source = bt_run_cfg_weight_source(cfg);
    s.grads = cfg->mesh.zero >= 2 && mesh->dp_shard > 1 && cfg->train.accum == 1 &&
              strcmp(cfg->parallel.balance, "even") == 0;
    return s;
}

static const char *arena_formula(char *buf, size_t size, const shares *s, const char *arena) {
    /* With adapters, the base fills these arenas, and P counts the adapters only. */
    if (s->adapters && (strcmp(arena, "params") == 0 || strcmp(arena, "quantised") == 0)) return "";
    char bytes[32], quantised[32], states[48];
    bool local = s->weight_source == BT_WEIGHTS_LOCAL;
    /* packed weight and its code byte; or the values as read */
    double weight = s->dense
                        ? (local     ? 0
                           : s->half ? 2
                                     : 4)
                        : (double)bt_active_kernels()->tern_bytes(1024, 1024) / 1048576 + local;
    snprintf(quantised, sizeof quantised, "%.3g T%s%s", weight,
             s->weight_source == BT_WEIGHTS_PREFETCHED ? " / L" : "", s->E > 0 ? " + 2 E" : "");
    if (s->matrix_state == s->state)
        snprintf(states, sizeof states, "%zu P%s", s->state, s->S > 1 ? " / S" : "");
    else
        snprintf(states, sizeof states,
                 s->S > 1 ? "(%zu T + %zu (P - T)) / S" : "%zu T + %zu (P - T)", s->matrix_state,
                 s->state);
    const char *const params = !s->latent ? (s->weight == 2 ? "2 T + 4 (P - T)" : "4 P")
                               : s->E > 0 ? (s->weight == 2 ? "4 (P - T - E) + (2 T + 4 E) / S"
                                                            : "4 (P - T - E) + 4 (T + E) / S")
                               : s->weight == 2 ? "4 (P - T) + 2 T / S"
                                                : "4 (P - T) + 4 T / S";
    const struct {
        const char *arena, *text;
        double bytes;
    } rows[] = {
        {"params", params,
         s->latent ? 4 * (s->P - s->T - s->E) + ((double)s->weight * s->T + 4 * s->E) / s->S
                   : (double)s->weight * s->T + 4 * (s->P - s->T)},
        {"grads", s->grads ? "4 P / S" : "4 P", s->grads ? 4 * s->P / s->S : 4 * s->P},
        {"quantised", quantised,
         weight * s->T / (s->weight_source == BT_WEIGHTS_PREFETCHED ? s->L : 1) + 2 * s->E},
        {"optimizer", states,
         ((double)s->matrix_state * s->T + (double)s->state * (s->P - s->T)) / s->S},
    };
    buf[0] = '\0';
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(arena, rows[i].arena) == 0)
            snprintf(buf, size, "%s = %s", rows[i].text,
                     bt_metric_format(bytes, sizeof bytes, rows[i].bytes, BT_UNIT_BYTES));
    return buf;
}

/* Returns the bytes without the optional memory that a trainer omits if memory is short (engine/train/trainer.c). */
static size_t needed_bytes(const rank_plan *r) {
    size_t bytes = r->bytes;
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->rows[i].name, "checkpoint") == 0 ||
            strcmp(r->rows[i].name, "memory states") == 0)
            bytes -= r->rows[i].bytes;
    return bytes;
}

static void print_memory_formulas(const bt_run_cfg *cfg, const bt_mesh_shape *mesh,
                                  const rank_plan *r) {
    char buf[32], text[64], of[32], shards[64] = "";
    shares s = compute_parameter_shares(cfg, mesh);
    if (s.S > 1)
        snprintf(shards, sizeof shards,
                 s.weight_source == BT_WEIGHTS_PREFETCHED ? ", S = %.0f shards, L = %.0f layers"
                                                          : ", S = %.0f shards",
                 s.S, s.L);
    printf("memory of a rank, and by formula: P = %s parameters%s, T = ",
           bt_metric_format(buf, sizeof buf, s.P, BT_UNIT_COUNT),
           mesh->tp * mesh->pp > 1 ? " of its part" : "");
    printf("%s of them %s", bt_metric_format(of, sizeof of, s.T, BT_UNIT_COUNT),
           s.dense ? "in dense layers" : "ternary");
    if (s.E > 0)
        printf(", E = %s in embedding and head",
               bt_metric_format(of, sizeof of, s.E, BT_UNIT_COUNT));
    printf("%s\n", shards);
    for (size_t i = 0; i < r->n; i++)
        printf("  %-14s %10s  %-30s  %s\n", r->rows[i].name,
               bt_metric_format(buf, sizeof buf, (double)r->rows[i].bytes, BT_UNIT_BYTES),
               arena_formula(text, sizeof text, &s, r->rows[i].name), r->rows[i].why);
    printf("  %-14s %10s\n", "together",
           bt_metric_format(buf, sizeof buf, (double)r->bytes, BT_UNIT_BYTES));
    const size_t needed = needed_bytes(r);
    if (needed < r->bytes && !cfg->launch.hot_spare)
        printf("  %-14s %10s  %-30s  %s\n", "needed",
               bt_metric_format(buf, sizeof buf, (double)needed, BT_UNIT_BYTES), "",
               "without checkpoint and memory states, for which a run takes what is left");
}

static void print_rank_plan(const rank_plan *r, int rank) {
    char buf[32];
    printf("%11d %4d %5d %5d %4d", rank, r->at.pp, r->at.dp_replicate, r->at.dp_shard, r->at.tp);
    for (size_t i = 0; i < r->n; i++)
        printf(" %12s", bt_metric_format(buf, sizeof buf, (double)r->rows[i].bytes, BT_UNIT_BYTES));
    printf(" %12s\n", bt_metric_format(buf, sizeof buf, (double)r->bytes, BT_UNIT_BYTES));
}

/* Prints one line per rank, except for replicas with the same contents as the rank before. */
static void print_ranks(const bt_run_cfg *cfg, const bt_mesh_shape *mesh, int ranks) {
    rank_plan first = plan_rank(cfg, mesh, 0);
    int replica = mesh->dp_shard * mesh->tp, alike = 0;
    char buf[32];
    double sum = 0;
    printf("memory of each rank\n%11s %4s %5s %5s %4s", "rank", "pp", "repl", "shard", "tp");
    for (size_t i = 0; i < first.n; i++) printf(" %12s", first.rows[i].name);
    printf(" %12s\n", "together");
    for (int r = 0; r < ranks; r++) {
        rank_plan now = plan_rank(cfg, mesh, r);
        sum += (double)now.bytes;
        if (now.at.dp_replicate > 0) {
            rank_plan before = plan_rank(cfg, mesh, r - replica);
            if (has_same_bytes(&now, &before)) {
                alike++;
                continue;
            }
        }
        print_rank_plan(&now, r);
    }
    if (alike == 1)
        printf("%11s the other one is a replica: it holds what the rank %d before it holds\n", "",
               replica);
    else if (alike)
        printf("%11s the other %d are replicas: each holds what the rank %d before it holds\n", "",
               alike, replica);
    printf("%11s %s\n", "all ranks", bt_metric_format(buf, sizeof buf, sum, BT_UNIT_BYTES));
    if (cfg->launch.hot_spare)
        printf("%11s %s at most, beside them\n", "hot spare",
               bt_metric_format(buf, sizeof buf, sum, BT_UNIT_BYTES));
}

static void print_launch(const bt_train_plan *p) {
    const bt_launch l = {.ranks = p->ranks,
                         .hosts = p->cfg.launch.hosts,
                         .mpirun_args = p->cfg.launch.mpirun_args,
                         .tmp = "TMP",
                         .shm = "SHM",
                         .program = "bitrain",
                         .settings = ""};
    bt_text words;
    bt_text_init(&words);
    bt_launch_command(&l, &words);
    for (char *c = words.data; c && *c; c++)
        if (*c == '\n') *c = ' ';
    printf("started as %srank ...\n", bt_text_str(&words));
    bt_text_release(&words);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void put_rank_plan(bt_json *j, const rank_plan *r, int rank) {
    bt_json_object(j, NULL);
    bt_json_int(j, "rank", rank);
    bt_json_int(j, "pp", r->at.pp);
    bt_json_int(j, "dp_replicate", r->at.dp_replicate);
    bt_json_int(j, "dp_shard", r->at.dp_shard);
    bt_json_int(j, "tp", r->at.tp);
    bt_json_object(j, "arenas");
    for (size_t i = 0; i < r->n; i++) bt_json_int(j, r->rows[i].name, (int64_t)r->rows[i].bytes);
    bt_json_end(j, '}');
    bt_json_int(j, "bytes", (int64_t)r->bytes);
    bt_json_end(j, '}');
}

static bt_code print_train_plan_json(const bt_train_plan *p, const bt_run_cfg *cfg,
                                     const bt_mesh_shape *mesh, const bt_train_data *data,
                                     bt_err *err) {
    work_time t;
    bt_model_cfg m;
    bt_text out;
    bt_json j;
    bt_run_cfg_model(cfg, &m);
    bt_text_init(&out);
    bt_json_begin(&j, &out);
    bt_json_object(&j, NULL);
    bt_json_str(&j, "run", p->run);
    bt_json_str(&j, "preset", cfg->model.preset);
    bt_json_int(&j, "params", (int64_t)bt_model_count(&m).params);
    bt_json_int(&j, "steps", cfg->train.steps);
    bt_json_int(&j, "batch_tokens", cfg->train.batch_tokens);
    bt_json_int(&j, "micro_batch", cfg->train.micro_batch);
    bt_json_int(&j, "accum", cfg->train.accum);
    if (p->recipe.len) bt_json_str(&j, "plan", bt_text_str(&p->recipe));
    predict_work_time(p, &t);
    bt_json_num(&j, "data_tokens", data->seen && data->tokens > 0 ? (double)data->tokens : NAN);
    bt_json_num(&j, "epochs", planned_epochs(p, data));
    bt_json_num(&j, "seconds", t.time.seconds);
    if (cfg->run.ensemble)
        bt_json_int(&j, "trainings", cfg->run.ensemble + (cfg->run.distill ? 1 : 0));
    bt_json_str(&j, "seconds_from", bt_train_time_source(&t.time));
    bt_json_num(&j, "step_ms", 1e3 * t.time.step_s);
    bt_json_num(&j, "predicted_step_ms", 1e3 * t.time.predicted_s);
    bt_json_str(&j, "rates", t.has_rates ? bt_text_str(&t.rates) : "");
    bt_text_release(&t.rates);
    bt_json_num(&j, "checkpoint_bytes", planned_checkpoint_bytes(cfg, mesh, p->ranks));
    bt_json_num(&j, "disk_free_bytes", free_disk_bytes(p->out));
    bt_json_str(&j, "isa", bt_kernels_isa());
    bt_json_array(&j, "ranks");
    for (int r = 0; r < p->ranks; r++) {
        rank_plan plan = plan_rank(cfg, mesh, r);
        put_rank_plan(&j, &plan, r);
    }
    bt_json_end(&j, ']');
    bt_json_end(&j, '}');
    bt_code code = out.failed
                       ? bt_fail(err, BT_NOMEM, "no memory for the plan of %d ranks", p->ranks)
                       : BT_OK;
    if (code == BT_OK) puts(bt_text_str(&out));
    bt_text_release(&out);
    return code;
}

static void set_ranks_per_host(const bt_train_plan *p) {
    enum { HOSTS_MOST = 4096 };
    static int slots[HOSTS_MOST];
    if (p->cfg.launch.hosts[0])
        bt_comm_expect_hosts(slots, bt_host_file_each(p->cfg.launch.hosts, slots, HOSTS_MOST));
}

bt_code bt_train_dry_run(const bt_train_plan *p, bt_err *err) {
    bt_mesh_shape mesh;
    bt_train_data data;
    BT_TRY(bt_ckpt_check(p->out, !p->resume && !p->from.dir[0], err));
    BT_TRY(bt_train_inputs(p, &data, err));
    bt_run_cfg *cfg = malloc(sizeof *cfg); /* on the heap because the struct is large */
    if (!cfg) return bt_fail(err, BT_NOMEM, "no memory for the settings");
    *cfg = p->cfg;
    if (cfg->launch.threads < 1) cfg->launch.threads = 1; /* other hosts choose their own number */
    set_ranks_per_host(p);
    bt_run_cfg_mesh(cfg, &mesh);
    /* the packed form of weights depends on the kernel set */
    bt_code code = bt_kernels_select(cfg->launch.isa, err);
    if (code == BT_OK && cfg->run.json) {
        code = print_train_plan_json(p, cfg, &mesh, &data, err);
    } else if (code == BT_OK) {
        rank_plan first = plan_rank(cfg, &mesh, 0);
        bt_text place;
        bt_text_init(&place);
        bt_train_folder_line(p, &place);
        bt_text_put(&place, bt_text_str(&p->recipe));
        bt_text_put(&place, bt_text_str(&p->layout_notes));
        if (p->layout.len) bt_text_printf(&place, "layout     %s\n", bt_text_str(&p->layout));
        fputs(bt_text_str(&place), stdout);
        bt_text_release(&place);
        print_work(p, &mesh);
        print_data(p, &data);
        print_time(p);
        print_memory_formulas(cfg, &mesh, &first);
        if (p->ranks > 1) print_ranks(cfg, &mesh, p->ranks);
        print_disk(p, cfg, &mesh);
        print_launch(p);
    }
    free(cfg);
    if (code == BT_OK && ferror(stdout)) code = bt_fail(err, BT_IO, "cannot write the plan");
    return code;
}

bt_code bt_train_print_plan(const bt_train_plan *p, bt_err *err) {
    return p->cfg.run.print_config ? bt_print_config(&p->opts, p->cfg.run.json, stdout, err)
                                   : bt_train_dry_run(p, err);
}

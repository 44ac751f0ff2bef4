/* machine_rates.c - reads rates from the file, or starts a job of ranks that measures the missing ones. */
#include "cli/layout/machine_rates.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/run_shown.h"
#include "engine/base/threads.h"
#include "engine/config/agree/job_agreement.h"
#include "engine/kernels/table/kernels.h"
#include "engine/parallel/mpi/comm.h"
#include "engine/plan/probe/rates_probe.h"
#include "monitor/job/machine/cpu_binding.h"

enum { NUMBERS = 5 }; /* words before the shapes */

static bt_code run_rates_probe(int argc, char **argv, bt_rates *r, bt_err *err) {
    bt_isa_agreement isa;
    bt_probe_job job = {.machine = strcmp(argv[2], "machine") == 0,
                        .links = strcmp(argv[2], "links") == 0,
                        .budget_s = strtod(argv[3], NULL),
                        .disk_dir = argv[4],
                        .progress = bt_run_shown_progress};
    int threads = atoi(argv[1]);
    if (job.disk_dir[0] == '-') job.disk_dir = "";
    bt_part_shape *parts = calloc((size_t)argc, sizeof *parts);
    bt_code code = parts ? BT_OK : bt_fail(err, BT_NOMEM, "no memory for %d shapes", argc);
    for (int i = NUMBERS; code == BT_OK && i < argc; i++)
        if (!bt_part_parse(argv[i], &parts[job.n_parts++]))
            code = bt_fail(err, BT_ARG, "cannot read the shape '%.80s'", argv[i]);
    job.parts = parts;
    code = bt_agree(bt_comm_world(), code, err);
    if (code == BT_OK) code = bt_agree_isa(bt_comm_world(), argv[0], &isa, err);
    if (code == BT_OK) code = bt_kernels_select(isa.isa, err);
    const bt_binding_job binding = {.ranks = bt_comm_local_size(),
                                    .rank = bt_comm_local_rank(),
                                    .threads = threads < 1 ? 1 : threads,
                                    .group = 1};
    (void)bt_bind_rank(&binding); /* as in a training */
    if (code == BT_OK) code = bt_threads_init(threads < 1 ? 1 : threads, err);
    code = bt_agree(bt_comm_world(), code, err);
    if (code == BT_OK) code = bt_rates_probe(r, &job, err);
    free(parts);
    bt_threads_release();
    return code;
}

bt_code bt_rates_probe_rank(int argc, char **argv, int *exit_status, bt_err *err) {
    if (!bt_comm_am_rank() || argc < NUMBERS)
        return bt_fail(err, BT_ARG, "'" BT_RATES_PROBE_WORD "' is started by 'bitrain plan' only");
    BT_TRY(bt_comm_init(err));
    bt_rates *r = calloc(1, sizeof *r);
    bt_code code = bt_agree(bt_comm_world(),
                            r ? BT_OK : bt_fail(err, BT_NOMEM, "no memory for the rates"), err);
    if (code == BT_OK) code = run_rates_probe(argc, argv, r, err);
    if (code == BT_OK && bt_comm_rank(bt_comm_world()) == 0) {
        bt_text out;
        bt_text_init(&out);
        bt_rates_put_json(r, &out);
        printf(BT_RUN_ONCE_RESULT "%s\n", bt_text_str(&out));
        fflush(stdout);
        bt_text_release(&out);
    }
    free(r);
    if (code == BT_OK) {
        bt_comm_finalize();
        return BT_OK;
    }
    bt_run_shown_fail(code, err, exit_status);
    return BT_OK;
}

static void rates_data_folder(const char *store, char *out, size_t size) {
    snprintf(out, size, "%s", store);
    char *slash = strrchr(out, '/');
    if (slash && slash != out)
        *slash = '\0';
    else
        snprintf(out, size, ".");
}

typedef enum { ASK_PARTS, ASK_MACHINE, ASK_LINKS } question; /* measurements of one job */
static const char *const question_words[] = {"parts", "machine", "links"};

/* Adds the results of a job to the known rates. */
static void merge_rates(bt_rates *into, const bt_rates *found, question asked) {
    for (size_t i = 0; i < found->n_parts; i++) bt_rates_put_part(into, &found->parts[i]);
    bt_rates_put_links(into, found->links, found->n_links);
    for (size_t i = 0; i < found->n_groups; i++) bt_rates_put_group(into, &found->groups[i]);
    if (found->n_ops > 0) {
        memcpy(into->ops, found->ops, sizeof into->ops);
        into->n_ops = found->n_ops;
    }
    into->load = found->load;
    into->probe_s += found->probe_s;
    if (asked != ASK_MACHINE) return;
    into->read_per_s = found->read_per_s;
    into->triad_per_s = found->triad_per_s;
    into->add_s = found->add_s;
    into->norm = found->norm;
    into->zero = found->zero;
    into->states_bf16_x = found->states_bf16_x;
    into->states_log8_x = found->states_log8_x;
    into->weights_bf16_x = found->weights_bf16_x;
    into->matrix_op_s = found->matrix_op_s;
    into->tern_pack_s = found->tern_pack_s;
    into->tern_unpack_s = found->tern_unpack_s;
    into->tern_panel_s = found->tern_panel_s;
    into->fresh_s = found->fresh_s;
    into->disk_per_s = found->disk_per_s;
    memcpy(into->update, found->update, sizeof into->update);
    memcpy(into->codec, found->codec, sizeof into->codec);
}

typedef struct job {
    question ask;
    int ranks;
    double budget_s;
    const bt_part_shape *parts;
    size_t n;
    const char *folder;
} job;

static bt_code run_rates_job(const bt_rates_request *w, const job *j, bt_rates *out, bt_err *err) {
    size_t n = j->n;
    char threads[16], budget[32];
    const char **words = calloc(n + NUMBERS + 2, sizeof *words);
    char(*shapes)[160] = calloc(n + 1, sizeof *shapes);
    bt_text one, result;
    bt_text_init(&one);
    bt_text_init(&result);
    bt_code code = words && shapes ? BT_OK : bt_fail(err, BT_NOMEM, "no memory for %zu shapes", n);
    if (code == BT_OK) {
        snprintf(threads, sizeof threads, "%" PRId64, w->cfg->launch.threads);
        snprintf(budget, sizeof budget, "%.3f", j->budget_s);
        const char *const first[] = {"plan",   BT_RATES_PROBE_WORD,    w->cfg->launch.isa,
                                     threads,  question_words[j->ask], budget,
                                     j->folder};
        size_t n_words = sizeof first / sizeof *first;
        memcpy(words, first, sizeof first);
        for (size_t i = 0; i < n; i++) {
            bt_text_clear(&one);
            bt_part_put(&one, &j->parts[i]);
            snprintf(shapes[i], sizeof *shapes, "%s", bt_text_str(&one));
            words[n_words++] = shapes[i];
        }
        const bt_run_once once = {.ranks = j->ranks,
                                  .hosts = w->cfg->launch.hosts,
                                  .mpirun_args = w->cfg->launch.mpirun_args,
                                  .words = words,
                                  .n_words = n_words};
        code = bt_run_shown(&once, "measuring this machine", w->quiet, &result, err);
    }
    if (code == BT_OK) code = bt_rates_take_json(out, bt_text_str(&result), result.len, err);
    bt_text_release(&one);
    bt_text_release(&result);
    free(shapes);
    free((void *)words);
    return code;
}

static size_t list_missing_parts(const bt_rates_request *w, const bt_rates *have,
                                 bt_part_shape *out) {
    size_t n = 0;
    for (size_t i = 0; i < w->n_parts; i++) {
        bool known = !w->anew && bt_rates_part(have, &w->parts[i]);
        for (size_t k = 0; k < n; k++) known = known || bt_part_same(&out[k], &w->parts[i]);
        if (!known) out[n++] = w->parts[i];
    }
    return n;
}

/* Returns a layer for each size of tensor-parallel groups that was not measured in a job of this size. */
static size_t list_missing_groups(const bt_rates_request *w, const bt_rates *have,
                                  bt_part_shape *out) {
    size_t n = 0;
    for (size_t i = 0; i < w->n_parts; i++) {
        const bt_part_shape *s = &w->parts[i];
        bool known = s->kind != BT_PART_LAYER || s->tp < 2 || w->ranks % s->tp != 0;
        for (size_t k = 0; k < have->n_groups && !w->anew; k++)
            known = known || bt_rates_group_like(&have->groups[k], w->ranks, s);
        for (size_t k = 0; k < n; k++) known = known || out[k].tp == s->tp;
        if (!known) out[n++] = *s;
    }
    return n;
}

static bt_code measure_rates_by_job(const bt_rates_request *w, const job *j, bt_rates *r,
                                    bt_text *notes, bt_err *err) {
    static const char *const what[] = {"", "memory, optimizers, codecs, ", "links, "};
    bt_rates *found = calloc(1, sizeof *found);
    if (!found) return bt_fail(err, BT_NOMEM, "no memory for the rates");
    bt_code code = run_rates_job(w, j, found, err);
    const size_t shapes = found->n_parts + found->n_groups;
    if (code == BT_OK) {
        merge_rates(r, found, j->ask);
        if (notes)
            bt_text_printf(notes,
                           "measured   %s%zu shape%s of layers and heads on %d rank%s x %d "
                           "thread%s in %.1f s (machine load %.2f)\n",
                           what[j->ask], shapes, shapes == 1 ? "" : "s", j->ranks,
                           j->ranks == 1 ? "" : "s", (int)w->cfg->launch.threads,
                           w->cfg->launch.threads == 1 ? "" : "s", found->probe_s, found->load);
    }
    free(found);
    return code;
}

/* More ranks than cores would slow each other down: parts are measured with as many ranks as can compute at the same
 * time, links with all ranks. */
static bt_code measure_missing_rates(const bt_rates_request *w, bt_rates *r, const char *path,
                                     bt_text *notes, bt_err *err) {
    char folder[PATH_MAX];
    bt_err trouble = BT_ERR_INIT;
    bt_part_shape *missing = calloc(2 * w->n_parts + 2, sizeof *missing),
                  *together = missing + w->n_parts + 1;
    if (!missing) return bt_fail(err, BT_NOMEM, "no memory for the rates");
    size_t n = list_missing_parts(w, r, missing), groups = list_missing_groups(w, r, together);
    bool machine = w->anew || !(r->add_s > 0),
         links = !w->no_links && (w->anew || groups > 0 || !bt_rates_has_links(r, w->ranks));
    rates_data_folder(w->store, folder, sizeof folder);
    job parts = {.ask = machine ? ASK_MACHINE : ASK_PARTS,
                 .ranks = bt_rates_concurrent(&w->cfg->launch, w->ranks_per_host),
                 .budget_s = w->budget_s > 0 ? w->budget_s : BT_PROBE_BUDGET_S,
                 .parts = missing,
                 .n = n,
                 .folder = folder},
        between = {.ask = ASK_LINKS,
                   .ranks = w->ranks,
                   .budget_s = w->budget_s > 0 ? fmin(w->budget_s / 4, BT_GROUPS_BUDGET_S)
                                               : BT_GROUPS_BUDGET_S,
                   .parts = together,
                   .n = groups,
                   .folder = folder};
    const bool asks = (n > 0 || machine || links) && !w->never;
    bt_code code = BT_OK;
    /* rates of other shapes are scaled, so only these parts are required */
    if (w->never &&
        (machine || r->n_parts == 0 || (!w->no_links && !bt_rates_has_links(r, w->ranks))))
        code = bt_fail(err, BT_NOTFOUND,
                       "not all rates of this machine are known yet: 'bitrain plan' measures them");
    /* Creates the folder first, because the job measures its disk. A failure is reported by the save at the end. */
    if (code == BT_OK && asks && bt_rates_save(r, path, &trouble) != BT_OK)
        trouble = (bt_err)BT_ERR_INIT;
    if (code == BT_OK && asks && (n > 0 || machine))
        code = measure_rates_by_job(w, &parts, r, notes, err);
    if (code == BT_OK && asks && links) code = measure_rates_by_job(w, &between, r, notes, err);
    free(missing);
    if (code == BT_OK && asks && bt_rates_save(r, path, &trouble) != BT_OK && notes)
        bt_text_printf(notes, "warning: %s\n", trouble.msg);
    return code;
}

void bt_machine_rates_file(const bt_rates *r, const char *store, char *out, size_t size) {
    char folder[PATH_MAX];
    rates_data_folder(store, folder, sizeof folder);
    bt_rates_path(r, folder, out, size);
}

bt_code bt_machine_rates(const bt_rates_request *w, bt_rates *out, bt_text *notes, bt_err *err) {
    char path[PATH_MAX + 64], refused[240];
    BT_TRY(bt_rates_identify(out, &w->cfg->launch,
                             bt_rates_concurrent(&w->cfg->launch, w->ranks_per_host), err));
    bt_machine_rates_file(out, w->store, path, sizeof path);
    BT_TRY(bt_rates_load(out, path, refused, sizeof refused, err));
    if (refused[0] && notes)
        bt_text_printf(notes, "rates      those in '%s' are not used: %s\n", path, refused);
    return measure_missing_rates(w, out, path, notes, err);
}

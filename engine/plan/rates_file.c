/* rates_file.c - stores rates in a JSON file and identifies their machine. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/base/os/own_process.h"
#include "engine/base/system/folders.h"
#include "engine/base/system/json_fields.h"
#include "engine/kernels/table/cpu.h"
#include "engine/kernels/table/kernels.h"
#include "engine/plan/rates.h"

enum { FILE_MOST = 4 << 20 };

static uint64_t file_hash(const char *path) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint64_t hash = 0;
    if (fd < 0) return 0;
    if (fstat(fd, &st) == 0 && st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p != MAP_FAILED) {
            hash = XXH3_64bits(p, (size_t)st.st_size);
            munmap(p, (size_t)st.st_size);
        }
    }
    close(fd);
    return hash;
}

int bt_rates_concurrent(const bt_launch_settings *launch, int ranks_per_host) {
    int threads = launch->threads > 0 ? (int)launch->threads : 1,
        fit = bt_cpu_get()->cores / threads;
    return fit < 1 ? 1 : fit < ranks_per_host ? fit : ranks_per_host;
}

bt_code bt_rates_identify(bt_rates *r, const bt_launch_settings *launch, int ranks, bt_err *err) {
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    uint64_t program = file_hash(bt_program_file()),
             hosts = launch->hosts[0] ? file_hash(launch->hosts) : 0;
    if (!program)
        return bt_fail_errno(
            err, BT_IO, errno,
            "cannot read the executable file of this program, which identifies the rates");
    *r = (bt_rates){
        .ranks = ranks, .threads = (int32_t)launch->threads, .cores = bt_cpu_get()->cores};
    snprintf(r->machine, sizeof r->machine, "%s, %.80s, %d cores", host, bt_cpu_get()->model,
             bt_cpu_get()->cores);
    snprintf(r->build, sizeof r->build, "%016" PRIx64, program);
    snprintf(r->use, sizeof r->use,
             "%d ranks at a time x %d threads, kernels %.15s, hosts %016" PRIx64, ranks,
             (int)launch->threads, launch->isa, hosts);
    return BT_OK;
}

void bt_rates_path(const bt_rates *r, const char *dir, char *out, size_t size) {
    XXH64_hash_t whose = XXH3_64bits(r->machine, strlen(r->machine));
    whose = XXH3_64bits_withSeed(r->use, strlen(r->use), whose);
    snprintf(out, size, "%s/rates/%dx%d-%08x.json", dir, r->ranks, r->threads, (unsigned)whose);
}

/* The scalar numbers that are written and read. */
#define NUMBERS(X) \
    X(probe_s) \
    X(rank_watts) \
    X(load) \
    X(read_per_s) \
    X(triad_per_s) \
    X(states_bf16_x) \
    X(states_log8_x) \
    X(weights_bf16_x) \
    X(add_s) \
    X(matrix_op_s) \
    X(tern_pack_s) \
    X(tern_unpack_s) \
    X(tern_panel_s) X(fresh_s) X(disk_per_s)

static void put_parts(bt_json *j, const bt_rates *r) {
    bt_text key;
    bt_text_init(&key);
    bt_json_array(j, "parts");
    for (size_t i = 0; i < r->n_parts; i++) {
        const bt_part_rate *p = &r->parts[i];
        bt_text_clear(&key);
        bt_part_put(&key, &p->shape);
        bt_json_object(j, NULL);
        bt_json_str(j, "shape", bt_text_str(&key));
        BT_JSON_FIELDS(j, p, F(fwd_s), F(bwd_s), F(attn_fwd_s), F(attn_bwd_s), F(quantise_s));
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
    bt_text_release(&key);
}

static void put_links(bt_json *j, const bt_rates *r) {
    BT_JSON_ROWS(j, "links", r->links, r->n_links, F(world), F_AS("ranks", n), F(agree_s),
                 F(stride), F(latency_s), F(bytes_per_s), F(meet_s), F(rows_bytes_per_s),
                 F(grads_sum_s), F(grads_back_s), F(shared_x), F(shared_often_x));
}

static void put_groups(bt_json *j, const bt_rates *r) {
    bt_text key;
    bt_text_init(&key);
    bt_json_array(j, "groups");
    for (size_t i = 0; i < r->n_groups; i++) {
        bt_text_clear(&key);
        bt_part_put(&key, &r->groups[i].shape);
        bt_json_object(j, NULL);
        bt_json_int(j, "world", r->groups[i].world);
        bt_json_str(j, "shape", bt_text_str(&key));
        bt_json_num(j, "pass_s", r->groups[i].pass_s);
        bt_json_num(j, "alone_s", r->groups[i].alone_s);
        bt_json_end(j, '}');
    }
    bt_json_end(j, ']');
    bt_text_release(&key);
}

static void put_trials(bt_json *j, const bt_rates *r) {
    bt_json_object(j, "trials");
    for (size_t i = 0; i < r->n_trials; i++) {
        bt_json_object(j, r->trials[i].key);
        bt_json_num(j, "step_s", r->trials[i].step_s);
        bt_json_num(j, "load", r->trials[i].load);
        bt_json_end(j, '}');
    }
    bt_json_end(j, '}');
}

static void put_elem(bt_json *j, const char *name, const bt_elem_rate *e) {
    bt_json_object(j, name);
    bt_json_num(j, "small_s", e->small_s);
    bt_json_num(j, "large_s", e->large_s);
    bt_json_end(j, '}');
}

static void put_by_name(bt_json *j, const bt_rates *r) {
    bt_json_object(j, "elements");
    put_elem(j, "norm", &r->norm);
    put_elem(j, "zero", &r->zero);
    for (int i = 0; i < BT_OPTIM_COUNT; i++)
        put_elem(j, bt_optim_info_of((bt_optim_id)i)->name, &r->update[i]);
    bt_json_end(j, '}');
    bt_json_object(j, "codecs");
    for (int i = 0; i < BT_CODEC_COUNT; i++) {
        bt_json_object(j, bt_codec_at((bt_codec_id)i)->name);
        BT_JSON_FIELDS(j, &r->codec[i], F(wire_bytes), F(encode_s), F(decode_s), F(decode_add_s));
        bt_json_end(j, '}');
    }
    bt_json_end(j, '}');
    BT_JSON_ROWS(j, "ops", r->ops, r->n_ops, F(op), F(rate), F(unit));
}

void bt_rates_put_json(const bt_rates *r, bt_text *out) {
    bt_json j;
    bt_json_begin(&j, out);
    bt_json_object(&j, NULL);
    bt_json_int(&j, "version", BT_RATES_VERSION);
    BT_JSON_FIELDS(&j, r, F(machine), F(build), F(use), F(ranks), F(threads), F(cores));
#define PUT(name) bt_json_num(&j, #name, r->name);
    NUMBERS(PUT)
#undef PUT
    put_by_name(&j, r);
    put_links(&j, r);
    put_groups(&j, r);
    put_trials(&j, r);
    put_parts(&j, r);
    bt_json_end(&j, '}');
}

static double json_number_or_nan(const json_t *from, const char *key) {
    const json_t *x = json_object_get(from, key);
    double v = json_is_number(x) ? json_number_value(x) : 0;
    return v >= 0 ? v : 0;
}

static void copy_json_text(const json_t *from, const char *key, char *out, size_t size) {
    const char *s = json_string_value(json_object_get(from, key));
    snprintf(out, size, "%s", s ? s : "");
}

static bt_code read_parts(bt_rates *r, const json_t *all, bt_err *err) {
    const json_t *list = json_object_get(all, "parts"), *x;
    size_t i;
    json_array_foreach(list, i, x) {
        bt_part_rate p = {.fwd_s = json_number_or_nan(x, "fwd_s"),
                          .bwd_s = json_number_or_nan(x, "bwd_s"),
                          .attn_fwd_s = json_number_or_nan(x, "attn_fwd_s"),
                          .attn_bwd_s = json_number_or_nan(x, "attn_bwd_s"),
                          .quantise_s = json_number_or_nan(x, "quantise_s")};
        const char *shape = json_string_value(json_object_get(x, "shape"));
        if (!shape || !bt_part_parse(shape, &p.shape) || !(p.fwd_s > 0))
            return bt_fail(err, BT_FORMAT, "part %zu of the rates has no shape or no time", i);
        bt_rates_put_part(r, &p);
    }
    return BT_OK;
}

static void read_links(bt_rates *r, const json_t *all) {
    const json_t *list = json_object_get(all, "links"), *x;
    size_t i;
    json_array_foreach(list, i, x) {
        if (r->n_links == sizeof r->links / sizeof *r->links) return;
        r->links[r->n_links++] =
            (bt_link_rate){.world = (int32_t)json_number_or_nan(x, "world"),
                           .n = (int32_t)json_number_or_nan(x, "ranks"),
                           .agree_s = json_number_or_nan(x, "agree_s"),
                           .stride = (int32_t)json_number_or_nan(x, "stride"),
                           .latency_s = json_number_or_nan(x, "latency_s"),
                           .bytes_per_s = json_number_or_nan(x, "bytes_per_s"),
                           .meet_s = json_number_or_nan(x, "meet_s"),
                           .rows_bytes_per_s = json_number_or_nan(x, "rows_bytes_per_s"),
                           .grads_sum_s = json_number_or_nan(x, "grads_sum_s"),
                           .grads_back_s = json_number_or_nan(x, "grads_back_s"),
                           .shared_x = json_number_or_nan(x, "shared_x"),
                           .shared_often_x = json_number_or_nan(x, "shared_often_x")};
    }
}

static bt_code read_group_rates(bt_rates *r, const json_t *all, bt_err *err) {
    const json_t *list = json_object_get(all, "groups"), *x;
    size_t i;
    json_array_foreach(list, i, x) {
        bt_group_rate g = {.world = (int32_t)json_number_or_nan(x, "world"),
                           .pass_s = json_number_or_nan(x, "pass_s"),
                           .alone_s = json_number_or_nan(x, "alone_s")};
        const char *shape = json_string_value(json_object_get(x, "shape"));
        if (!shape || !bt_part_parse(shape, &g.shape) || g.world < 1 || !(g.pass_s > 0) ||
            !(g.alone_s > 0))
            return bt_fail(err, BT_FORMAT, "group %zu of the rates has no shape or no time", i);
        bt_rates_put_group(r, &g);
    }
    return BT_OK;
}

static void read_trials(bt_rates *r, const json_t *all) {
    const char *key;
    json_t *x;
    json_object_foreach(json_object_get(all, "trials"), key, x) {
        /* A file without loads was written by an older version. */
        const json_t *load = json_object_get(x, "load");
        bt_trial_rate t = {
            .step_s = json_number_value(json_is_number(x) ? x : json_object_get(x, "step_s")),
            .load = json_is_number(load) ? json_number_value(load) : NAN};
        snprintf(t.key, sizeof t.key, "%s", key);
        if (t.step_s > 0) bt_rates_put_trial(r, &t);
    }
}

static bt_elem_rate read_elem_rate(const json_t *from, const char *name) {
    const json_t *e = json_object_get(from, name);
    return (bt_elem_rate){json_number_or_nan(e, "small_s"), json_number_or_nan(e, "large_s")};
}

static void read_named_rates(bt_rates *r, const json_t *all) {
    const json_t *elements = json_object_get(all, "elements"),
                 *codecs = json_object_get(all, "codecs"), *ops = json_object_get(all, "ops"), *x;
    r->norm = read_elem_rate(elements, "norm");
    r->zero = read_elem_rate(elements, "zero");
    for (int i = 0; i < BT_OPTIM_COUNT; i++)
        r->update[i] = read_elem_rate(elements, bt_optim_info_of((bt_optim_id)i)->name);
    for (int i = 0; i < BT_CODEC_COUNT; i++) {
        const json_t *c = json_object_get(codecs, bt_codec_at((bt_codec_id)i)->name);
        r->codec[i] = (bt_codec_rate){json_number_or_nan(c, "wire_bytes"),
                                      json_number_or_nan(c, "encode_s"),
                                      json_number_or_nan(c, "decode_s"),
                                      json_number_or_nan(c, "decode_add_s")};
    }
    size_t i;
    json_array_foreach(ops, i, x) {
        if (r->n_ops == BT_RATE_OPS) return;
        bt_op_rate *o = &r->ops[r->n_ops++];
        copy_json_text(x, "op", o->op, sizeof o->op);
        copy_json_text(x, "unit", o->unit, sizeof o->unit);
        o->rate = json_number_or_nan(x, "rate");
    }
}

bt_code bt_rates_take_json(bt_rates *r, const char *json, size_t n, bt_err *err) {
    json_error_t why;
    memset(r, 0, sizeof *r);
    json_t *all = json_loadb(json, n, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(all)) {
        json_decref(all);
        return bt_fail(err, BT_FORMAT, "the rates are not a JSON object (line %d)", why.line);
    }
    bt_code code = BT_OK;
    if ((int)json_number_or_nan(all, "version") != BT_RATES_VERSION)
        code = bt_fail(err, BT_FORMAT,
                       "the rates have format %d, but this program reads only format %d",
                       (int)json_number_or_nan(all, "version"), BT_RATES_VERSION);
    copy_json_text(all, "machine", r->machine, sizeof r->machine);
    copy_json_text(all, "build", r->build, sizeof r->build);
    copy_json_text(all, "use", r->use, sizeof r->use);
    r->ranks = (int32_t)json_number_or_nan(all, "ranks");
    r->threads = (int32_t)json_number_or_nan(all, "threads");
    r->cores = (int32_t)json_number_or_nan(all, "cores");
#define TAKE(name) r->name = json_number_or_nan(all, #name);
    NUMBERS(TAKE)
#undef TAKE
    if (code == BT_OK) code = read_parts(r, all, err);
    if (code == BT_OK) code = read_group_rates(r, all, err);
    if (code == BT_OK) {
        read_links(r, all);
        read_trials(r, all);
        read_named_rates(r, all);
    }
    json_decref(all);
    return code;
}

static bt_code read_rates_text(const char *path, char **out, size_t *n, bt_err *err) {
    FILE *f = fopen(path, "rbe");
    *out = NULL;
    *n = 0;
    if (!f && errno == ENOENT) return BT_OK;
    if (!f) return bt_fail_errno(err, BT_IO, errno, "cannot read the rates '%s'", path);
    char *text = malloc(FILE_MOST);
    bt_code code = text ? BT_OK
                        : bt_fail(err, BT_NOMEM, "cannot allocate memory to read '%s'", path);
    if (text) *n = fread(text, 1, FILE_MOST, f);
    if (text && ferror(f))
        code = bt_fail_errno(err, BT_IO, errno, "cannot read the rates '%s'", path);
    fclose(f);
    *out = text;
    return code;
}

bt_code bt_rates_load(bt_rates *r, const char *path, char *refused, size_t size, bt_err *err) {
    char *text;
    size_t n;
    refused[0] = '\0';
    BT_TRY(read_rates_text(path, &text, &n, err));
    if (!text) return BT_OK;
    bt_rates *found = calloc(1, sizeof *found);
    bt_err why = BT_ERR_INIT;
    if (!found) {
        free(text);
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for the rates");
    }
    if (bt_rates_take_json(found, text, n, &why) != BT_OK)
        snprintf(refused, size, "they cannot be read: %.160s", why.msg);
    else if (strcmp(found->machine, r->machine) != 0)
        snprintf(refused, size, "they were measured on another machine (%.80s)", found->machine);
    else if (strcmp(found->build, r->build) != 0)
        snprintf(refused, size, "they were measured with another build of this program");
    else if (strcmp(found->use, r->use) != 0)
        snprintf(refused, size, "they are of another use (%.100s)", found->use);
    else
        *r = *found;
    free(found);
    free(text);
    return BT_OK;
}

bt_code bt_rates_save(const bt_rates *r, const char *path, bt_err *err) {
    char beside[1200];
    bt_text out;
    BT_TRY(bt_make_folder_of(path, err));
    snprintf(beside, sizeof beside, "%s.%d", path, (int)getpid());
    bt_text_init(&out);
    bt_rates_put_json(r, &out);
    bt_text_put(&out, "\n");
    FILE *f = out.failed ? NULL : fopen(beside, "wbe");
    bool written = f && fwrite(bt_text_str(&out), 1, out.len, f) == out.len;
    if (f) written = fclose(f) == 0 && written;
    bt_code code = written && rename(beside, path) == 0
                       ? BT_OK
                       : bt_fail_errno(err, BT_IO, errno, "cannot write the rates '%s'", path);
    if (code != BT_OK) unlink(beside);
    bt_text_release(&out);
    return code;
}

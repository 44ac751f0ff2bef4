/* cmd_data.c - `bitrain data`: converts text to token shards, and inspects data files. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/common/command.h"
#include "cli/common/database.h"
#include "cli/common/printout/printout.h"
#include "cli/common/progress.h"
#include "cli/common/skipped.h"
#include "cli/common/verbs.h"
#include "cli/model/tokenizer_file.h"
#include "engine/base/os/processors.h"
#include "engine/base/tables/metric.h"
#include "engine/config/run_cfg.h"
#include "engine/data/io/documents.h"
#include "engine/data/shards/encode_pool.h"
#include "engine/data/shards/prepare.h"
#include "engine/parallel/mpi/comm.h"

typedef struct data_cfg {
    char data[4096], glob[128], out[1024], tokenizer[1024], field[64];
    int64_t shard_tokens, sample, threads;
    bool json, quiet, force, verify;
    int bad_rows; /* one of BT_BAD_ROWS_... */
} data_cfg;

static const bt_opt data_opts[] = {
    BT_ROW_LIST(data_cfg, data, "--data", "",
                "text, .jsonl, .bts, folders, or builtin (same as the arguments after the "
                "verb)"),
    BT_ROW_TEXT(data_cfg, glob, "--glob", "",
                "in folders, read only files whose names match this pattern, such as "
                "'*.txt'"),
    BT_ROW_TEXT(data_cfg, out, "--out", "", "token shard to write (.bts)"),
    BT_ROW_FLAG(data_cfg, force, "--force", "replace the file"),
    BT_ROW_TEXT(data_cfg, tokenizer, "--tokenizer", "bytes",
                "bytes, a tokenizer file, or Hugging Face's tokenizer.json"),
    BT_ROW_TEXT(data_cfg, field, "--field", "text", "field of a JSONL object that holds the text"),
    BT_ROW_ENUM(data_cfg, bad_rows, "--bad-rows", "refuse", "refuse|skip",
                "unreadable rows of JSON: stop, or omit and count them"),
    BT_ROW_INT(data_cfg, shard_tokens, "--shard-tokens", "0", 0, 1e15, "tokens",
               "size after which a document begins a new shard (x-00000.bts, x-00001.bts, "
               "...) (0: one shard)"),
    BT_ROW_INT(data_cfg, threads, "--threads", "0", 0, BT_ENCODE_THREADS_MAX, NULL,
               "threads that tokenise (0: one per processor that may be used; the shard does not "
               "depend on it)"),
    BT_ROW_INT(data_cfg, sample, "--sample", "0", 0, 100000, "tokens",
               "show the first tokens of each shard as text"),
    BT_ROW_BOOL(data_cfg, verify, "--verify", "true",
                "check every byte of shards (--no-verify: only header and tables)"),
    BT_ROW_JSON(data_cfg),
    BT_ROW_QUIET(data_cfg),
};
/* ---- prepare ---- */

typedef struct watch {
    bt_progress bar;
} watch;

static bt_code check_shard_path(const data_cfg *cfg, bt_err *err) {
    size_t n = strlen(cfg->out);
    char first[1100];
    if (n && (n < 5 || strcmp(cfg->out + n - 4, ".bts") != 0))
        return bt_fail(err, BT_ARG,
                       "--out '%s' does not end with .bts, so it would be read as text", cfg->out);
    if (cfg->shard_tokens) {
        snprintf(first, sizeof first, "%.*s-00000.bts", n ? (int)n - 4 : 0, cfg->out);
        if (n) BT_TRY(bt_verbs_may_write(first, cfg->force, err));
    }
    return bt_verbs_may_write(cfg->out, cfg->force, err);
}

static bt_code refuse_sources_without_text(const bt_sources *s, bt_err *err) {
    for (size_t i = 0; i < s->n; i++) {
        if (s->items[i].kind == BT_SOURCE_SHARD)
            return bt_fail(err, BT_ARG, "'%s' holds tokens already; prepare takes text",
                           s->items[i].path);
        if (s->items[i].kind == BT_SOURCE_SYNTH)
            return bt_fail(err, BT_ARG,
                           "'%s' needs no preparing: pass it to 'bitrain train --data'",
                           s->items[i].path);
    }
    return BT_OK;
}

static bt_code report_prepared_data(const data_cfg *cfg, const bt_tokenizer *t,
                                    const bt_prepare_result *r, double seconds, bt_err *err) {
    const double per_token = (double)r->source_bytes / (double)(r->ids ? r->ids : 1);
    char hash[20], tokens[32], docs[32], bytes[32], file[32], took[32];
    bt_printout o;
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)bt_tokenizer_hash(t));
    bt_printout_begin(&o, cfg->json);
    bt_printout_version(&o);
    bt_printout_str(&o, "out", NULL, cfg->out);
    bt_printout_int(&o, "shards", NULL, r->shards);
    bt_printout_int(&o, "tokens", NULL, (int64_t)r->ids);
    bt_printout_int(&o, "documents", NULL, (int64_t)r->documents);
    bt_printout_int(&o, "source_bytes", NULL, (int64_t)r->source_bytes);
    bt_printout_num(&o, "bytes_per_token", NULL, per_token, BT_UNIT_NONE);
    bt_printout_int(&o, "file_bytes", NULL, (int64_t)r->file_bytes);
    bt_printout_int(&o, "vocab", NULL, bt_tokenizer_vocab(t));
    bt_printout_str(&o, "vocab_hash", NULL, hash);
    bt_printout_num(&o, "seconds", NULL, seconds, BT_UNIT_NONE);
    bt_printout_line(
        &o,
        "%s tokens of %s (%.2f bytes each) from %s documents, %s of text, in %s: %s in %d "
        "shard%s\n",
        bt_metric_format(tokens, sizeof tokens, (double)r->ids, BT_UNIT_COUNT),
        bt_tokenizer_kind(t), per_token,
        bt_metric_format(docs, sizeof docs, (double)r->documents, BT_UNIT_COUNT),
        bt_metric_format(bytes, sizeof bytes, (double)r->source_bytes, BT_UNIT_BYTES),
        bt_duration(took, sizeof took, seconds),
        bt_metric_format(file, sizeof file, (double)r->file_bytes, BT_UNIT_BYTES), r->shards,
        r->shards == 1 ? "" : "s");
    return bt_printout_print(&o, err);
}

/* mpirun binds each process to a core; this one uses as many cores as there are processes. */
static int prepare_threads(const data_cfg *cfg) {
    int rank, ranks;
    bt_comm_env_place(&rank, &ranks);
    if (ranks > 1) {
        cpu_set_t all;
        memset(&all, 0xff, sizeof all); /* the system ignores processors that are not allowed */
        (void)bt_processors_bind(&all);
    }
    const int allowed = bt_encode_threads_allowed();
    const int wanted = cfg->threads ? (int)cfg->threads : ranks > 1 ? ranks : allowed;
    return wanted < allowed || cfg->threads ? wanted : allowed;
}

static bt_code prepare_sources(const data_cfg *cfg, const bt_sources *s, const bt_tokenizer *t,
                               bt_err *err) {
    bt_prepare_result r;
    watch w;
    bt_text notes = {0};
    bt_progress_begin(&w.bar, cfg->quiet);
    bt_prepare_cfg c = {.files = s->items,
                        .n_files = s->n,
                        .field = cfg->field,
                        .skip_bad = cfg->bad_rows == BT_BAD_ROWS_SKIP,
                        .notes = &notes,
                        .tokenizer = t,
                        .threads = prepare_threads(cfg),
                        .path = cfg->out,
                        .split_ids = (uint64_t)cfg->shard_tokens,
                        .progress = bt_progress_tokenising,
                        .ctx = &w.bar};
    bt_code code = bt_prepare(&c, &r, NULL, err);
    bt_progress_end(&w.bar);
    if (code == BT_OK) bt_cli_print_data_notes(bt_text_str(&notes));
    bt_text_release(&notes);
    BT_TRY(code);
    return report_prepared_data(cfg, t, &r, bt_progress_seconds(&w.bar), err);
}

static bt_code list_sources(const data_cfg *cfg, const char *const *words, size_t n,
                            bt_sources *out, bt_err *err) {
    char cache[PATH_MAX];
    bt_text paths;
    BT_TRY(bt_verbs_paths(&paths, cfg->data, words, n, err));
    bt_code code = paths.len ? bt_verbs_corpus(bt_text_str(&paths), cache, sizeof cache, err)
                             : bt_fail(err, BT_ARG, "no data named (a file, a folder, or builtin)");
    if (code == BT_OK) code = bt_sources_list_glob(out, bt_text_str(&paths), cfg->glob, cache, err);
    if (code == BT_OK) bt_cli_report_skipped(out);
    bt_text_release(&paths);
    return code;
}

static bt_code data_prepare(void *ctx, const char *const *words, size_t n, bt_err *err) {
    const data_cfg *cfg = ctx;
    bt_sources s = {0};
    bt_tokenizer *t = NULL;
    int rank, ranks;
    bt_comm_env_place(&rank, &ranks);
    if (rank > 0) return BT_OK; /* the first process uses a thread for each process */
    BT_TRY(check_shard_path(cfg, err));
    bt_code code = list_sources(cfg, words, n, &s, err);
    if (code == BT_OK) code = refuse_sources_without_text(&s, err);
    if (code == BT_OK) code = bt_tokenizer_open(&t, cfg->tokenizer, err);
    if (code == BT_OK) code = prepare_sources(cfg, &s, t, err);
    bt_tokenizer_free(t);
    bt_sources_release(&s);
    return code;
}

/* ---- inspect ---- */

typedef struct finding { /* inspection of one file */
    const char *path, *kind;
    bt_shard_info shard; /* properties of a shard */
    bool is_shard, fits; /* made with the given tokenizer */
    uint64_t tokens, source_bytes, documents, file_bytes;
    bt_text sample;
} finding;

static void show_check(void *ctx, double done) {
    watch *w = ctx;
    bt_progress_show(&w->bar, "checking", done, "");
}

static bt_code inspect_shard(const data_cfg *cfg, const bt_tokenizer *t, finding *f, watch *w,
                             bt_err *err) {
    bt_shard *s;
    BT_TRY(bt_shard_open(&s, f->path, err));
    bt_code code = cfg->verify ? bt_shard_verify(s, show_check, w, err) : BT_OK;
    f->is_shard = true;
    f->kind = "tokens";
    f->shard = *bt_shard_about(s);
    f->tokens = f->shard.count;
    f->source_bytes = f->shard.source_bytes;
    f->documents = f->shard.documents;
    f->file_bytes = f->shard.file_bytes;
    f->fits = f->shard.vocab_hash == bt_tokenizer_hash(t);
    size_t n = (uint64_t)cfg->sample < f->tokens ? (size_t)cfg->sample : (size_t)f->tokens;
    if (code == BT_OK && n && !f->fits)
        code = bt_fail(
            err, BT_ARG,
            "'%s' was made with another tokenizer than '%s': no sample (pass it with --tokenizer)",
            f->path, cfg->tokenizer);
    if (code == BT_OK && n) {
        int32_t *ids = malloc(n * sizeof *ids);
        code = ids ? bt_shard_read(s, 0, n, ids, err)
                   : bt_fail(err, BT_NOMEM, "cannot take memory for %zu tokens", n);
        if (code == BT_OK) bt_tokenizer_decode(t, ids, n, &f->sample);
        free(ids);
    }
    bt_shard_close(s);
    return code;
}

/* Counts documents and tokens without writing anything. */
static bt_code inspect_text(const data_cfg *cfg, const bt_tokenizer *t, const bt_source *source,
                            finding *f, watch *w, bt_err *err) {
    bt_documents *d;
    bt_piece p;
    int32_t *ids = NULL;
    size_t count, cap = 0;
    bt_code code;
    BT_TRY(bt_documents_open(&d, source, 1, cfg->field, err));
    bt_documents_rows(d, NULL, cfg->bad_rows == BT_BAD_ROWS_SKIP);
    f->kind = source->kind == BT_SOURCE_JSONL ? "jsonl" : "text";
    f->file_bytes = source->bytes;
    uint64_t in_document = 0;
    while ((code = bt_documents_next(d, &p, err)) == BT_OK && p.text) {
        if (p.n && (code = bt_tokenizer_encode(t, p.text, p.n, &ids, &count, &cap, err)) != BT_OK)
            break;
        if (p.n) f->tokens += count;
        f->source_bytes += p.n;
        in_document += p.n;
        if (f->sample.len < (size_t)cfg->sample)
            bt_text_putn(&f->sample, p.text, p.n < (size_t)cfg->sample ? p.n : (size_t)cfg->sample);
        if (p.document_ends) {
            f->documents += in_document > 0;
            in_document = 0;
        }
        bt_progress_show(&w->bar, "reading", bt_documents_done(d), "");
    }
    free(ids);
    if (code == BT_OK) {
        bt_text notes = {0};
        bt_documents_notes(d, &notes);
        bt_cli_print_data_notes(bt_text_str(&notes));
        bt_text_release(&notes);
    }
    bt_documents_close(d);
    return code;
}

static void put_data_finding(bt_printout *o, const data_cfg *cfg, const finding *f) {
    char hash[20];
    bt_printout_row(o);
    bt_printout_str(o, "path", "FILE", f->path);
    bt_printout_str(o, "kind", "KIND", f->kind);
    bt_printout_num(o, "tokens", "TOKENS", (double)f->tokens, BT_UNIT_COUNT);
    bt_printout_num(o, "source_bytes", NULL, (double)f->source_bytes, BT_UNIT_BYTES);
    bt_printout_cellf(o, "BYTES/TOKEN", "%.2f",
                      (double)f->source_bytes / (double)(f->tokens ? f->tokens : 1));
    bt_printout_num(o, "documents", "DOCUMENTS", (double)f->documents, BT_UNIT_COUNT);
    bt_printout_num(o, "file_bytes", "SIZE", (double)f->file_bytes, BT_UNIT_BYTES);
    if (f->is_shard) {
        bt_printout_int(o, "segments", NULL, (int64_t)f->shard.n_segments);
        bt_printout_int(o, "blocks", NULL, (int64_t)f->shard.n_blocks);
        bt_printout_int(o, "id_bytes", NULL, f->shard.id_bytes);
        bt_printout_int(o, "vocab", NULL, f->shard.vocab);
        snprintf(hash, sizeof hash, "%016llx", (unsigned long long)f->shard.vocab_hash);
        bt_printout_str(o, "vocab_hash", NULL, hash);
        bt_printout_cellf(o, "TOKENIZER", "%u, %s%s", f->shard.vocab, hash,
                          f->fits ? "" : " (another than given)");
        snprintf(hash, sizeof hash, "%016llx", (unsigned long long)f->shard.content_hash);
        bt_printout_str(o, "content_hash", NULL, hash);
        bt_printout_bool(o, "verified", cfg->verify);
        bt_printout_bool(o, "fits_tokenizer", f->fits);
    } else {
        bt_printout_str(o, NULL, "TOKENIZER", cfg->tokenizer);
    }
    bt_printout_str(o, NULL, "CHECK", !f->is_shard ? "-" : cfg->verify ? "ok" : "not checked");
    if (cfg->sample) bt_printout_str(o, "sample", NULL, bt_text_str(&f->sample));
    bt_printout_end(o);
}

static void put_samples(bt_printout *o, const finding *all, size_t n) {
    for (size_t i = 0; i < n && !o->json; i++) {
        if (!all[i].sample.len) continue;
        bt_printout_line(o, "\n%s begins:\n", all[i].path);
        for (const char *s = bt_text_str(&all[i].sample); *s;) {
            char line[4096], plain[4096];
            size_t k = strcspn(s, "\n");
            snprintf(line, sizeof line, "%.*s", (int)k, s);
            bt_text_plain(plain, sizeof plain, line);
            bt_text_put(&o->out, plain);
            bt_text_put(&o->out, "\n");
            s += k + (s[k] == '\n');
        }
    }
}

static bt_code print_findings(const data_cfg *cfg, const finding *all, size_t n, bt_err *err) {
    bt_printout o;
    uint64_t tokens = 0;
    bt_printout_begin(&o, cfg->json);
    bt_printout_version(&o);
    bt_printout_rows(&o, "files");
    for (size_t i = 0; i < n; i++) {
        put_data_finding(&o, cfg, &all[i]);
        tokens += all[i].tokens;
    }
    bt_printout_rows_end(&o, "");
    bt_printout_int(&o, "tokens", NULL, (int64_t)tokens);
    put_samples(&o, all, n);
    return bt_printout_print(&o, err);
}

static bt_code inspect_sources(const data_cfg *cfg, const bt_sources *s, const bt_tokenizer *t,
                               bt_err *err) {
    finding *all = calloc(s->n, sizeof *all);
    watch w;
    if (!all) return bt_fail(err, BT_NOMEM, "cannot take memory for %zu files", s->n);
    bt_code code = BT_OK;
    bt_progress_begin(&w.bar, cfg->quiet);
    for (size_t i = 0; code == BT_OK && i < s->n; i++) {
        all[i].path = s->items[i].path;
        if (s->items[i].kind == BT_SOURCE_SYNTH)
            code = bt_fail(err, BT_ARG, "'%s' is made on the fly; there is nothing to inspect",
                           all[i].path);
        else if (s->items[i].kind == BT_SOURCE_SHARD)
            code = inspect_shard(cfg, t, &all[i], &w, err);
        else
            code = inspect_text(cfg, t, &s->items[i], &all[i], &w, err);
    }
    bt_progress_end(&w.bar);
    if (code == BT_OK) code = print_findings(cfg, all, s->n, err);
    for (size_t i = 0; i < s->n; i++) bt_text_release(&all[i].sample);
    free(all);
    return code;
}

static bt_code data_inspect(void *ctx, const char *const *words, size_t n, bt_err *err) {
    const data_cfg *cfg = ctx;
    bt_sources s = {0};
    bt_tokenizer *t = NULL;
    bt_code code = list_sources(cfg, words, n, &s, err);
    if (code == BT_OK) code = bt_tokenizer_open(&t, cfg->tokenizer, err);
    if (code == BT_OK) code = inspect_sources(cfg, &s, t, err);
    bt_tokenizer_free(t);
    bt_sources_release(&s);
    return code;
}

static const bt_cli_verb verbs[] = {
    {"prepare", " data glob out force tokenizer field bad_rows shard_tokens threads json quiet ", 0,
     1000, "PATH...", "text or JSONL to token shards", data_prepare},
    {"inspect", " data glob tokenizer field bad_rows sample verify json quiet ", 0, 1000, "PATH...",
     "show the content of data files, and check shards", data_inspect},
};

const bt_command bt_cmd_data = {
    .name = "data",
    .summary = "convert text or JSONL to token shards; inspect data files",
    .args = "prepare|inspect PATH...",
    .examples =
        "bitrain data prepare books/ --tokenizer books.json --out books.bts\n"
        "bitrain data prepare crawl.jsonl --field content --shard-tokens 1e9 --out crawl.bts\n"
        "bitrain data inspect books.bts --tokenizer books.json --sample 200\n"
        "bitrain data inspect builtin --json\n",
    .options = BT_OPTION_SET(data_opts, data_cfg),
    .verbs = verbs,
    .n_verbs = sizeof verbs / sizeof *verbs,
};

/* prepare.c - writes a shard under a temporary name while it holds a lock, and renames the complete shard. */
#include "engine/data/shards/prepare.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "engine/base/hash.h"
#include "engine/base/log.h"
#include "engine/base/system/folders.h"
#include "engine/data/io/documents.h"
#include "engine/data/io/file_io.h"
#include "engine/data/shards/encode_pool.h"

/* Increase CACHE_VERSION if the same text results in other ids than before. */
enum { CACHE_VERSION = 3, NOTES_MAX_BYTES = 1 << 20 };

/* Tags of the texts in a batch. */
enum { DOCUMENT_BEGINS = 1, DOCUMENT_ENDS = 2, FILE_ENDS = 4 };

typedef struct run { /* one call of bt_prepare */
    const bt_prepare_cfg *cfg;
    bt_documents *docs;
    bt_shard_writer *writer;
    uint32_t *lengths;
    int32_t *ids;
    size_t ids_cap;
    bt_encode_pool *pool;
    /* the end of a piece is kept in `held`, because a token may continue in the next piece */
    bool holds_back;
    bt_text held;            /* text that is not encoded yet */
    bool inside;             /* the text of a document has begun and not ended */
    uint64_t document_bytes; /* bytes of the current document that are written */
    char last;               /* last byte of the current document */
    bt_form form;            /* how rows become text */
    bt_chat_ids row[2];      /* documents of one row, in tokens */
    bt_prepare_result sum;
} run;

uint32_t *bt_id_lengths(const bt_tokenizer *t) {
    int V = bt_tokenizer_vocab(t);
    uint32_t *lengths = calloc((size_t)V, sizeof *lengths);
    for (int i = 0; lengths && i < V; i++) {
        size_t n;
        bt_tokenizer_bytes(t, i, &n);
        lengths[i] = bt_tokenizer_is_special(t, i) ? 0 : (uint32_t)n;
    }
    return lengths;
}

static bt_code shard_path(const run *r, char *out, size_t size, bt_err *err) {
    const char *path = r->cfg->path, *dot = strrchr(path, '.');
    int stem = dot && strcmp(dot, ".bts") == 0 ? (int)(dot - path) : (int)strlen(path);
    int n = r->cfg->split_ids ? snprintf(out, size, "%.*s-%05d.bts", stem, path, r->sum.shards)
                              : snprintf(out, size, "%s", path);
    return n < (int)size ? BT_OK : bt_fail(err, BT_ARG, "the path '%.200s' is too long", path);
}

static bt_code begin_shard(run *r, bt_err *err) {
    char path[PATH_MAX];
    if (r->cfg->path) BT_TRY(shard_path(r, path, sizeof path, err));
    return bt_shard_writer_create(&r->writer, r->cfg->path ? path : NULL,
                                  (uint32_t)bt_tokenizer_vocab(r->cfg->tokenizer),
                                  bt_tokenizer_hash(r->cfg->tokenizer), err);
}

static bt_code end_shard(run *r, bt_shard **opened, bt_err *err) {
    bt_shard *s;
    bt_shard_writer *w = r->writer;
    r->writer = NULL;
    BT_TRY(bt_shard_finish(w, &s, err));
    const bt_shard_info *info = bt_shard_about(s);
    r->sum.ids += info->count;
    r->sum.source_bytes += info->source_bytes;
    r->sum.documents += info->documents;
    r->sum.file_bytes += info->file_bytes;
    r->sum.shards++;
    if (opened) {
        *opened = s;
    } else {
        bt_shard_close(s);
    }
    return BT_OK;
}

static bt_code append_affix(run *r, bool behind, bt_err *err) {
    size_t n;
    const int32_t *ids = bt_tokenizer_affix(r->cfg->tokenizer, behind, &n);
    return n ? bt_shard_append(r->writer, ids, n, r->lengths, err) : BT_OK;
}

static bt_code append_text(run *r, const char *text, size_t n, bt_err *err) {
    size_t count;
    if (!n) return BT_OK;
    BT_TRY(bt_tokenizer_encode(r->cfg->tokenizer, text, n, &r->ids, &count, &r->ids_cap, err));
    return bt_shard_append(r->writer, r->ids, count, r->lengths, err);
}

/* Adds a piece of a document to the batch. With holds_back, the end of the text is kept until no token can continue. */
static bt_code add_piece(run *r, bt_encode_batch *b, const bt_piece *p, bt_err *err) {
    const unsigned begins = p->n && !r->inside ? DOCUMENT_BEGINS : 0,
                   ends = (p->document_ends ? DOCUMENT_ENDS : 0) | (p->file_ends ? FILE_ENDS : 0);
    r->inside = !p->document_ends && (r->inside || p->n);
    if (!r->holds_back) return bt_encode_batch_add(b, p->text, p->n, begins | ends, err);
    bt_text_putn(&r->held, p->text, p->n);
    if (r->held.failed)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for %zu bytes of text", r->held.len);
    const size_t cut = p->document_ends ? r->held.len
                                        : bt_tokenizer_cut(r->cfg->tokenizer, bt_text_str(&r->held),
                                                           r->held.len);
    BT_TRY(bt_encode_batch_add(b, bt_text_str(&r->held), cut, begins | ends, err));
    if (cut) memmove(r->held.data, r->held.data + cut, r->held.len - cut + 1);
    r->held.len -= cut;
    return BT_OK;
}

static bt_code end_document(run *r, bt_err *err) {
    int32_t eot = bt_tokenizer_eot(r->cfg->tokenizer);
    if (!r->document_bytes) return BT_OK;
    BT_TRY(append_affix(r, true, err));
    if (bt_tokenizer_ends_texts(r->cfg->tokenizer)) {
        /* The tokens appended above include the end-of-text token. */
    } else if (eot >= 0) {
        BT_TRY(bt_shard_append(r->writer, &eot, 1, r->lengths, err));
    } else if (r->last != '\n') {
        BT_TRY(append_text(r, "\n", 1, err));
    }
    r->document_bytes = 0;
    return bt_shard_end_document(r->writer, err);
}

static void report_progress(run *r, uint64_t *told) {
    if (!r->cfg->progress || *told < 1 << 20) return;
    r->cfg->progress(r->cfg->ctx, bt_documents_done(r->docs),
                     r->sum.ids + bt_shard_written(r->writer));
    *told = 0;
}

static bt_code append_object(run *r, json_t *object, uint64_t *told, bt_err *err) {
    const int n = bt_form_documents(&r->form);
    for (int i = 0; i < n; i++) {
        bt_err why = BT_ERR_INIT;
        r->row[i].n = 0;
        const bt_code code = bt_form_encode(&r->form, object, i, &r->row[i], &why);
        if (code != BT_OK) return bt_documents_bad_row(r->docs, code, &why, err);
    }
    for (int i = 0; i < n; i++) {
        const bt_chat_ids *row = &r->row[i];
        if (!row->n) continue;
        BT_TRY(bt_shard_append_learned(r->writer, row->ids, row->learned, row->n, r->lengths, err));
        BT_TRY(bt_shard_end_document(r->writer, err));
        *told += 4 * row->n;
    }
    return BT_OK;
}

static bool has_form(const bt_prepare_cfg *cfg) {
    return cfg->form && cfg->form->kind != BT_FORM_TEXT;
}

static bt_code stream_objects(run *r, bt_err *err) {
    uint64_t told = 0;
    for (;;) {
        json_t *object;
        bool end;
        BT_TRY(bt_documents_object(r->docs, &object, &end, err));
        if (end) return BT_OK;
        if (!r->writer) BT_TRY(begin_shard(r, err));
        if (!object) {
            BT_TRY(bt_shard_end_segment(r->writer, err));
            continue;
        }
        BT_TRY(append_object(r, object, &told, err));
        report_progress(r, &told);
        if (r->cfg->split_ids && bt_shard_written(r->writer) >= r->cfg->split_ids)
            BT_TRY(end_shard(r, NULL, err));
    }
}

static bt_code read_batch(run *r, bt_encode_batch *b, bool *files_end, bt_err *err) {
    while (b->text.len < BT_ENCODE_BATCH_BYTES && b->n_parts < BT_ENCODE_BATCH_BYTES / 64) {
        bt_piece p;
        BT_TRY(bt_documents_next(r->docs, &p, err));
        *files_end = !p.text;
        if (*files_end) return BT_OK;
        BT_TRY(add_piece(r, b, &p, err));
    }
    return BT_OK;
}

static bt_code write_batch(run *r, const bt_encode_batch *b, uint64_t *told, bt_err *err) {
    const char *text = bt_text_str(&b->text);
    const int32_t *ids = b->ids;
    for (size_t i = 0; i < b->n_parts; i++) {
        const bt_encode_part *p = &b->parts[i];
        if (!r->writer) BT_TRY(begin_shard(r, err));
        if (p->tag & DOCUMENT_BEGINS) BT_TRY(append_affix(r, false, err));
        if (p->n_ids) BT_TRY(bt_shard_append(r->writer, ids, p->n_ids, r->lengths, err));
        ids += p->n_ids;
        text += p->n;
        if (p->n) r->last = text[-1];
        r->document_bytes += p->n;
        *told += p->n + 64;
        if (p->tag & DOCUMENT_ENDS) BT_TRY(end_document(r, err));
        if (p->tag & FILE_ENDS) BT_TRY(bt_shard_end_segment(r->writer, err));
        report_progress(r, told);
        if (r->cfg->split_ids && (p->tag & DOCUMENT_ENDS) &&
            bt_shard_written(r->writer) >= r->cfg->split_ids)
            BT_TRY(end_shard(r, NULL, err));
    }
    return BT_OK;
}

static bt_code write_token_stream(run *r, bt_err *err) {
    uint64_t told = 0;
    bool files_end = false;
    const int threads = strcmp(bt_tokenizer_kind(r->cfg->tokenizer), "bytes") == 0
                            ? 1
                            : r->cfg->threads;
    BT_TRY(bt_encode_pool_create(&r->pool, r->cfg->tokenizer, threads, err));
    while (!files_end || !bt_encode_pool_empty(r->pool)) {
        bt_encode_batch *b;
        if (!files_end && !bt_encode_pool_full(r->pool)) {
            BT_TRY(read_batch(r, bt_encode_pool_begin(r->pool), &files_end, err));
            bt_encode_pool_send(r->pool);
            continue;
        }
        BT_TRY(bt_encode_pool_take(r->pool, &b, err));
        BT_TRY(write_batch(r, b, &told, err));
        bt_encode_pool_recycle(r->pool);
    }
    return BT_OK;
}

bt_code bt_prepare(const bt_prepare_cfg *cfg, bt_prepare_result *result, bt_shard **opened,
                   bt_err *err) {
    run r = {.cfg = cfg,
             .lengths = bt_id_lengths(cfg->tokenizer),
             .holds_back = bt_tokenizer_spans_space(cfg->tokenizer)};
    if (opened) *opened = NULL;
    bt_code code = r.lengths ? BT_OK
                             : bt_fail(err, BT_NOMEM, "cannot allocate memory for %d token lengths",
                                       bt_tokenizer_vocab(cfg->tokenizer));
    if (code == BT_OK) code = bt_documents_open(&r.docs, cfg->files, cfg->n_files, cfg->field, err);
    if (code == BT_OK && has_form(cfg))
        code = bt_form_init(&r.form, cfg->form, cfg->tokenizer, err);
    const bt_json_selection keys = has_form(cfg) ? bt_form_keys(cfg->form) : (bt_json_selection){0};
    if (code == BT_OK) bt_documents_rows(r.docs, has_form(cfg) ? &keys : NULL, cfg->skip_bad);
    if (code == BT_OK) bt_documents_limit(r.docs, cfg->max_rows);
    if (code == BT_OK) code = has_form(cfg) ? stream_objects(&r, err) : write_token_stream(&r, err);
    /* Without any text the result is an empty shard. */
    if (code == BT_OK && !r.writer && !r.sum.shards) code = begin_shard(&r, err);
    if (code == BT_OK && r.writer) code = end_shard(&r, opened, err);
    bt_shard_abandon(r.writer);
    if (code == BT_OK && cfg->notes) bt_documents_notes(r.docs, cfg->notes);
    bt_encode_pool_destroy(r.pool);
    bt_documents_close(r.docs);
    for (int i = 0; i < 2; i++) bt_chat_ids_release(&r.row[i]);
    bt_text_release(&r.held);
    free(r.lengths);
    free(r.ids);
    if (result) *result = r.sum;
    return code;
}

static uint64_t cache_key(const bt_prepare_cfg *cfg) {
    uint64_t h = XXH3_64bits_withSeed(NULL, 0, CACHE_VERSION + bt_tokenizer_hash(cfg->tokenizer));
    h = bt_sources_hash(cfg->files, cfg->n_files, cfg->field, h) + cfg->skip_bad +
        2 * cfg->max_rows;
    return has_form(cfg) ? h ^ bt_form_hash(cfg->form) : h;
}

static void cache_name(const bt_prepare_cfg *cfg, const char *cache_dir, char *out, size_t size) {
    const char *path = cfg->files[0].path, *slash = strrchr(path, '/'),
               *stem = slash ? slash + 1 : path;
    char safe[41];
    size_t n = 0;
    for (; stem[n] && stem[n] != '.' && n < sizeof safe - 1; n++) {
        unsigned char c = (unsigned char)stem[n];
        bool plain = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '-' ||
                     c == '_';
        safe[n] = plain ? (char)c : '_';
    }
    safe[n] = '\0';
    snprintf(out, size, "%s/%s-%016llx.bts", cache_dir, safe, (unsigned long long)cache_key(cfg));
}

/* Removes temporary files of killed processes. The caller holds the lock. */
static void remove_leftovers(const char *path) {
    char pattern[PATH_MAX + 8];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s.tmp.*", path);
    if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0) return;
    for (size_t i = 0; i < found.gl_pathc; i++) unlink(found.gl_pathv[i]);
    globfree(&found);
}

static void notes_path(const char *shard, char *out, size_t size) {
    snprintf(out, size, "%.*s.notes", (int)strlen(shard), shard);
}

/* Only the process that created the shard reports a failure. */
static void store_notes(const char *shard, const bt_text *notes) {
    char path[PATH_MAX + 8];
    bt_err ignored = BT_ERR_INIT;
    notes_path(shard, path, sizeof path);
    if (notes->len == 0)
        unlink(path);
    else if (bt_file_replace(path, notes->data, notes->len, &ignored) != BT_OK)
        bt_log(BT_LOG_DEBUG, "%s", ignored.msg);
}

static bt_code open_cached(const bt_prepare_cfg *cfg, const char *shard, bt_shard **opened,
                           bt_err *err) {
    char path[PATH_MAX + 8], *text = NULL;
    size_t n;
    bt_err none = BT_ERR_INIT;
    BT_TRY(bt_shard_open(opened, shard, err));
    notes_path(shard, path, sizeof path);
    if (cfg->notes && bt_file_slurp(path, NOTES_MAX_BYTES, &text, &n, &none) == BT_OK)
        bt_text_putn(cfg->notes, text, n);
    free(text);
    return BT_OK;
}

/* Creates the shard if it is missing or damaged. The caller holds the lock. */
static bt_code open_or_create_shard(const bt_prepare_cfg *cfg, const char *path, bt_shard **opened,
                                    bt_err *err) {
    bt_err why;
    bt_text notes = {0};
    bt_code code = open_cached(cfg, path, opened, &why);
    if (code == BT_OK) return BT_OK;
    if (code != BT_NOTFOUND) bt_log(BT_LOG_WARN, "%s; making it again", why.msg);
    bt_log(BT_LOG_INFO, "tokenising '%s'%s into the cache", cfg->files[0].path,
           cfg->n_files > 1 ? " and others" : "");
    remove_leftovers(path);
    bt_prepare_cfg c = *cfg;
    c.path = path;
    c.notes = &notes;
    code = bt_prepare(&c, NULL, opened, err);
    if (code == BT_OK) store_notes(path, &notes);
    if (code == BT_OK && cfg->notes) bt_text_putn(cfg->notes, bt_text_str(&notes), notes.len);
    bt_text_release(&notes);
    return code;
}

static bt_code lock_shard(const char *path, int *fd, bt_err *err) {
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC,
               0600); /* every process that can read the lock file can also lock it */
    if (*fd < 0) return bt_fail_errno(err, BT_IO, errno, "cannot create '%s'", path);
    if (flock(*fd, LOCK_EX | LOCK_NB) == 0) return BT_OK;
    if (errno == EWOULDBLOCK)
        bt_log(BT_LOG_INFO, "another process tokenises the same data; waiting for it");
    int rc;
    do rc = flock(*fd, LOCK_EX);
    while (rc != 0 && errno == EINTR);
    if (rc == 0) return BT_OK;
    bt_code code = bt_fail_errno(err, BT_IO, errno, "cannot lock '%s'", path);
    close(*fd);
    return code;
}

bt_code bt_prepare_cached(const bt_prepare_cfg *cfg, const char *cache_dir, bt_shard **opened,
                          bt_err *err) {
    *opened = NULL;
    bt_prepare_cfg c = *cfg;
    c.path = NULL;
    c.split_ids = 0;
    if (!cache_dir || !*cache_dir) return bt_prepare(&c, NULL, opened, err);
    char path[PATH_MAX], lock_path[PATH_MAX];
    if (strlen(cache_dir) + 80 > sizeof path)
        return bt_fail(err, BT_ARG, "the path '%.200s' is too long", cache_dir);
    cache_name(cfg, cache_dir, path, sizeof path);
    if (open_cached(cfg, path, opened, NULL) == BT_OK) return BT_OK;
    int fd;
    bt_err why;
    snprintf(lock_path, sizeof lock_path, "%.*s.lock", (int)strlen(path), path);
    bt_code code = bt_make_folders(cache_dir, &why);
    if (code == BT_OK) code = lock_shard(lock_path, &fd, &why);
    if (code != BT_OK) { /* The cache folder is not writable: the shard is kept in memory only. */
        bt_log(BT_LOG_WARN, "no token cache (%s); keeping the tokens in memory", why.msg);
        return bt_prepare(&c, NULL, opened, err);
    }
    code = open_or_create_shard(&c, path, opened, err);
    /* The lock file is not removed, because a waiting and a new process could then both hold a lock. */
    close(fd);
    return code;
}

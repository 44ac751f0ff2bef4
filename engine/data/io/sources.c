/* sources.c - walks folders in the order of names and classifies files by their extensions. */
#include "engine/data/io/sources.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "engine/data/io/file_kind.h"
#include "engine/data/io/json_rows.h"
#include "engine/data/io/text_file.h"

enum { MAX_DEPTH = 32, HEAD = 8192 };

typedef struct walk {
    bt_sources *s;
    const char *glob; /* shell pattern of file names; "": every name */
    size_t word;
} walk;

/* Compares the end of a path, without .gz or .zst. */
static bool has_ending(const char *s, const char *end) {
    size_t n = bt_text_file_stem(s), k = strlen(end);
    return n > k && strncmp(s + n - k, end, k) == 0;
}

static bt_source_kind source_kind_of(const char *path) {
    if (has_ending(path, ".bts")) return BT_SOURCE_SHARD;
    return has_ending(path, ".jsonl") || has_ending(path, ".ndjson") || has_ending(path, ".json")
               ? BT_SOURCE_JSONL
               : BT_SOURCE_TEXT;
}

static bt_code add_source(bt_sources *s, const char *path, bt_source_kind kind,
                          const struct stat *st, size_t word, bt_err *err) {
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 32;
        bt_source *p = realloc(s->items, cap * sizeof *p);
        if (!p)
            return bt_fail(err, BT_NOMEM, "cannot allocate memory for a list of %zu files", cap);
        s->items = p;
        s->cap = cap;
    }
    char *copy = strdup(path);
    if (!copy)
        return bt_fail(err, BT_NOMEM, "cannot allocate memory for a list of %zu files", s->n);
    s->items[s->n++] =
        (bt_source){copy, kind, st ? (uint64_t)st->st_size : 0,
                    st ? (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec : 0, word};
    // cppcheck-suppress memleak ; the list owns the copy
    return BT_OK;
}

static int compare_entry_names(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}
static int is_visible_entry(const struct dirent *e) { return e->d_name[0] != '.'; }

static void note_skipped_source(bt_sources *s, const char *path, const char *why) {
    if (s->skipped++ == 0)
        snprintf(s->first_skipped, sizeof s->first_skipped, "%.200s (%s)", path, why);
}

/* Returns why a JSON file has no rows, NULL if it has rows: objects in a list or in lines. An object that spans many
 * lines is another kind of document, such as a package.json. */
static const char *no_rows(const char *head, size_t n) {
    size_t i = n >= 3 && memcmp(head, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    bool lines = false;
    const bool list = i < n && head[i] == '[';
    i += list;
    while (i < n && strchr(" \t\r\n", head[i])) i++;
    if (i == n || head[i] != '{') return "JSON without rows";
    const size_t end = list ? 1 : bt_json_object_end(head + i, n - i, &lines);
    return list || !lines || (end && end < n - i && strchr(head + i + end, '{'))
               ? NULL
               : "one JSON object, no rows";
}

/* Returns why a file inside a folder is not training data, by its first bytes; NULL if it is. A file that cannot be
 * opened is refused later, when it is read. */
static const char *why_not_data(const char *path, bt_source_kind as) {
    char head[HEAD + 1];
    bt_text_file *f;
    bt_err ignored = BT_ERR_INIT;
    size_t n = 0;
    if (bt_text_file_open(&f, path, &ignored) != BT_OK) return NULL;
    const bt_code code = bt_text_file_read(f, head, HEAD, &n, &ignored);
    bt_text_file_close(f);
    if (code != BT_OK || n == 0) return NULL;
    head[n] = '\0';
    const bt_file_kind *kind = bt_file_kind_of(head, n);
    if (!kind && as == BT_SOURCE_TEXT) kind = bt_file_kind_named(path);
    if (kind) return kind->what;
    if (memchr(head, 0, n)) return "binary";
    return has_ending(path, ".json") ? no_rows(head, n) : NULL;
}

static bt_code add_path(const walk *w, const char *path, int depth, bt_err *err);

/* Refuses a folder written by save_to_disk of Hugging Face's datasets: the data are in Arrow files. */
static bt_code refuse_datasets_folder(const char *folder, bt_err *err) {
    static const char *const marks[][2] = {{"dataset_dict.json", "['train']"}, {"state.json", ""}};
    char path[PATH_MAX];
    for (size_t i = 0; i < 2; i++) {
        if (snprintf(path, sizeof path, "%s/%s", folder, marks[i][0]) >= (int)sizeof path ||
            access(path, F_OK) != 0)
            continue;
        if (i == 1 && (snprintf(path, sizeof path, "%s/dataset_info.json", folder) < 0 ||
                       access(path, F_OK) != 0))
            continue;
        return bt_fail(
            err, BT_FORMAT,
            "the folder '%.100s' was written by save_to_disk of Hugging Face's datasets: "
            "convert it with 'python3 -c \"from datasets import *; load_from_disk('%.60s')"
            "%s.to_json('rows.jsonl')\"'",
            folder, strlen(folder) < 60 ? folder : "FOLDER", marks[i][1]);
    }
    return BT_OK;
}

static bt_code add_source_folder(const walk *w, const char *folder, int depth, bt_err *err) {
    if (depth >= MAX_DEPTH)
        return bt_fail(err, BT_ARG,
                       "folders are nested more than %d levels deep at '%s': does a symbolic link "
                       "point to a parent folder?",
                       MAX_DEPTH, folder);
    struct dirent **names;
    BT_TRY(refuse_datasets_folder(folder, err));
    int n = scandir(folder, &names, is_visible_entry, compare_entry_names);
    if (n < 0) return bt_fail_errno(err, BT_IO, errno, "cannot list the folder '%s'", folder);
    bt_code code = BT_OK;
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];
        size_t len = strlen(folder);
        const char *slash = len && folder[len - 1] == '/' ? "" : "/";
        if (code == BT_OK && snprintf(path, sizeof path, "%s%s%s", folder, slash,
                                      names[i]->d_name) >= (int)sizeof path)
            code = bt_fail(err, BT_ARG,
                           "a path in the folder '%s' is too long: move or rename the folder",
                           folder);
        if (code == BT_OK) code = add_path(w, path, depth + 1, err);
        free(names[i]);
    }
    free(names);
    return code;
}

static bt_code add_found_file(const walk *w, const char *path, const struct stat *st, bt_err *err) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (*w->glob && fnmatch(w->glob, name, 0) != 0) return BT_OK;
    const bt_source_kind kind = source_kind_of(path);
    const char *why = kind == BT_SOURCE_SHARD ? NULL : why_not_data(path, kind);
    if (why) {
        note_skipped_source(w->s, path, why);
        return BT_OK;
    }
    return add_source(w->s, path, kind, st, w->word, err);
}

/* Returns advice for a common wrong word after --data; NULL: none. */
static const char *suggest_source_word(const char *word) {
    char first[PATH_MAX];
    const size_t n = strcspn(word, " ,");
    if (strcmp(word, "-") == 0) return "data are not read from standard input: give a file";
    if (strstr(word, "://")) return "fetch it first: data are read from files";
    if (word[0] == '~') return "the shell expands ~ where it is not quoted";
    if (strpbrk(word, "*?["))
        return "the shell expands * where it is not quoted; --glob chooses in folders";
    if (!word[n] || n >= sizeof first) return NULL;
    memcpy(first, word, n);
    first[n] = '\0';
    return access(first, F_OK) == 0 ? "several files are several words: --data a.txt b.txt" : NULL;
}

static bt_code add_path(const walk *w, const char *path, int depth, bt_err *err) {
    struct stat st;
    if (stat(path, &st) != 0) {
        const int e = errno;
        const char *hint = depth == 0 && e == ENOENT ? suggest_source_word(path) : NULL;
        if (hint) return bt_fail(err, BT_NOTFOUND, "there is no data '%.200s' (%s)", path, hint);
        if (depth > 0 && e == ENOENT && lstat(path, &st) == 0 && S_ISLNK(st.st_mode)) {
            note_skipped_source(w->s, path, "a link that leads nowhere");
            return BT_OK;
        }
        return bt_fail_errno(err, e == ENOENT || e == ENOTDIR ? BT_NOTFOUND : BT_IO, e,
                             "cannot open data '%s'", path);
    }
    if (S_ISDIR(st.st_mode)) return add_source_folder(w, path, depth, err);
    if (S_ISREG(st.st_mode))
        return depth > 0 ? add_found_file(w, path, &st, err)
                         : add_source(w->s, path, source_kind_of(path), &st, w->word, err);
    if (depth > 0) return BT_OK; /* sockets and pipes inside a folder are not data */
    return bt_fail(err, BT_ARG, "data '%s' is neither a file nor a folder", path);
}

bool bt_names_builtin(const char *list) {
    static const char word[] = "builtin";
    for (const char *w = list; *w; w += strcspn(w, "\n"), w += *w == '\n')
        if (strcspn(w, "\n") == sizeof word - 1 && strncmp(w, word, sizeof word - 1) == 0)
            return true;
    return false;
}

void bt_builtin_path(char *out, size_t size, const char *cache_dir) {
    snprintf(out, size, "%s/builtin-kjv.txt", cache_dir);
}

static bt_code add_builtin(bt_sources *s, const char *cache_dir, size_t word, bt_err *err) {
    char path[PATH_MAX];
    struct stat st;
    if (!*cache_dir)
        return bt_fail(err, BT_ARG, "the built-in corpus needs a cache folder; pass --data");
    bt_builtin_path(path, sizeof path, cache_dir);
    if (stat(path, &st) != 0)
        return bt_fail(err, BT_NOTFOUND,
                       "the built-in corpus is not at '%s': install bible-kjv or pass --data",
                       path);
    return add_source(s, path, BT_SOURCE_TEXT, &st, word, err);
}

static bt_code add_source_word(const walk *at, const char *w, const char *cache_dir, bt_err *err) {
    bt_sources *s = at->s;
    const size_t word = at->word;
    if (strcmp(w, "builtin") == 0) return add_builtin(s, cache_dir, word, err);
    if (strcmp(w, "synth:chain") == 0 || strcmp(w, "synth:random") == 0)
        return add_source(s, w, BT_SOURCE_SYNTH, NULL, word, err);
    if (strncmp(w, "synth:", 6) == 0)
        return bt_fail(err, BT_ARG, "there is no synthetic data '%s' (synth:chain, synth:random)",
                       w);
    size_t before = s->n;
    BT_TRY(add_path(at, w, 0, err));
    if (s->n > before) return BT_OK;
    if (*at->glob)
        return bt_fail(
            err, BT_ARG,
            "the folder '%.100s' contains no files whose names match '%.60s' (data.glob)", w,
            at->glob);
    if (s->skipped)
        return bt_fail(
            err, BT_ARG,
            "the folder '%.100s' contains no text: %zu file%s skipped, the first is %.120s", w,
            s->skipped, s->skipped == 1 ? " is" : "s are", s->first_skipped);
    return bt_fail(err, BT_ARG, "the folder '%s' contains no files", w);
}

bt_code bt_sources_list_glob(bt_sources *out, const char *paths, const char *glob,
                             const char *cache_dir, bt_err *err) {
    *out = (bt_sources){0};
    bt_code code = BT_OK;
    if (!*paths) paths = "builtin";
    for (size_t word = 0; *paths && code == BT_OK; word++) {
        char w[PATH_MAX];
        size_t n = strcspn(paths, "\n");
        if (n >= sizeof w) {
            code = bt_fail(err, BT_ARG, "the data path '%.100s...' is too long: use a shorter path",
                           paths);
            break;
        }
        memcpy(w, paths, n);
        w[n] = '\0';
        const walk at = {out, glob ? glob : "", word};
        if (n) code = add_source_word(&at, w, cache_dir, err);
        paths += n + (paths[n] == '\n');
    }
    for (size_t i = 0; code == BT_OK && i < out->n; i++)
        if (out->items[i].kind == BT_SOURCE_SYNTH && out->n > 1)
            code = bt_fail(err, BT_ARG, "'%s' cannot be combined with other data: pass it alone",
                           out->items[i].path);
    if (code != BT_OK) bt_sources_release(out);
    return code;
}

uint64_t bt_sources_hash(const bt_source *files, size_t n, const char *field, uint64_t h) {
    for (size_t i = 0; i < n; i++) {
        const bt_source *f = &files[i];
        char full[PATH_MAX];
        const char *path = realpath(f->path, full) ? full : f->path;
        uint64_t facts[3] = {f->bytes, (uint64_t)f->mtime_ns, f->kind};
        h = XXH3_64bits_withSeed(path, strlen(path), h);
        h = XXH3_64bits_withSeed(facts, sizeof facts, h);
        if (f->kind == BT_SOURCE_JSONL && field) h = XXH3_64bits_withSeed(field, strlen(field), h);
    }
    return h;
}

void bt_sources_release(bt_sources *s) {
    for (size_t i = 0; i < s->n; i++) free(s->items[i].path);
    free(s->items);
    *s = (bt_sources){0};
}

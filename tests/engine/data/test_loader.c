/* test_loader.c - the loader: order, splits, ranks, resuming, bad data. */
#include "tests/engine/data/data_fixture.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include "engine/data/io/sources.h"
#include "engine/data/shards/shard.h"
#include "engine/data/tokenizer/tokenizer.h"

/* Returns the inputs and targets of every sequence of `ranks` ranks in steps [from, to), in global order. */
static int32_t *steps_of(bt_loader_cfg cfg, int ranks, int64_t from, int64_t to) {
    size_t row = (size_t)cfg.T, per_step = (size_t)cfg.sequences_per_step * row * 2,
           part = (size_t)cfg.sequences_per_step / (size_t)ranks;
    int32_t *all = calloc(per_step * (size_t)(to - from), sizeof *all);
    assert_non_null(all);
    for (int r = 0; r < ranks; r++) {
        bt_loader *l;
        bt_err err = BT_ERR_INIT;
        bt_batch b;
        cfg.first_step = from;
        cfg.first_sequence = r * (int)part;
        cfg.n_sequences = (int)part;
        bt_code code = bt_loader_open(&l, &cfg, &err);
        if (code != BT_OK) fail_msg("%s", err.msg);
        for (size_t s = 0; s < (size_t)(to - from); s++) {
            for (size_t g = 0; g < part; g += (size_t)cfg.B) {
                assert_int_equal(bt_loader_next(l, &b, &err), BT_OK);
                size_t at = s * per_step + ((size_t)r * part + g) * 2 * row;
                for (size_t i = 0; i < (size_t)cfg.B; i++) {
                    memcpy(all + at + i * 2 * row, b.inputs + i * row, row * sizeof *all);
                    memcpy(all + at + i * 2 * row + row, b.targets + i * row, row * sizeof *all);
                }
            }
        }
        bt_loader_close(l);
    }
    return all;
}

static void same_batches_on_any_ranks(void **state) {
    (void)state;
    char *text = fixture_prose(20000);
    bt_loader_cfg cfg = fixture_cfg(fixture_text("ranks.txt", text));
    cfg.sequences_per_step = 12;
    cfg.B = 1;
    size_t bytes = 12 * 2 * 16 * 9 * sizeof(int32_t);
    int32_t *one = steps_of(cfg, 1, 3, 12);
    for (int ranks = 2; ranks <= 4; ranks++) {
        cfg.B = ranks == 4 ? 3 : 1;
        int32_t *many = steps_of(cfg, ranks, 3, 12);
        assert_memory_equal(one, many, bytes);
        free(many);
    }
    free(one);
    free(text);
}

/* Every sequence occurs once although the shares change between steps. */
static void moved_shares_leave_no_gap(void **state) {
    (void)state;
    /* first sequence of rank 0 and rank 1 in each step */
    static const int first[][2] = {{0, 6}, {0, 9}, {0, 3}, {0, 3}, {0, 6}};
    char *text = fixture_prose(20000);
    bt_loader_cfg cfg = fixture_cfg(fixture_text("move.txt", text));
    bt_err err = BT_ERR_INIT;
    bt_batch b;
    size_t row = (size_t)cfg.T;
    cfg.sequences_per_step = 12;
    cfg.B = 3;
    int32_t *one = steps_of(cfg, 1, 3, 8);
    for (int r = 0; r < 2; r++) {
        bt_loader *l;
        cfg.first_step = 3;
        cfg.first_sequence = first[0][r];
        cfg.n_sequences = 6;
        assert_int_equal(bt_loader_open(&l, &cfg, &err), BT_OK);
        for (size_t s = 0; s < 5; s++) {
            int from = first[s][r], to = r == 0 ? first[s][1] : 12;
            if (s > 0 && (from != first[s - 1][r] || first[s][1] != first[s - 1][1]))
                assert_int_equal(bt_loader_move(l, 3 + (int64_t)s, from, to - from, &err), BT_OK);
            for (int g = from; g < to; g += 3) {
                assert_int_equal(bt_loader_next(l, &b, &err), BT_OK);
                for (int i = 0; i < 3; i++) {
                    const int32_t *want = one + (s * 12 + (size_t)(g + i)) * 2 * row;
                    assert_memory_equal(b.inputs + (size_t)i * row, want, row * sizeof *want);
                    assert_memory_equal(b.targets + (size_t)i * row, want + row,
                                        row * sizeof *want);
                }
            }
        }
        /* not a multiple of the micro-batch */
        assert_int_equal(bt_loader_move(l, 9, 0, 4, &err), BT_ARG);
        /* beyond the step */
        assert_int_equal(bt_loader_move(l, 9, 6, 9, &err), BT_ARG);
        bt_loader_close(l);
    }
    free(one);
    free(text);
}

static void resume_continues(void **state) {
    (void)state;
    char *text =
        fixture_prose(4000); /* An epoch has 237 sequences, so 100 steps cover several epochs. */
    bt_loader_cfg cfg = fixture_cfg(fixture_text("resume.txt", text));
    size_t step = 4 * 2 * 16;
    int32_t *all = steps_of(cfg, 1, 0, 200);
    for (int64_t k = 1; k < 200; k += 33) {
        int32_t *rest = steps_of(cfg, 2, k, 200);
        assert_memory_equal(all + (size_t)k * step, rest, (size_t)(200 - k) * step * sizeof *all);
        free(rest);
    }
    free(all);
    free(text);
}

/* Every epoch visits each sequence once, in another order; without shuffling the order is that of the text. */
static void epochs_are_permutations(void **state) {
    (void)state;
    enum { N = 50, T = 16 };
    unsigned char text[N * T + 1];
    /* The first id identifies the sequence. */
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (unsigned char)(i % T == 0 ? 'A' + i / T : 'a');
    bt_loader_cfg cfg = fixture_cfg(fixture_write("epochs.txt", text, sizeof text - 1));
    cfg.val_frac = 0;
    cfg.sequences_per_step = cfg.n_sequences = N;
    int32_t *e = steps_of(cfg, 1, 0, 3);
    for (size_t epoch = 0; epoch < 3; epoch++) {
        int seen[N] = {0}, moved = 0;
        for (size_t g = 0; g < N; g++) {
            int32_t first = e[(epoch * N + g) * 2 * T];
            assert_in_range(first, 'A', 'A' + N - 1);
            seen[first - 'A']++;
            moved += first - 'A' != (int)g;
            /* Targets are the inputs shifted by one. */
            assert_memory_equal(e + (epoch * N + g) * 2 * T + 1, e + (epoch * N + g) * 2 * T + T,
                                (T - 1) * sizeof *e);
        }
        for (size_t g = 0; g < N; g++) assert_int_equal(seen[g], 1);
        assert_true(moved > N / 2);
    }
    assert_memory_not_equal(e, e + N * 2 * T, N * 2 * T * sizeof *e);
    free(e);
    cfg.shuffle = false;
    e = steps_of(cfg, 1, 0, 2);
    for (size_t g = 0; g < 2 * N; g++) assert_int_equal(e[g * 2 * T], 'A' + g % N);
    free(e);
}

/* The beginning of each of two files is training data and its end validation data; together they contain every token
 * once. */
static void splits_are_disjoint(void **state) {
    (void)state;
    char *a = malloc(1000), *b = malloc(600), list[600];
    /* 1000 bytes with the newline: 100 for validation */
    for (int i = 0; i < 999; i++) a[i] = (char)(i < 899 ? '1' : '2');
    a[999] = '\n';
    for (int i = 0; i < 599; i++)
        b[i] = (char)(i < 539 ? '3' : '4'); /* 600 bytes: 60 for validation */
    b[599] = '\n';
    snprintf(list, sizeof list, "%s\n%s", fixture_write("a.txt", a, 1000),
             fixture_write("b.txt", b, 600));
    bt_loader_cfg cfg = fixture_cfg(list);
    cfg.val_frac = 0.1;
    cfg.shuffle = false;
    cfg.B = cfg.sequences_per_step = cfg.n_sequences = 1;
    cfg.T = 1;
    for (int split = 0; split < 2; split++) {
        cfg.split = split ? BT_SPLIT_VAL : BT_SPLIT_TRAIN;
        bt_loader *l;
        assert_int_equal(bt_loader_open(&l, &cfg, NULL), BT_OK);
        assert_int_equal(bt_loader_tokens(l), split ? 160 : 1440);
        assert_float_equal(bt_loader_bytes_per_token(l), 1.0, 0);
        int64_t n = bt_loader_sequences(l);
        bt_loader_close(l);
        int32_t *e = steps_of(cfg, 1, 0, n);
        int seen[256] = {0};
        for (int64_t i = 0; i < n; i++) seen[e[2 * i]]++;
        seen[e[2 * n - 1]]++; /* the last target */
        assert_int_equal(seen['1'], split ? 0 : 899);
        assert_int_equal(seen['2'], split ? 99 : 1);
        assert_int_equal(seen['3'], split ? 0 : 539);
        assert_int_equal(seen['4'], split ? 59 : 1);
        free(e);
    }
    free(a);
    free(b);
}

/* data.fold moves the validation data to another part of the text, here of 1000 known bytes; all other bytes are
 * training data. */
static void folds_are_disjoint(void **state) {
    (void)state;
    enum { N = 1000 };
    char text[N + 1];
    int held[N] = {0}, last = 0;
    for (int i = 0; i < N; i++) text[i] = (char)('a' + i * 26 / N);
    text[N - 1] = '\n';
    bt_loader_cfg cfg = fixture_cfg(fixture_write("folds.txt", text, N));
    cfg.val_frac = 0.1;
    cfg.shuffle = false;
    cfg.B = cfg.sequences_per_step = cfg.n_sequences = 1;
    cfg.T = 1;
    for (int fold = 1; fold <= 4; fold++) {
        char of[8];
        snprintf(of, sizeof of, "%d/4", fold);
        assert_int_equal(bt_fold_parse(&cfg.fold, of, cfg.val_frac, NULL), BT_OK);
        const int begin = N * fold / 4 - N / 10;
        int at = 0;
        for (cfg.split = BT_SPLIT_TRAIN; cfg.split <= BT_SPLIT_VAL; cfg.split++) {
            const int n = cfg.split == BT_SPLIT_VAL ? N / 10 : N - N / 10;
            int32_t *e = steps_of(cfg, 1, 0, n - 1);
            for (int k = 0; k < n - 1; k++) {
                at = cfg.split == BT_SPLIT_VAL ? begin + k : k < begin ? k : k + N / 10;
                assert_int_equal(e[2 * k], text[at]);
                held[at] += cfg.split == BT_SPLIT_VAL;
            }
            free(e);
        }
        last = at;
    }
    assert_int_equal(last, N - 2);
    for (int i = 0; i < N; i++) assert_true(held[i] <= 1);
}

static void fold_texts(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double val_frac;
        const char *fault; /* NULL: the data are read */
    } rows[] = {{"", 0.05, NULL},
                {"1/1", 0.9, NULL},
                {"2/20", 0.05, NULL},
                {"2/3", 0.4, "(set data.val_frac=0.333 or less)"},
                {"0/5", 0.05, "is not of the form I/K"},
                {"6/5", 0.05, "is not of the form I/K"},
                {"1/", 0.05, "is not of the form I/K"},
                {"-1/5", 0.05, "is not of the form I/K"},
                {"1/5x", 0.05, "is not of the form I/K"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bt_err err = BT_ERR_INIT;
        bt_fold fold;
        const bt_code code = bt_fold_parse(&fold, rows[i].text, rows[i].val_frac, &err);
        assert_int_equal(code, rows[i].fault ? BT_ARG : BT_OK);
        if (rows[i].fault) assert_non_null(strstr(err.msg, rows[i].fault));
    }
}

static void own_validation_files(void **state) {
    (void)state;
    char train[256], val[256];
    strcpy(train, fixture_text("own_train.txt",
                               "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n"));
    strcpy(val, fixture_text("own_val.txt", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n"));
    bt_loader_cfg cfg = fixture_cfg(train);
    cfg.val_paths = val;
    bt_loader *l;
    bt_batch b;
    assert_int_equal(bt_loader_open(&l, &cfg, NULL), BT_OK);
    assert_int_equal(bt_loader_tokens(l), 63); /* the whole text */
    bt_loader_close(l);
    cfg.split = BT_SPLIT_VAL;
    assert_int_equal(bt_loader_open(&l, &cfg, NULL), BT_OK);
    assert_int_equal(bt_loader_tokens(l), 35);
    assert_int_equal(bt_loader_next(l, &b, NULL), BT_OK);
    assert_int_equal(b.inputs[0], 'b');
    bt_loader_close(l);
}

static void check_refused_data(bt_loader_cfg cfg, bt_code code, const char *words) {
    bt_loader *l;
    bt_err err = BT_ERR_INIT;
    bt_code got = bt_loader_open(&l, &cfg, &err);
    if (got != code || !strstr(err.msg, words))
        fail_msg("code %d (wanted %d): %s (wanted '%s')", got, code, err.msg, words);
    assert_null(l);
}

static void bad_data_is_named(void **state) {
    (void)state;
    bt_loader_cfg cfg;
    check_refused_data(fixture_cfg(fixture_path("nothing.txt")), BT_NOTFOUND, "nothing.txt");
    check_refused_data(fixture_cfg(fixture_text("empty.txt", "")), BT_ARG,
                       "0 tokens for training, but one sequence needs 17");
    check_refused_data(fixture_cfg(fixture_text("short.txt", "too short")), BT_ARG,
                       "one sequence needs 17");
    check_refused_data(fixture_cfg(fixture_write("binary.txt", "abc\0def", 7)), BT_FORMAT,
                       "NUL at byte 3");
    check_refused_data(fixture_cfg(fixture_write("packed.txt", "\x1f\x8b\x08\x00\x00", 5)),
                       BT_FORMAT, "gzip");
    check_refused_data(fixture_cfg(fixture_write("wide.txt",
                                                 "\xff\xfe"
                                                 "a\0b\0",
                                                 6)),
                       BT_FORMAT, "UTF-16");
    check_refused_data(fixture_cfg("builtin"), BT_NOTFOUND, "install bible-kjv or pass --data");
    cfg = fixture_cfg(
        fixture_text("fine.txt", "this is long enough for the sequence of sixteen bytes"));
    cfg.split = BT_SPLIT_VAL;
    check_refused_data(cfg, BT_ARG, "increase data.val_frac");
    cfg.V = 100;
    check_refused_data(cfg, BT_ARG, "model.vocab=256");
    cfg = fixture_cfg("synth:chain");
    cfg.B = 3;
    check_refused_data(cfg, BT_ARG, "not a multiple of the micro-batch of 3");
    cfg = fixture_cfg("synth:chain");
    cfg.first_sequence = 1;
    check_refused_data(cfg, BT_ARG, "outside a step of 4");
}

static void folders_are_sorted_and_hidden_files_skipped(void **state) {
    (void)state;
    char dir[256];
    strcpy(dir, fixture_path("tree"));
    char command[1024];
    snprintf(command, sizeof command,
             "mkdir -p %s/b/c %s/a && printf 1111111111111111111 > %s/b/c/x.txt && printf "
             "2222222222222222222 > %s/a/z.txt && printf 33333333333333333 > %s/b/d.md "
             "&& printf '\\0' > %s/.hidden && ln -s nowhere-else/../b %s/b2",
             dir, dir, dir, dir, dir, dir, dir);
    assert_int_equal(system(command), 0);
    bt_loader_cfg cfg = fixture_cfg(dir);
    /* A dangling link is skipped and reported; all other files are read. */
    bt_sources found;
    assert_int_equal(bt_sources_list_glob(&found, dir, "", "", NULL), BT_OK);
    assert_int_equal(found.n, 3);
    assert_int_equal(found.skipped, 1);
    assert_non_null(strstr(found.first_skipped, "/b2 (a link that leads nowhere)"));
    bt_sources_release(&found);
    snprintf(command, sizeof command, "rm %s/b2 && ln -s b/c %s/c && ln -s . %s/loop", dir, dir,
             dir);
    assert_int_equal(system(command), 0);
    check_refused_data(cfg, BT_ARG, "nested more than");
    snprintf(command, sizeof command, "rm %s/loop", dir);
    assert_int_equal(system(command), 0);
    cfg.val_frac = 0;
    cfg.shuffle = false;
    /* 20 + 20 + 18 + 20 bytes with their newlines */
    cfg.T = 59;
    cfg.B = cfg.sequences_per_step = cfg.n_sequences = 1;
    int32_t *e = steps_of(cfg, 1, 0, 1);
    assert_int_equal(e[0], '2');
    assert_int_equal(e[19], '\n');
    assert_int_equal(e[20], '1');
    assert_int_equal(e[40], '3');
    assert_int_equal(e[58], '1');
    free(e);
}

/* If the cache folder is missing or cannot be written, tokens are kept in memory. */
static void cache_is_optional(void **state) {
    (void)state;
    char *text = fixture_prose(5000);
    bt_loader_cfg cfg = fixture_cfg(fixture_text("cache.txt", text));
    int32_t *with = steps_of(cfg, 1, 0, 10), *again = steps_of(cfg, 1, 0, 10);
    cfg.cache_dir = "";
    int32_t *without = steps_of(cfg, 1, 0, 10);
    cfg.cache_dir = "/proc/nowhere";
    int32_t *refused = steps_of(cfg, 1, 0, 10);
    assert_memory_equal(with, again, 10 * 4 * 2 * 16 * sizeof *with);
    assert_memory_equal(with, without, 10 * 4 * 2 * 16 * sizeof *with);
    assert_memory_equal(with, refused, 10 * 4 * 2 * 16 * sizeof *with);
    free(with);
    free(again);
    free(without);
    free(refused);
    free(text);
}

/* The number of shards exceeds the limit of open descriptors. */
static void hundreds_of_shards(void **state) {
    (void)state;
    enum { N = 300 };
    bt_tokenizer *t;
    struct rlimit old, few = {160, 0};
    char dir[256];
    strcpy(dir, fixture_path("many"));
    assert_int_equal(mkdir(dir, 0777), 0);
    assert_int_equal(bt_tokenizer_load(&t, "bytes", NULL), BT_OK);
    uint32_t ones[256];
    for (int i = 0; i < 256; i++) ones[i] = 1;
    for (int i = 0; i < N; i++) {
        char name[64];
        int32_t ids[3] = {i % 256, i / 256, '\n'};
        bt_shard_writer *w;
        snprintf(name, sizeof name, "many/%03d.bts", i);
        assert_int_equal(
            bt_shard_writer_create(&w, fixture_path(name), 256, bt_tokenizer_hash(t), NULL), BT_OK);
        assert_int_equal(bt_shard_append(w, ids, 3, ones, NULL), BT_OK);
        assert_int_equal(bt_shard_finish(w, NULL, NULL), BT_OK);
    }
    bt_tokenizer_free(t);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    few.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    bt_loader_cfg cfg = fixture_cfg(dir);
    cfg.val_frac = 0;
    cfg.T = 3;
    cfg.B = 1;
    cfg.sequences_per_step = cfg.n_sequences = N - 1;
    int32_t *e = steps_of(cfg, 1, 0, 3);
    cfg.shuffle = false;
    int32_t *sorted = steps_of(cfg, 1, 0, 1);
    for (int g = 0; g < N - 1; g++) {
        assert_int_equal(sorted[g * 6] + 256 * sorted[g * 6 + 1], g);
        for (int epoch = 0; epoch < 3; epoch++)
            assert_int_equal(e[(epoch * (N - 1) + g) * 6 + 2], '\n');
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    free(e);
    free(sorted);
}

static void the_hash_distinguishes_data(void **state) {
    (void)state;
    uint64_t hash[4];
    char *text = fixture_prose(3000);
    bt_loader_cfg cfg = fixture_cfg(fixture_text("hash.txt", text));
    for (int i = 0; i < 4; i++) {
        bt_loader *l;
        /* another name with the same content */
        if (i == 1) cfg.paths = fixture_text("same.txt", text);
        if (i == 2) cfg.val_frac = 0.2;
        if (i == 3) {
            text[10] ^= 1;
            cfg.val_frac = 0.05;
            cfg.paths = fixture_text("other.txt", text);
        }
        assert_int_equal(bt_loader_open(&l, &cfg, NULL), BT_OK);
        hash[i] = bt_loader_hash(l);
        bt_loader_close(l);
    }
    assert_true(hash[0] == hash[1]);
    assert_true(hash[0] != hash[2]);
    assert_true(hash[0] != hash[3]);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_batches_on_any_ranks),
        cmocka_unit_test(moved_shares_leave_no_gap),
        cmocka_unit_test(resume_continues),
        cmocka_unit_test(epochs_are_permutations),
        cmocka_unit_test(splits_are_disjoint),
        cmocka_unit_test(folds_are_disjoint),
        cmocka_unit_test(fold_texts),
        cmocka_unit_test(own_validation_files),
        cmocka_unit_test(bad_data_is_named),
        cmocka_unit_test(folders_are_sorted_and_hidden_files_skipped),
        cmocka_unit_test(cache_is_optional),
        cmocka_unit_test(hundreds_of_shards),
        cmocka_unit_test(the_hash_distinguishes_data),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}

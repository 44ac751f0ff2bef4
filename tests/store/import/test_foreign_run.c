/* test_foreign_run.c - files of other programs: names become metrics, values and steps arrive, damage is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "store/export/tb_file.h"
#include "store/import/foreign_run.h"

static char file[] = "/tmp/bt_import_XXXXXX";

static void write_bytes(const void *bytes, size_t n) {
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void names_become_metrics(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int metric;
    } rows[] = {
        {"loss", BT_MS_LOSS},
        {"train/loss", BT_MS_LOSS},
        {"Loss/train", BT_MS_LOSS},
        {"train_loss", BT_MS_LOSS},
        {"val_loss", BT_MS_VAL_LOSS},
        {"train/val_loss", BT_MS_VAL_LOSS},
        {"eval_loss", BT_MS_VAL_LOSS},
        {"eval/loss", BT_MS_VAL_LOSS},
        {"validation/loss", BT_MS_VAL_LOSS},
        {"Loss/test", BT_MS_VAL_LOSS},
        {"brisk-owl-3 - eval/loss", BT_MS_VAL_LOSS},
        {"learning_rate", BT_MS_LR},
        {"train/learning_rate", BT_MS_LR},
        {"learning-rate", BT_MS_LR},
        {"grad_norm", BT_MS_GRAD_NORM},
        {"speed/tokens_per_s", BT_MS_TOKENS_PER_S},
        {"num_input_tokens_seen", BT_MS_TOKENS},
        {"eval_accuracy", BT_MS_VAL_ACCURACY},
        {"eval/learning_rate", -1},
        {"loss__MIN", -1},
        {"epoch", -1},
        {"", -1},
        {"train/", -1},
        {"/", -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (bt_metric_of_name(rows[i].name) != rows[i].metric)
            fail_msg("'%s' is metric %d, not %d", rows[i].name, bt_metric_of_name(rows[i].name),
                     rows[i].metric);
}

static void tables_and_rows_are_read(void **state) {
    (void)state;
    /* each file has loss 3 in step 10, and 2.5 with the validation loss 4 in step 20; its last column is unknown */
    static const char *const files[] = {
        "step,train/loss,eval/loss,color\n10,3,,red\n20,2.5,4,blue\n",
        "\xEF\xBB\xBF\"global_step\";\"loss\";\"val_loss\";\"color\"\r\n\"20\";\"9\";\"4\";\"a "
        "\"\"b\"\"\"\r\n10;3;;\r\n20;2.5;;x\r\n",
        "color\titeration\tloss\tloss/val\nred\t10\t3\t\nred\t20\t2.5\t4",
        "{\"log_history\": [{\"loss\": 3, \"step\": 10, \"grad_norm\": NaN, \"color\": "
        "\"red\"},\n{\"loss\": 2.5, \"step\": 20},"
        "{\"eval_loss\": 4, \"step\": 20}, {\"train_loss\": 99, \"train_runtime\": 1, \"step\": "
        "20}]}",
        "[{\"step\": 10, \"loss\": 3, \"color\": \"red\"}, {\"step\": 20, \"loss\": 2.5, "
        "\"eval_loss\": 4, \"lr\": null}]",
        "{\"current_steps\": 10, \"loss\": 3, \"color\": \"a\"}\n{\"current_steps\": 20, \"loss\": "
        "2.5, \"eval/loss\": 4}\n{\"curr",
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        bt_foreign_run r;
        bt_err err = BT_ERR_INIT;
        write_bytes(files[i], strlen(files[i]));
        if (bt_foreign_run_read(&r, file, &err) != BT_OK) fail_msg("file %zu: %s", i, err.msg);
        assert_int_equal(r.n, 2);
        assert_int_equal(r.at[0].step, 10);
        assert_true(r.at[0].values[BT_MS_LOSS] == 3);
        assert_true(isnan(r.at[0].values[BT_MS_VAL_LOSS]));
        assert_true(isnan(r.at[0].values[BT_MS_GRAD_NORM]));
        assert_int_equal(r.at[1].step, 20);
        assert_true(r.at[1].values[BT_MS_LOSS] == 2.5);
        assert_true(r.at[1].values[BT_MS_VAL_LOSS] == 4);
        assert_string_equal(bt_text_str(&r.unused), "color");
        bt_foreign_run_release(&r);
    }
}

/* Writes an event file and returns its size. */
static size_t write_events(char *bytes, size_t size) {
    bt_tb_file t;
    FILE *f = fopen(file, "w+");
    assert_non_null(f);
    bt_tb_init(&t, f, 1000);
    for (int i = 1; i <= 5; i++) {
        bt_tb_scalar(&t, (bt_tb_at){1000 + i, i}, "train/loss", 1.0 / i);
        bt_tb_text(&t, (bt_tb_at){1000 + i, i}, "notes", "a text");
    }
    bt_tb_release(&t);
    rewind(f);
    const size_t n = fread(bytes, 1, size, f);
    assert_int_equal(fclose(f), 0);
    return n;
}

static void events_are_read(void **state) {
    (void)state;
    bt_foreign_run r;
    bt_err err = BT_ERR_INIT;
    char bytes[4096];
    const size_t n = write_events(bytes, sizeof bytes);
    assert_int_equal(bt_foreign_run_read(&r, file, &err), BT_OK);
    assert_int_equal(r.n, 5);
    assert_int_equal(r.at[4].step, 5);
    assert_true(r.at[4].wall_s == 1005);
    assert_true(r.at[4].values[BT_MS_LOSS] == (double)0.2f);
    assert_string_equal(bt_text_str(&r.unused), "notes");
    assert_int_equal(r.notes.len, 0);
    bt_foreign_run_release(&r);
    /* Another program may be writing the last record. */
    write_bytes(bytes, n - 3);
    assert_int_equal(bt_foreign_run_read(&r, file, &err), BT_OK);
    assert_int_equal(r.n, 5);
    assert_non_null(strstr(bt_text_str(&r.notes), "incomplete"));
    bt_foreign_run_release(&r);
    /* Each damaged byte is noticed. */
    for (size_t i = 100; i < n; i++) {
        bytes[i] ^= 4;
        write_bytes(bytes, n);
        assert_int_equal(bt_foreign_run_read(&r, file, &err), BT_FORMAT);
        assert_non_null(strstr(err.msg, "is damaged"));
        bytes[i] ^= 4;
    }
}

static void other_files_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *words;
    } rows[] = {
        {"", "is empty"},
        {"a,b\n1,2\n", "no column for the step"},
        {"step,color\n1,red\n", "has no value of a known metric"},
        {"step,loss\n1,2,3\n", "line 2 has more than 2 cells"},
        {"step,loss\n1,\"2\n", "line 2: the quotes are not closed"},
        {"step,\"loss\n", "the header line is not CSV"},
        {"[{\"step\": 1, \"loss\": }]", "line 1"},
        {"{\"step\": 1,\n\"loss\": 2, \"loss\": 3}", "line 2"},
        {"{\"loss\": 2}\n", "has no value of a known metric"},
        {"step,loss\n1e300,2\n", "has no value of a known metric"},
    };
    bt_foreign_run r;
    bt_err err = BT_ERR_INIT;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_bytes(rows[i].text, strlen(rows[i].text));
        assert_int_equal(bt_foreign_run_read(&r, file, &err), BT_FORMAT);
        if (!strstr(err.msg, rows[i].words)) fail_msg("'%s' lacks '%s'", err.msg, rows[i].words);
        assert_null(r.at);
    }
    write_bytes("step,loss\n1,2\0\n", 15);
    assert_int_equal(bt_foreign_run_read(&r, file, &err), BT_FORMAT);
    assert_non_null(strstr(err.msg, "neither text nor a TensorBoard event file"));
    assert_int_equal(bt_foreign_run_read(&r, "/tmp/bt_import_none", &err), BT_NOTFOUND);
    assert_int_equal(bt_foreign_run_read(&r, "/proc/self/task", &err), BT_NOTFOUND);
}

static int make_file(void **state) {
    (void)state;
    const int fd = mkstemp(file);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state) {
    (void)state;
    return unlink(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_become_metrics),
        cmocka_unit_test(tables_and_rows_are_read),
        cmocka_unit_test(events_are_read),
        cmocka_unit_test(other_files_are_refused),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}

/* test_json_fields.c - structs and arrays of structs are written as JSON, with members of every kind. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "engine/base/system/json_fields.h"

typedef struct sample {
    char text[8], empty[8];
    const char *word;
    double real, missing;
    int whole, index;
    int64_t wide, step;
    size_t size;
    bool flag;
    enum { RED, GREEN } colour;
} sample;

static const char *colour_name(int c) { return c == GREEN ? "green" : "red"; }

static void members_of_every_kind_are_written(void **state) {
    (void)state;
    const sample x = {.text = "a\"b",
                      .word = NULL,
                      .real = 0.5,
                      .missing = NAN,
                      .whole = -2,
                      .index = -1,
                      .wide = INT64_MIN,
                      .step = -1,
                      .size = 7,
                      .flag = true,
                      .colour = GREEN};
    bt_text out = {0};
    bt_json j;
    bt_json_begin(&j, &out);
    bt_json_object(&j, NULL);
    BT_JSON_FIELDS(&j, &x, F(text), F_AS("other", word), F(real), F(missing), F(whole), F(wide),
                   F(size), F(flag), F_KIND("empty", empty, BT_JSON_SAID),
                   F_KIND("unknown", missing, BT_JSON_KNOWN), F_KIND("known", real, BT_JSON_KNOWN),
                   F_KIND("step", step, BT_JSON_AT), F_KIND("index", index, BT_JSON_INDEX),
                   F_ENUM("colour", colour, colour_name));
    bt_json_end(&j, '}');
    assert_string_equal(bt_text_str(&out),
                        "{\"text\":\"a\\\"b\",\"other\":null,\"real\":0.5,\"missing\":null,"
                        "\"whole\":-2,\"wide\":-9223372036854775808,\"size\":7,\"flag\":true,"
                        "\"empty\":null,\"known\":0.5,\"step\":null,\"index\":null,"
                        "\"colour\":\"green\"}");
    bt_text_release(&out);
}

static void arrays_of_structs_are_written(void **state) {
    (void)state;
    const sample x[] = {{.step = 0, .index = 3}, {.step = 9}};
    bt_text out = {0};
    bt_json j;
    bt_json_begin(&j, &out);
    bt_json_object(&j, NULL);
    BT_JSON_ROWS(&j, "none", x, 0, F(step));
    BT_JSON_ROWS(&j, "two", x, 2, F_KIND("step", step, BT_JSON_AT),
                 F_KIND("rank", index, BT_JSON_INDEX));
    bt_json_end(&j, '}');
    assert_string_equal(bt_text_str(&out),
                        "{\"none\":[],\"two\":[{\"step\":0,\"rank\":3},{\"step\":9,\"rank\":0}]}");
    bt_text_release(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(members_of_every_kind_are_written),
                                       cmocka_unit_test(arrays_of_structs_are_written)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

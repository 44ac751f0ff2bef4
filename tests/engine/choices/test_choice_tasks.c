/* test_choice_tasks.c - prompts of multiple-choice tasks equal those of lm-evaluation-harness 0.4.13. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/choices/choice_tasks.h"

static bt_code read_line(int task, const char *json, bt_choice_item *q, bt_err *err) {
    json_error_t why;
    json_t *o = json_loads(json, 0, &why);
    if (!o) fail_msg("%s", why.text);
    memset(q, 0, sizeof *q);
    *err = (bt_err)BT_ERR_INIT;
    bt_code code = bt_choice_task_at(task)->read(o, q, err);
    json_decref(o);
    return code;
}

static void arc_prompts_equal_the_harness(void **state) {
    (void)state;
    bt_choice_item q;
    bt_err err;
    assert_int_equal(
        read_line(0,
                  "{\"id\":\"x\",\"question\":\"Which is a mammal?\",\"choices\":{\"text\":"
                  "[\"a fish\",\"a dog\",\"a fly\"],\"label\":[\"1\",\"2\",\"3\"]},"
                  "\"answerKey\":\"2\"}",
                  &q, &err),
        BT_OK);
    assert_string_equal(bt_text_str(&q.context), "Question: Which is a mammal?\nAnswer:");
    assert_int_equal(q.n, 3);
    assert_int_equal(q.gold, 1);
    assert_string_equal(bt_text_str(&q.choices[1]), "a dog");
    bt_choice_item_release(&q);
}

/* These strings are the output of the harness's preprocess(). */
static void hellaswag_prompts_equal_the_harness(void **state) {
    (void)state;
    bt_choice_item q;
    bt_err err;
    assert_int_equal(
        read_line(1,
                  "{\"activity_label\":\"Roof shingle removal\",\"ctx_a\":\"A man is sitting on a "
                  "roof. [header] Hm [title] How  to\",\"ctx_b\":\"he STARTS\",\"endings\":"
                  "[\" is using [step] wrap. \",\"b [a] [b]c\"],\"label\":\"1\"}",
                  &q, &err),
        BT_OK);
    assert_string_equal(bt_text_str(&q.context),
                        "Roof shingle removal: A man is sitting on a roof. "
                        "Hm. How to He starts");
    assert_string_equal(bt_text_str(&q.choices[0]), "is using wrap.");
    assert_string_equal(bt_text_str(&q.choices[1]), "b c");
    assert_int_equal(q.gold, 1);
    bt_choice_item_release(&q);
}

static void mmlu_prompts_equal_the_harness(void **state) {
    (void)state;
    bt_choice_item q;
    bt_err err;
    bt_text before = {0};
    assert_int_equal(
        read_line(2,
                  "{\"question\":\" Find x. \",\"subject\":\"abstract_algebra\",\"choices\":"
                  "[\"0\",\"4\",\"2\",\"6\"],\"answer\":2}",
                  &q, &err),
        BT_OK);
    assert_string_equal(bt_text_str(&q.context), "Find x.\nA. 0\nB. 4\nC. 2\nD. 6\nAnswer:");
    assert_string_equal(bt_text_str(&q.choices[3]), "D");
    assert_int_equal(q.gold, 2);
    bt_choice_task_at(2)->describe(q.subject, &before);
    assert_string_equal(bt_text_str(&before),
                        "The following are multiple choice questions (with answers) about abstract "
                        "algebra.\n\n");
    bt_text_release(&before);
    bt_choice_item_release(&q);
}

/* The choices are "éééé" (4 characters, 8 bytes) with -9 nats and "qxzjkq" (6 characters, 6 bytes) with -7 nats. */
static void scores_are_normalised_by_characters_and_bytes(void **state) {
    (void)state;
    const char *a = "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9";
    assert_int_equal(bt_text_letters(a), 4);
    const bt_choice_score s[] = {{-9, bt_text_letters(a), strlen(a)}, {-7, 6, 6}};
    const bt_choice_picked p = bt_choice_pick(s, 2);
    assert_int_equal(p.plain, 1);
    assert_int_equal(p.by_letters, 1);
    assert_int_equal(p.by_bytes, 0);
    const bt_choice_score equal[] = {{-2, 2, 2}, {-2, 2, 2}, {-1.5, 1, 1}};
    assert_int_equal(bt_choice_pick(equal, 2).plain, 0);
    assert_int_equal(bt_choice_pick(equal, 3).plain, 2);
    assert_int_equal(bt_choice_pick(equal, 3).by_letters, 0);
}

static void malformed_tasks_are_refused(void **state) {
    (void)state;
    static const struct {
        int task;
        const char *line, *words;
    } bad[] = {
        {0, "{}", "'question' is missing"},
        {0, "{\"question\":\"x\",\"answerKey\":\"A\"}", "there are 0 choices"},
        {0,
         "{\"question\":\"x\",\"answerKey\":\"C\",\"choices\":{\"text\":[\"a\",\"b\"],"
         "\"label\":[\"A\",\"B\"]}}",
         "'answerKey' is 'C', which is no label"},
        {1, "{\"activity_label\":\"x\",\"ctx_a\":\"y\"}", "'ctx_b' is missing"},
        {1, "{\"activity_label\":\"x\",\"ctx_a\":\"y\",\"ctx_b\":\"z\",\"endings\":[\"a\",1]}",
         "choice 1 is not a text"},
        {1,
         "{\"activity_label\":\"x\",\"ctx_a\":\"y\",\"ctx_b\":\"z\",\"endings\":[\"a\",\"b\"],"
         "\"label\":\"\"}",
         "'label' names none of the 2 choices"},
        {2, "{\"question\":\"x\",\"choices\":[\"a\",\"b\"],\"answer\":2}",
         "'answer' names none of the 2 choices"},
        {2, "{\"question\":\"x\",\"choices\":[\"a\",\"b\"],\"answer\":-1}", "'answer' names none"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bt_choice_item q;
        bt_err err;
        assert_int_equal(read_line(bad[i].task, bad[i].line, &q, &err), BT_FORMAT);
        if (!strstr(err.msg, bad[i].words))
            fail_msg("'%s' does not contain '%s'", err.msg, bad[i].words);
        bt_choice_item_release(&q);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arc_prompts_equal_the_harness),
        cmocka_unit_test(hellaswag_prompts_equal_the_harness),
        cmocka_unit_test(mmlu_prompts_equal_the_harness),
        cmocka_unit_test(scores_are_normalised_by_characters_and_bytes),
        cmocka_unit_test(malformed_tasks_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

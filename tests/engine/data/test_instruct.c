/* test_instruct.c - lines of instruction data become rows: their tokens, the learned tokens, packing. Every kind of
 * malformed line is refused with its file, line and field. */
#include "engine/data/shards/corpus.h"
#include "tests/engine/data/data_fixture.h"
#include "tests/message.h"

static bt_err err;

static bt_loader_cfg cfg_of(const char *path, bt_form_kind kind, int T) {
    bt_loader_cfg c = fixture_cfg(path);
    c.form = (bt_form_cfg){.kind = kind, .template_name = "chatml", .field = "text"};
    c.packing = BT_PACKING_DOCUMENTS;
    c.cache_dir = "";
    c.val_frac = 0;
    c.shuffle = false;
    c.T = T;
    c.B = 1;
    c.sequences_per_step = c.n_sequences = 1;
    return c;
}

/* Returns the first row as text, with '#' at positions whose target is learned. */
static void first_row(const bt_loader_cfg *c, char *text, char *learned) {
    bt_loader *l;
    bt_batch b;
    if (bt_loader_open(&l, c, &err) != BT_OK) fail_msg("%s", err.msg);
    assert_int_equal(bt_loader_next(l, &b, &err), BT_OK);
    int64_t n = 0;
    for (int t = 0; t < c->T; t++) {
        text[t] = b.positions[t] < 0 ? '\0' : (char)b.inputs[t];
        learned[t] = b.targets[t] >= 0 ? '#' : '.';
        if (b.targets[t] >= 0) assert_int_equal(b.targets[t], b.inputs[t + 1]);
        n += b.targets[t] >= 0;
    }
    text[c->T] = learned[c->T] = '\0';
    assert_int_equal(bt_loader_counted(l, 0), n);
    bt_loader_close(l);
}

static void check_first_row(const bt_loader_cfg *c, const char *text, const char *learned) {
    char got[600], marks[600];
    first_row(c, got, marks);
    assert_string_equal(got, text);
    marks[strlen(text)] = '\0';
    assert_string_equal(marks, learned);
}

#define USER(q) "<|im_start|>user\n" q "<|im_end|>\n"
#define BOT(a) "<|im_start|>assistant\n" a "<|im_end|>\n"
#define DOTS_USER "............................" /* length of USER("") */
#define DOTS_BOT "....................."         /* length of the assistant's head minus one */

static void conversations_learn_answers_and_their_ends(void **state) {
    (void)state;
    const char *path = fixture_text(
        "chat.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", "
        "\"content\": \"Yo\"}]}\n\n"
        "{\"conversations\": [{\"from\": \"human\", \"value\": \"A\"}, {\"from\": \"gpt\", "
        "\"value\": \"B\"}]}\n");
    bt_loader_cfg c = cfg_of(path, BT_FORM_MESSAGES, 160);
    const char *text = USER("Hi") BOT("Yo") USER("A") BOT("B");
    /* A position is marked if the next token is learned. */
    check_first_row(
        &c, text, DOTS_USER ".." DOTS_BOT "############.." DOTS_USER "." DOTS_BOT "###########..");
    c.packing = BT_PACKING_PAD;
    check_first_row(&c, USER("Hi") BOT("Yo"), DOTS_USER ".." DOTS_BOT "############..");
}

static void a_long_row_takes_more_documents(void **state) {
    (void)state;
    char *path = strdup(fixture_path("many.jsonl"));
    FILE *f = fopen(path, "w");
    for (int i = 0; i < 40; i++)
        fprintf(f, "{\"text\": \"%.*s\"}\n", 1 + i * 7 % 13, "abcdefghijklmnop");
    fclose(f);
    bt_loader_cfg c = cfg_of(path, BT_FORM_COMPLETION, 16);
    bt_loader *l;
    assert_int_equal(bt_loader_open(&l, &c, &err), BT_OK);
    /* The expected result: documents in order; a row ends where the next document does not fit. */
    int64_t rows = 1, used = 0, counted = 0, documents = 0, want[64] = {0};
    for (int i = 0; i < 40; i++) {
        int n = 1 + i * 7 % 13;
        if (n == 1) continue; /* A document of one token contains no target. */
        if (used + n > 16) rows++, used = 0;
        used += n;
        counted += n - 1;
        documents++;
        want[rows - 1] += n - 1;
    }
    assert_int_equal(bt_loader_sequences(l), rows);
    assert_int_equal(bt_loader_row_facts(l)->documents, documents);
    assert_int_equal(bt_loader_row_facts(l)->counted, counted);
    assert_int_equal(bt_loader_row_facts(l)->empty, 40 - documents);
    for (int64_t r = 0; r < 2 * rows; r++)
        assert_int_equal(bt_loader_counted(l, r), want[r % rows]);
    bt_loader_close(l);
    free(path);
}

/* The share of the split is less than one document, which the error states. */
static void a_split_without_documents_is_named(void **state) {
    (void)state;
    bt_loader *l;
    bt_loader_cfg c = cfg_of(fixture_text("lone.txt", "one text of one document"), BT_FORM_TEXT,
                             16);
    c.split = BT_SPLIT_VAL;
    c.val_frac = 0.05;
    assert_int_equal(bt_loader_open(&l, &c, &err), BT_ARG);
    message_has(err.msg, "data.val_frac=0.05 of 1 document leaves none");
}

/* The number of learned tokens in a step and its data do not depend on which rank reads which part. */
static void a_step_counts_the_same_on_any_layout(void **state) {
    (void)state;
    char *path = strdup(fixture_path("steps.jsonl"));
    FILE *f = fopen(path, "w");
    for (int i = 0; i < 90; i++)
        fprintf(f, "{\"instruction\": \"q%d\", \"input\": \"\", \"output\": \"%.*s\"}\n", i,
                1 + i % 9, "answering");
    fclose(f);
    bt_loader_cfg c = cfg_of(path, BT_FORM_ALPACA, 200);
    c.shuffle = true;
    c.sequences_per_step = 4;
    for (int step = 0; step < 12; step++) {
        int64_t sums[3] = {0}, told[3];
        for (int ranks = 1, k = 0; ranks <= 4; ranks *= 2, k++) {
            for (int r = 0; r < ranks; r++) {
                bt_loader *l;
                bt_batch b;
                c.first_step = step;
                c.n_sequences = 4 / ranks;
                c.first_sequence = r * c.n_sequences;
                assert_int_equal(bt_loader_open(&l, &c, &err), BT_OK);
                for (int i = 0; i < c.n_sequences; i++) {
                    assert_int_equal(bt_loader_next(l, &b, &err), BT_OK);
                    for (int t = 0; t < c.T; t++) sums[k] += b.targets[t] >= 0;
                }
                told[k] = bt_loader_counted(l, step);
                bt_loader_close(l);
            }
            assert_int_equal(sums[k], told[k]);
            assert_int_equal(sums[k], sums[0]);
        }
    }
    free(path);
}

static void alpaca_joins_its_fields(void **state) {
    (void)state;
    const char *path = fixture_text(
        "alpaca.jsonl", "{\"instruction\": \"up\", \"input\": \"x\", \"output\": \"X\", "
                        "\"system\": null, \"history\": [[\"a\", \"b\"]]}\n");
    bt_loader_cfg c = cfg_of(path, BT_FORM_ALPACA, 400);
    char text[600], marks[600];
    first_row(&c, text, marks);
    assert_string_equal(text, USER("a") BOT("b") USER("up\nx") BOT("X"));
    c.form.learn = BT_LEARN_LAST;
    first_row(&c, text, marks);
    assert_int_equal(strchr(marks, '#') - marks,
                     (long)strlen(USER("a") BOT("b") USER("up\nx")) + 21);
    c.form.learn = BT_LEARN_ALL;
    first_row(&c, text, marks);
    assert_int_equal(strspn(marks, "#"), strlen(text) - 1);
    /* Axolotl's text format */
    path = fixture_text("instruct.jsonl",
                        "{\"instruction\": \"up\", \"input\": \"x\", \"output\": \"X\"}\n");
    c = cfg_of(path, BT_FORM_ALPACA, 400);
    c.form.template_name = "alpaca-text";
    first_row(&c, text, marks);
    assert_string_equal(
        text,
        "Below is an instruction that describes a task, paired with an input that provides further "
        "context. Write a response that appropriately completes the request.\n\n### "
        "Instruction:\nup\n\n### Input:\nx\n\n### Response:\nX</s>");
}

static void a_muted_answer_is_not_learned(void **state) {
    (void)state;
    const char *path = fixture_text(
        "muted.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "
        "\"content\": \"bad\", \"train\": false}, {\"role\": \"user\", \"content\": \"r\"}, "
        "{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"good\"}]}]}\n");
    bt_loader_cfg c = cfg_of(path, BT_FORM_MESSAGES, 300);
    char text[600], marks[600];
    first_row(&c, text, marks);
    assert_int_equal(strlen(marks) - strcspn(marks, "#"), 300 - (strlen(text) - 16));
    assert_int_equal(strspn(strchr(marks, '#'), "#"), strlen("good<|im_end|>"));
}

#define TURN(role, content, more) "{\"role\": \"" role "\", \"content\": " content more "}"

/* OpenAI, Axolotl and ms-swift have different keys for the weight of an answer. */
static void answers_of_no_weight_are_not_learned(void **state) {
    (void)state;
    static const char *const keys[] = {"\"weight\": 0", "\"weight\": 0.0", "\"train\": false",
                                       "\"loss\": false"};
    char text[600], marks[600], line[600];
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(line, sizeof line,
                 "{\"messages\": [" TURN("user", "\"q\"", "") ", " TURN(
                     "assistant", "\"bad\"",
                     ", %s") ", " TURN("user", "\"r\"", "") ", " TURN("assistant", "\"good\"",
                                                                      ", \"weight\": 1") "]}\n",
                 keys[i]);
        bt_loader_cfg c = cfg_of(fixture_text("weight.jsonl", line), BT_FORM_MESSAGES, 300);
        first_row(&c, text, marks);
        assert_int_equal(strlen(marks) - strcspn(marks, "#"), 300 - (strlen(text) - 16));
        c.form.learn = BT_LEARN_ALL; /* for the remaining cases */
        first_row(&c, text, marks);
        assert_int_equal(strspn(marks, "#"), strlen(USER("q")) - 1);
        assert_int_equal(strspn(marks + strlen(USER("q")) - 1, "."), strlen(BOT("bad")));
    }
}

static void contents_in_parts_are_joined(void **state) {
    (void)state;
    const char *path = fixture_text(
        "parts.jsonl",
        "{\"messages\": [" TURN(
            "user",
            "[{\"type\": \"text\", \"text\": \"How \"}, {\"type\": "
            "\"text\", \"text\": \"many?\"}]",
            "") ", " TURN("assistant", "[{\"text\": \"S\"}, {\"text\": \"ix\"}]", "") "]}\n");
    bt_loader_cfg c = cfg_of(path, BT_FORM_MESSAGES, 160);
    char text[600], marks[600];
    first_row(&c, text, marks);
    assert_string_equal(text, USER("How many?") BOT("Six"));
}

static void prompts_with_completions_learn_the_completion(void **state) {
    (void)state;
    bt_loader_cfg c =
        cfg_of(fixture_text("pc.jsonl", "{\"prompt\": \"ask: \", \"completion\": \"told\"}\n"),
               BT_FORM_COMPLETION, 40);
    check_first_row(&c, "ask: told", "....####.");
    c.form.learn = BT_LEARN_ALL;
    check_first_row(&c, "ask: told", "########.");
    c = cfg_of(fixture_text("pcm.jsonl",
                            "{\"prompt\": [" TURN("user", "\"Hi\"", "") "], \"completion\": [" TURN(
                                "assistant", "\"Yo\"", "") "]}\n"),
               BT_FORM_COMPLETION, 160);
    check_first_row(&c, USER("Hi") BOT("Yo"), DOTS_USER ".." DOTS_BOT "############..");
}

/* data.bad_rows=skip skips malformed rows; a cached shard gives the same notes. */
static void bad_rows_are_left_out_on_demand(void **state) {
    (void)state;
    const char *path = fixture_text(
        "skip.jsonl",
        "{\"messages\": [" TURN("user", "\"Hi\"", ", \"name\": \"Ann\"") ", " TURN(
            "assistant", "\"Yo\"",
            "") "], \"tools\": []}\n"
                "{\"messages\": [" TURN("user", "\"a\"", "") ", " TURN(
                    "user", "\"b\"", "") "]}\n"
                                         "{\"messages\": [" TURN(
                                             "gpt", "\"a\"",
                                             "") "]}\n"
                                                 "{\"messages\": []}\n{\"text\": null}\n"
                                                 "{\"messages\": [" TURN(
                                                     "user", "null",
                                                     "") "]}\n"
                                                         "{\"messages\": [" TURN(
                                                             "tool", "\"x\"",
                                                             "") "]}\n"
                                                                 "{\"messages\": [" TURN(
                                                                     "user", "\"a\"",
                                                                     ", \"weight\": 0.5") "]}\n");
    bt_loader_cfg c = cfg_of(path, BT_FORM_MESSAGES, 160);
    bt_loader *l;
    assert_int_equal(bt_loader_open(&l, &c, &err), BT_FORMAT);
    assert_non_null(strstr(err.msg, "skip.jsonl' line 2: message 2 has the role 'user'"));
    c.skip_bad_rows = true;
    c.cache_dir = fixture_path("cache");
    for (int again = 0; again < 2; again++) {
        if (bt_loader_open(&l, &c, &err) != BT_OK) fail_msg("%s", err.msg);
        assert_int_equal(bt_loader_row_facts(l)->documents, 1);
        assert_non_null(
            strstr(bt_loader_notes(l), "!7 of 8 rows are bad and left out; the first: '"));
        assert_non_null(strstr(bt_loader_notes(l),
                               " keys of rows that are not used: name in messages (1), tools (1), "
                               "text (1)\n"));
        bt_loader_close(l);
    }
    c.skip_bad_rows = false;
    assert_int_equal(bt_loader_open(&l, &c, &err), BT_FORMAT);
}

static void a_pair_is_left_out_whole(void **state) {
    (void)state;
    const char *path = fixture_text(
        "pairs.jsonl", "{\"prompt\": \"q\", \"chosen\": \"a\", \"rejected\": 5}\n"
                       "{\"prompt\": \"q\", \"chosen\": \"a\", \"rejected\": \"b\"}\n"
                       "{\"input\": {\"messages\": [" TURN(
                           "user", "\"q\"", "") "]}, "
                                                "\"preferred_output\": [" TURN(
                                                    "assistant", "\"a\"",
                                                    "") "], "
                                                        "\"non_preferred_output\": [" TURN(
                                                            "assistant", "\"b\"", "") "]}\n");
    bt_loader_cfg c = cfg_of(path, BT_FORM_PREFERENCE, 300);
    bt_loader *l;
    c.skip_bad_rows = true;
    if (bt_loader_open(&l, &c, &err) != BT_OK) fail_msg("%s", err.msg);
    assert_int_equal(bt_loader_row_facts(l)->documents, 4);
    assert_int_equal(bt_loader_counted_in(l, 0, bt_loader_sequences(l)), 2);
    assert_non_null(strstr(bt_loader_notes(l), "!1 of 3 rows"));
    bt_loader_close(l);
}

/* Opens the rows of single answers, and fails unless the error contains `words` (NULL: no error). */
static bt_loader *open_singles(const char *rows, bt_row_kind kind, int T, const char *words) {
    bt_loader_cfg c = cfg_of(fixture_text("singles.jsonl", rows), BT_FORM_PREFERENCE, T);
    bt_loader *l = NULL;
    c.preferences = kind;
    const bt_code code = bt_loader_open(&l, &c, &err);
    if (!words && code != BT_OK) fail_msg("%s", err.msg);
    if (words && (code == BT_OK || !strstr(err.msg, words)))
        fail_msg("code %d: %s (wanted '%s')", code, code == BT_OK ? "" : err.msg, words);
    return words ? NULL : l;
}

#define GOOD(q, a) "{\"prompt\": \"" q "\", \"completion\": \"" a "\", \"label\": true}\n"
#define BAD(q, a) \
    "{\"messages\": [" TURN("user", "\"" q "\"", "") ", " TURN("assistant", "\"" a "\"", \
                                                               "") "], \"kto_tag\": \"False\"}\n"

/* An example is the answer, one token in place of the other one, and the prompt with the answer of the next example. */
static void single_answers_have_a_mismatched_one(void **state) {
    (void)state;
    static const char want[] = USER("p") BOT("a") "<" USER("p") BOT("bb") "<" USER("q") BOT("bb")
        USER("q") BOT("a");
    bt_batch b;
    bt_loader *l = open_singles(GOOD("p", "a") BAD("q", "bb"), BT_ROWS_MISMATCHED, 400, NULL);
    assert_int_equal(bt_loader_next(l, &b, &err), BT_OK);
    assert_int_equal(bt_loader_counted_in(l, 0, 1), 2);
    int learned = 0, documents = 0;
    for (int t = 0; t < 400; t++) {
        if (t < (int)strlen(want)) assert_int_equal(b.inputs[t], want[t]);
        assert_int_equal(b.positions[t] < 0, t >= (int)strlen(want));
        documents += b.positions[t] == 0;
        learned += b.targets[t] >= 0;
        if (b.targets[t] >= 0) assert_int_equal(b.targets[t], b.inputs[t + 1]);
    }
    assert_int_equal(documents, 6);
    assert_int_equal(learned,
                     2 * (11 + 12)); /* each answer with <|im_end|>, matched and mismatched */
    bt_loader_close(l);

    l = open_singles(GOOD("p", "a") BAD("q", "bb"), BT_ROWS_SINGLES, 130, NULL);
    assert_int_equal(bt_loader_sequences(l), 1);
    assert_int_equal(bt_loader_row_facts(l)->documents, 2);
    bt_loader_close(l);
    /* both answers of a pair are examples, each with the answer of the other pair */
    l = open_singles("{\"prompt\": \"p\", \"chosen\": \"a\", \"rejected\": \"b\"}\n"
                     "{\"prompt\": \"p\", \"chosen\": \"c\", \"rejected\": \"d\"}\n",
                     BT_ROWS_MISMATCHED, 150, NULL);
    assert_int_equal(bt_loader_counted_in(l, 0, bt_loader_sequences(l)), 4);
    bt_loader_close(l);
    /* a mismatched answer is cut where its row ends */
    l = open_singles(GOOD("p", "a") BAD("q", "a much longer answer"), BT_ROWS_MISMATCHED, 135,
                     NULL);
    assert_int_equal(bt_loader_sequences(l), 2);
    bt_loader_close(l);
}

static void unusable_single_answers_are_refused(void **state) {
    (void)state;
    open_singles(GOOD("p", "a") GOOD("q", "b"), BT_ROWS_SINGLES, 200,
                 "all 2 answers to train on are desirable");
    open_singles(BAD("p", "a"), BT_ROWS_MISMATCHED, 200,
                 "all 1 answers to train on are undesirable");
    open_singles(GOOD("p", "a") BAD("q", "b"), BT_ROWS_PAIRS, 200,
                 "has a single answer with a label, but this tune.preference compares two");
    open_singles(GOOD("p", "a") BAD("q", "b"), BT_ROWS_MISMATCHED, 64, "increase model.seq_len");
}

static void assert_line_refused(bt_form_kind kind, const char *line, const char *words) {
    char all[800];
    bt_loader *l;
    snprintf(all, sizeof all, "%s%s\n",
             kind == BT_FORM_COMPLETION ? "{\"text\": \"fine\"}\n"
             : kind == BT_FORM_PREFERENCE
                 ? "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": true}\n"
             : kind == BT_FORM_ALPACA ? "{\"instruction\": \"a\", \"output\": \"b\"}\n"
                                      : "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, "
                                        "{\"role\": \"assistant\", \"content\": \"b\"}]}\n",
             line);
    const char *path = fixture_text("bad.jsonl", all);
    bt_loader_cfg c = cfg_of(path, kind, 64);
    bt_code code = bt_loader_open(&l, &c, &err);
    if (code == BT_OK || !strstr(err.msg, words) || !strstr(err.msg, "bad.jsonl' line 2"))
        fail_msg("code %d: %s (wanted '%s')", code, err.msg, words);
}

static void lines_of_another_form_are_refused(void **state) {
    (void)state;
    assert_line_refused(BT_FORM_COMPLETION, "{\"body\": \"x\"}", "field 'text' is missing");
    assert_line_refused(BT_FORM_COMPLETION, "{\"text\": 3}", "field 'text' is not a string");
    assert_line_refused(BT_FORM_COMPLETION, "[1]", "not a JSON object");
    assert_line_refused(BT_FORM_COMPLETION, "{\"text\"", "not valid JSON");
    assert_line_refused(BT_FORM_ALPACA, "{\"output\": \"x\"}",
                        "field 'instruction' is missing or empty");
    assert_line_refused(BT_FORM_ALPACA, "{\"instruction\": \"x\"}", "field 'output' is missing");
    assert_line_refused(BT_FORM_ALPACA, "{\"instruction\": 1, \"output\": \"x\"}",
                        "field 'instruction' is not a string");
    assert_line_refused(BT_FORM_ALPACA, "{\"instruction\": \"a\", \"output\": null}",
                        "field 'output' is not a string");
    assert_line_refused(BT_FORM_ALPACA,
                        "{\"instruction\": \"a\", \"output\": \"b\", \"history\": [[\"q\"]]}",
                        "field 'history': entry 1 is not a list of two strings");
    assert_line_refused(BT_FORM_PREFERENCE, "{\"prompt\": \"a\", \"completion\": \"b\"}",
                        "field 'label' is missing");
    assert_line_refused(BT_FORM_PREFERENCE,
                        "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": \"maybe\"}",
                        "field 'label' is neither true nor false");
    assert_line_refused(BT_FORM_PREFERENCE, "{\"prompt\": \"a\", \"kto_tag\": true}",
                        "field 'completion' is missing");
    assert_line_refused(BT_FORM_PREFERENCE, "{\"completion\": \"b\", \"label\": 1}",
                        "field 'prompt' is missing");
    assert_line_refused(BT_FORM_PREFERENCE, "{\"prompt\": \"a\", \"completion\": 3, \"label\": 0}",
                        "field 'completion' is neither a text");
    assert_line_refused(BT_FORM_MESSAGES, "{\"text\": \"x\"}", "field 'messages' is missing");
    assert_line_refused(BT_FORM_MESSAGES, "{\"instruction\": \"x\"}",
                        "(it looks like data.form=alpaca)");
    assert_line_refused(BT_FORM_COMPLETION, "{\"messages\": []}",
                        "(it looks like data.form=messages)");
    assert_line_refused(BT_FORM_MESSAGES, "{\"messages\": \"x\"}",
                        "field 'messages' is not a list");
    assert_line_refused(BT_FORM_MESSAGES, "{\"messages\": []}", "has no message of a user");
    assert_line_refused(BT_FORM_MESSAGES, "{\"messages\": [{\"content\": \"x\"}]}",
                        "message 1 has no 'role'");
    assert_line_refused(BT_FORM_MESSAGES, "{\"messages\": [{\"role\": \"user\"}]}",
                        "message 1 has no 'content'");
    assert_line_refused(BT_FORM_MESSAGES,
                        "{\"messages\": [{\"role\": \"tool\", \"content\": \"x\"}]}",
                        "message 1: the role 'tool' is unknown");
    assert_line_refused(BT_FORM_MESSAGES, "{\"messages\": [{\"role\": \"user\", \"content\": 1}]}",
                        "message 1: its content is not a string");
    assert_line_refused(
        BT_FORM_MESSAGES, "{\"messages\": [{\"role\": \"assistant\", \"content\": \"x\"}]}",
        "message 1 has the role 'assistant', but the role 'user' is expected there");
    assert_line_refused(
        BT_FORM_MESSAGES,
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}]}",
        "part 1 of its content is not text");
    assert_line_refused(BT_FORM_MESSAGES,
                        "{\"messages\": [{\"role\": \"user\", \"content\": \"x\", \"weight\": 2}]}",
                        "message 1: 'weight' must be 0 or 1");
    assert_line_refused(BT_FORM_COMPLETION, "{\"prompt\": \"x\", \"completion\": [1]}",
                        "field 'completion' and 'prompt' must both be texts");
}

static bt_code long_conversation(bt_too_long rule, bt_row_facts *facts) {
    const char *path = fixture_text(
        "long.jsonl",
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
        "\"content\": \"b\"}]}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
        "\"content\": \"an answer of more than a few letters\"}]}\n");
    bt_loader_cfg c = cfg_of(path, BT_FORM_MESSAGES, 64);
    bt_loader *l;
    c.too_long = rule;
    bt_code code = bt_loader_open(&l, &c, &err);
    if (code != BT_OK) return code;
    *facts = *bt_loader_row_facts(l);
    bt_loader_close(l);
    return BT_OK;
}

static void long_conversations_are_never_cut_silently(void **state) {
    bt_row_facts f;
    (void)state;
    assert_int_equal(long_conversation(BT_TOO_LONG_REFUSE, &f), BT_ARG);
    assert_non_null(strstr(err.msg, "conversation 2 of '"));
    assert_non_null(strstr(err.msg, "but a sequence has 64: increase model.seq_len"));
    assert_int_equal(long_conversation(BT_TOO_LONG_SKIP, &f), BT_OK);
    assert_int_equal(f.skipped, 1);
    assert_int_equal(f.documents, 1);
    assert_int_equal(long_conversation(BT_TOO_LONG_TRUNCATE, &f), BT_OK);
    assert_int_equal(f.truncated, 1);
    assert_int_equal(f.documents, 2);
}

static void forms_need_json_lines(void **state) {
    bt_loader_cfg c = cfg_of(fixture_text("x.txt", "hello"), BT_FORM_MESSAGES, 64);
    bt_loader *l;
    (void)state;
    assert_int_equal(bt_loader_open(&l, &c, &err), BT_ARG);
    assert_non_null(strstr(err.msg, "x.txt' is not JSON: rows are read from"));
    c = cfg_of(fixture_text("y.jsonl", "{}"), BT_FORM_MESSAGES, 64);
    c.form.template_name = "none";
    assert_int_equal(bt_loader_open(&l, &c, &err), BT_NOTFOUND);
    assert_non_null(strstr(err.msg, "no chat template 'none' (chatml,"));
}

/* Text is packed by document; parts of long documents never cross the border between rows. */
static void text_is_packed_by_document(void **state) {
    (void)state;
    const char *path = fixture_text("docs.jsonl",
                                    "{\"text\": \"abcdefghijklmnopqrst\"}\n{\"text\": \"xyz\"}\n");
    bt_loader_cfg c = cfg_of(path, BT_FORM_TEXT, 16);
    bt_loader *l;
    bt_batch b;
    assert_int_equal(bt_loader_open(&l, &c, &err), BT_OK);
    assert_int_equal(bt_loader_sequences(l), 2);
    assert_int_equal(bt_loader_row_facts(l)->cut, 1);
    assert_int_equal(bt_loader_next(l, &b, &err), BT_OK);
    assert_int_equal(b.targets[14], 'p');
    assert_int_equal(b.targets[15], -1);
    assert_int_equal(bt_loader_next(l, &b, &err), BT_OK); /* "qrst\n" "xyz\n" */
    assert_int_equal(b.inputs[0], 'q');
    assert_int_equal(b.targets[4], -1);
    assert_int_equal(b.positions[5], 0);
    assert_int_equal(b.inputs[5], 'x');
    assert_int_equal(b.positions[9], -1);
    bt_loader_close(l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conversations_learn_answers_and_their_ends),
        cmocka_unit_test(a_long_row_takes_more_documents),
        cmocka_unit_test(a_split_without_documents_is_named),
        cmocka_unit_test(a_step_counts_the_same_on_any_layout),
        cmocka_unit_test(alpaca_joins_its_fields),
        cmocka_unit_test(a_muted_answer_is_not_learned),
        cmocka_unit_test(answers_of_no_weight_are_not_learned),
        cmocka_unit_test(contents_in_parts_are_joined),
        cmocka_unit_test(prompts_with_completions_learn_the_completion),
        cmocka_unit_test(bad_rows_are_left_out_on_demand),
        cmocka_unit_test(a_pair_is_left_out_whole),
        cmocka_unit_test(single_answers_have_a_mismatched_one),
        cmocka_unit_test(unusable_single_answers_are_refused),
        cmocka_unit_test(lines_of_another_form_are_refused),
        cmocka_unit_test(long_conversations_are_never_cut_silently),
        cmocka_unit_test(forms_need_json_lines),
        cmocka_unit_test(text_is_packed_by_document),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}

/* eval_choices.c - scores questions with choices by the log probability of each choice after its context.
 *
 * For choice c and context x this is the sum over the tokens of encode(x + " " + c) after the first len(encode(x)),
 * like lm-evaluation-harness with add_bos_token off. A text that is too long for the model loses its beginning. */
#include "cli/model/eval_choices.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/common/progress.h"
#include "engine/data/io/json.h"

enum { LINE_MAX_BYTES = 1 << 20 };

typedef struct row { /* one choice of one question */
    int32_t *ids;
    size_t n, first; /* number of tokens; first token that is scored */
    size_t letters, bytes;
} row;

typedef struct choices {
    const bt_choices_job *job;
    const bt_tokenizer *tokenizer;
    json_t *subjects; /* subject -> {"text", "n"} */
    row *rows;
    size_t n_rows, cap;
    size_t *first_row, *gold; /* [questions] */
    size_t n, n_cap, longest;
} choices;

typedef bt_code (*take_fn)(choices *c, bt_choice_item *item, bt_err *err);

static bt_code parse_question_line(choices *c, const char *line, size_t n, take_fn take,
                                   bt_err *err) {
    bt_choice_item item;
    json_t *o = NULL;
    memset(&item, 0, sizeof item);
    bt_code code = bt_json_parse(&o, line, n, err);
    if (code == BT_OK) code = c->job->task->read(o, &item, err);
    if (code == BT_OK) code = take(c, &item, err);
    bt_choice_item_release(&item);
    json_decref(o);
    return code;
}

static bt_code read_question_lines(choices *c, const char *path, int64_t limit, take_fn take,
                                   bt_err *err) {
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    bt_err why = BT_ERR_INIT;
    bt_code code = BT_OK;
    int64_t number = 0, taken = 0;
    if (!f) return bt_fail(err, BT_NOTFOUND, "cannot open '%s'", path);
    while (code == BT_OK && (!limit || taken < limit) && (n = getline(&line, &cap, f)) >= 0) {
        number++;
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r' || line[n - 1] == ' ')) n--;
        if (n == 0) continue;
        if (n > LINE_MAX_BYTES)
            code = bt_fail(&why, BT_FORMAT, "it has more than %d bytes", LINE_MAX_BYTES);
        else
            code = parse_question_line(c, line, (size_t)n, take, &why);
        taken++;
    }
    free(line);
    fclose(f);
    if (code == BT_OK && taken == 0)
        return bt_fail(err, BT_FORMAT, "'%s' holds no question (a JSON object a line: %s)", path,
                       c->job->task->fields);
    return code == BT_OK ? BT_OK
                         : bt_fail(err, code, "'%s', line %lld: %s (a line has: %s)", path,
                                   (long long)number, why.msg, c->job->task->fields);
}

static bt_code add_example_of_subject(choices *c, bt_choice_item *item, bt_err *err) {
    json_t *old = json_object_get(c->subjects, item->subject);
    const json_int_t n = json_integer_value(json_object_get(old, "n"));
    const char *before = json_string_value(json_object_get(old, "text"));
    bt_text text = {0};
    if (n >= c->job->shots) return BT_OK;
    bt_text_printf(&text, "%s%s %s\n\n", before ? before : "", bt_text_str(&item->context),
                   bt_text_str(&item->choices[item->gold]));
    json_t *now = json_pack("{s:s, s:I}", "text", bt_text_str(&text), "n", n + 1);
    const bool ok = !text.failed && json_object_set_new(c->subjects, item->subject, now) == 0;
    bt_text_release(&text);
    return ok ? BT_OK : bt_fail(err, BT_FORMAT, "an example is not UTF-8, or memory is short");
}

static bt_code put_description_and_examples(const choices *c, const bt_choice_item *item,
                                            bt_text *out, bt_err *err) {
    json_t *shots = json_object_get(c->subjects, item->subject);
    if (c->job->task->describe) c->job->task->describe(item->subject, out);
    if (c->job->shots && json_integer_value(json_object_get(shots, "n")) < c->job->shots)
        return bt_fail(err, BT_NOTFOUND, "'%s' has fewer than %lld examples%s%s", c->job->shot_path,
                       (long long)c->job->shots, item->subject[0] ? " of the subject " : "",
                       item->subject);
    if (shots) bt_text_put(out, json_string_value(json_object_get(shots, "text")));
    return BT_OK;
}

static bt_code add_row(choices *c, const bt_text *context, const bt_text *choice, bt_err *err) {
    bt_text whole = {0};
    row r = {.letters = bt_text_letters(bt_text_str(choice)), .bytes = choice->len};
    int32_t *head = NULL;
    size_t n_head = 0, cap_head = 0, cap = 0;
    if (c->n_rows == c->cap) {
        const size_t more = c->cap ? 2 * c->cap : 256;
        row *rows = realloc(c->rows, more * sizeof *rows);
        if (!rows) return bt_fail(err, BT_NOMEM, "cannot take memory for the choices");
        c->rows = rows;
        c->cap = more;
    }
    bt_text_printf(&whole, "%s %s", bt_text_str(context), bt_text_str(choice));
    bt_code code = bt_tokenizer_encode_as(c->tokenizer, BT_ENCODE_SPECIAL, bt_text_str(context),
                                          context->len, &head, &n_head, &cap_head, err);
    if (code == BT_OK)
        code = bt_tokenizer_encode_as(c->tokenizer, BT_ENCODE_SPECIAL, bt_text_str(&whole),
                                      whole.len, &r.ids, &r.n, &cap, err);
    r.first = n_head;
    if (code == BT_OK && (n_head == 0 || r.n <= n_head))
        code = bt_fail(err, BT_FORMAT, "the context or a choice is empty");
    c->rows[c->n_rows] = r;
    if (code == BT_OK)
        c->n_rows++;
    else
        free(r.ids);
    if (r.n > c->longest) c->longest = r.n;
    free(head);
    bt_text_release(&whole);
    return code;
}

static bt_code read_question(choices *c, bt_choice_item *item, bt_err *err) {
    bt_text context = {0};
    if (c->n == c->n_cap) {
        const size_t cap = c->n_cap ? 2 * c->n_cap : 256;
        size_t *rows = realloc(c->first_row, (cap + 1) * sizeof *rows);
        if (rows) c->first_row = rows;
        size_t *gold = realloc(c->gold, cap * sizeof *gold);
        if (gold) c->gold = gold;
        if (!rows || !gold) return bt_fail(err, BT_NOMEM, "cannot take memory for the questions");
        c->n_cap = cap;
    }
    bt_code code = put_description_and_examples(c, item, &context, err);
    bt_text_put(&context, bt_text_str(&item->context));
    c->first_row[c->n] = c->n_rows;
    c->gold[c->n] = item->gold;
    for (size_t i = 0; i < item->n && code == BT_OK; i++)
        code = add_row(c, &context, &item->choices[i], err);
    if (code == BT_OK) c->first_row[++c->n] = c->n_rows;
    bt_text_release(&context);
    return code;
}

/* Copies the last tokens of a row to inputs and targets; only those of the choice are scored. */
static bool fill_choice_row(const row *r, size_t T, int32_t *inputs, int32_t *targets) {
    const size_t from = r->n > T + 1 ? r->n - T - 1 : 0;
    for (size_t k = 0; k < T; k++) {
        const size_t at = from + k;
        inputs[k] = at + 1 < r->n ? r->ids[at] : 0;
        targets[k] = at + 1 < r->n && at + 1 >= r->first ? r->ids[at + 1] : -1;
    }
    return from > 0;
}

static bt_code score_choices(choices *c, bt_model *m, bt_choices_result *out, bt_err *err) {
    const size_t T = (size_t)bt_model_config(m)->T;
    int32_t *inputs = malloc(2 * T * sizeof *inputs);
    bt_progress bar;
    if (!inputs) return bt_fail(err, BT_NOMEM, "cannot take memory for a sequence");
    bt_progress_begin(&bar, c->job->quiet);
    for (size_t q = 0; q < c->n; q++) {
        const size_t n = c->first_row[q + 1] - c->first_row[q];
        const row *r = c->rows + c->first_row[q];
        bt_choice_score scores[BT_CHOICES_MAX];
        bool cut = false;
        for (size_t i = 0; i < n; i++) {
            cut |= fill_choice_row(&r[i], T, inputs, inputs + T);
            scores[i] = (bt_choice_score){-bt_model_eval_micro(m, inputs, inputs + T), r[i].letters,
                                          r[i].bytes};
        }
        const bt_choice_picked p = bt_choice_pick(scores, n);
        out->cut += cut;
        out->acc += p.plain == c->gold[q];
        out->acc_norm += p.by_letters == c->gold[q];
        out->acc_bytes += p.by_bytes == c->gold[q];
        bt_progress_show(&bar, "asking", (double)(q + 1) / (double)c->n, "");
    }
    bt_progress_end(&bar);
    free(inputs);
    out->questions = (int64_t)c->n;
    out->acc /= (double)c->n;
    out->acc_norm /= (double)c->n;
    out->acc_bytes /= (double)c->n;
    return BT_OK;
}

bt_code bt_eval_choices(bt_trained *t, const bt_trained_how *how, const bt_choices_job *job,
                        bt_choices_result *out, bt_err *err) {
    choices c = {.job = job, .tokenizer = t->tokenizer, .subjects = json_object()};
    bt_trained_how exact = *how;
    memset(out, 0, sizeof *out);
    bt_code code = BT_OK;
    if (job->shots && !job->shot_path[0])
        code = bt_fail(err, BT_ARG, "--shots needs --shot-data FILE, the source of examples");
    if (code == BT_OK && job->shots)
        code = read_question_lines(&c, job->shot_path, 0, add_example_of_subject, err);
    if (code == BT_OK) code = read_question_lines(&c, job->path, job->limit, read_question, err);
    exact.B = 1;
    exact.T = (int)c.longest;
    if (code == BT_OK) code = bt_trained_model(t, &exact, err);
    if (code == BT_OK) code = score_choices(&c, t->model, out, err);
    for (size_t i = 0; i < c.n_rows; i++) free(c.rows[i].ids);
    free(c.rows);
    free(c.first_row);
    free(c.gold);
    json_decref(c.subjects);
    return code;
}

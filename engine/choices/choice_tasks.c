/* choice_tasks.c - ARC, HellaSwag and MMLU from the fields that their data sets have. */
#include "engine/choices/choice_tasks.h"

#include "engine/base/system/ascii.h"
#include <stdio.h>
#include <string.h>

#include "engine/data/io/json.h"

static bt_code read_choices(json_t *list, bt_choice_item *q, bt_err *err) {
    const size_t n = json_array_size(list);
    if (n < 2 || n > BT_CHOICES_MAX)
        return bt_fail(err, BT_FORMAT, "there are %zu choices; 2 to %d are possible", n,
                       BT_CHOICES_MAX);
    for (q->n = 0; q->n < n; q->n++) {
        const char *s = json_string_value(json_array_get(list, q->n));
        if (!s) return bt_fail(err, BT_FORMAT, "choice %zu is not a text", q->n);
        bt_text_put(&q->choices[q->n], s);
    }
    return BT_OK;
}

static bt_code read_gold(json_t *v, const char *key, bt_choice_item *q, bt_err *err) {
    const char *s = json_string_value(v);
    long long gold = -1;
    char end;
    if (json_is_integer(v))
        gold = (long long)json_integer_value(v);
    else if (s && strlen(s) == 1 && *s >= 'A' && *s <= 'Z')
        gold = *s - 'A';
    else if (s && sscanf(s, "%lld%c", &gold, &end) != 1)
        gold = -1;
    if (gold < 0 || (size_t)gold >= q->n)
        return bt_fail(err, BT_FORMAT, "'%s' names none of the %zu choices", key, q->n);
    q->gold = (size_t)gold;
    return BT_OK;
}

/* {"question", "choices": {"text": [...], "label": [...]}, "answerKey"} */
static bt_code read_arc(json_t *o, bt_choice_item *q, bt_err *err) {
    const char *question, *key;
    json_t *choices = json_object_get(o, "choices"), *labels = json_object_get(choices, "label"),
           *label;
    size_t i;
    BT_TRY(bt_json_text_of(o, "question", &question, err));
    BT_TRY(bt_json_text_of(o, "answerKey", &key, err));
    BT_TRY(read_choices(json_object_get(choices, "text"), q, err));
    bt_text_printf(&q->context, "Question: %s\nAnswer:", question);
    json_array_foreach(labels, i, label) {
        if (!json_is_string(label) || strcmp(json_string_value(label), key) != 0) continue;
        if (i >= q->n) break;
        q->gold = i;
        return BT_OK;
    }
    return bt_fail(err, BT_FORMAT, "'answerKey' is '%.20s', which is no label", key);
}

static bool is_choice_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static void replace(bt_text *t, const char *from, const char *to) {
    bt_text out = {0};
    const char *p = bt_text_str(t), *at;
    for (; (at = strstr(p, from)); p = at + strlen(from)) {
        bt_text_putn(&out, p, (size_t)(at - p));
        bt_text_put(&out, to);
    }
    bt_text_put(&out, p);
    bt_text_release(t);
    *t = out;
}

/* text.strip(), " [title]" -> ". ", brackets with what is in them removed, two blanks -> one */
static void clean_choice_text(bt_text *t) {
    bt_text out = {0};
    const char *p = bt_text_str(t), *end = p + t->len;
    while (p < end && is_choice_blank(*p)) p++;
    while (end > p && is_choice_blank(end[-1])) end--;
    bt_text_putn(&out, p, (size_t)(end - p));
    replace(&out, " [title]", ". ");
    bt_text_clear(t);
    for (p = bt_text_str(&out); *p;) {
        const char *close = *p == '[' ? strpbrk(p, "]\n") : NULL;
        if (close && *close == ']')
            p = close + 1;
        else
            bt_text_putn(t, p++, 1);
    }
    replace(t, "  ", " ");
    bt_text_release(&out);
}

/* {"activity_label", "ctx_a", "ctx_b", "endings": [...], "label"} */
static bt_code read_hellaswag(json_t *o, bt_choice_item *q, bt_err *err) {
    const char *activity, *a, *b;
    BT_TRY(bt_json_text_of(o, "activity_label", &activity, err));
    BT_TRY(bt_json_text_of(o, "ctx_a", &a, err));
    BT_TRY(bt_json_text_of(o, "ctx_b", &b, err));
    bt_text_printf(&q->context, "%s: %s ", activity, a);
    for (const char *p = b; *p; p++) /* str.capitalize() */
        bt_text_putn(&q->context, &(char){p == b ? bt_ascii_upper(*p) : bt_ascii_lower(*p)}, 1);
    clean_choice_text(&q->context);
    BT_TRY(read_choices(json_object_get(o, "endings"), q, err));
    for (size_t i = 0; i < q->n; i++) clean_choice_text(&q->choices[i]);
    return read_gold(json_object_get(o, "label"), "label", q, err);
}

/* {"question", "subject", "choices": [...], "answer"} */
static bt_code read_mmlu(json_t *o, bt_choice_item *q, bt_err *err) {
    const char *question, *subject = json_string_value(json_object_get(o, "subject"));
    BT_TRY(bt_json_text_of(o, "question", &question, err));
    BT_TRY(read_choices(json_object_get(o, "choices"), q, err));
    size_t n = strlen(question);
    while (n > 0 && is_choice_blank(*question)) question++, n--;
    while (n > 0 && is_choice_blank(question[n - 1])) n--;
    bt_text_putn(&q->context, question, n);
    for (size_t i = 0; i < q->n; i++) {
        bt_text_printf(&q->context, "\n%c. %s", (int)('A' + i), bt_text_str(&q->choices[i]));
        bt_text_clear(&q->choices[i]);
        bt_text_printf(&q->choices[i], "%c", (int)('A' + i));
    }
    bt_text_put(&q->context, "\nAnswer:");
    snprintf(q->subject, sizeof q->subject, "%s", subject ? subject : "");
    return read_gold(json_object_get(o, "answer"), "answer", q, err);
}

static void describe_mmlu(const char *subject, bt_text *out) {
    bt_text_put(out, "The following are multiple choice questions (with answers) about ");
    for (const char *p = subject; *p; p++) bt_text_putn(out, *p == '_' ? " " : p, 1);
    bt_text_put(out, ".\n\n");
}

static const bt_choice_task tasks[] = {
    {"arc", "question, choices {text, label}, answerKey", read_arc, NULL, true},
    {"hellaswag", "activity_label, ctx_a, ctx_b, endings, label", read_hellaswag, NULL, true},
    {"mmlu", "question, subject, choices, answer", read_mmlu, describe_mmlu, false},
};

const bt_choice_task *bt_choice_task_at(int i) { return &tasks[i]; }

void bt_choice_item_release(bt_choice_item *q) {
    bt_text_release(&q->context);
    for (size_t i = 0; i < BT_CHOICES_MAX; i++) bt_text_release(&q->choices[i]);
    memset(q, 0, sizeof *q);
}

size_t bt_text_letters(const char *s) {
    size_t n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

static double per_unit(double x, size_t n) { return x / (double)(n ? n : 1); }

bt_choice_picked bt_choice_pick(const bt_choice_score *s, size_t n) {
    bt_choice_picked p = {0};
    for (size_t i = 1; i < n; i++) {
        if (s[i].log_prob > s[p.plain].log_prob) p.plain = i;
        if (per_unit(s[i].log_prob, s[i].letters) >
            per_unit(s[p.by_letters].log_prob, s[p.by_letters].letters))
            p.by_letters = i;
        if (per_unit(s[i].log_prob, s[i].bytes) >
            per_unit(s[p.by_bytes].log_prob, s[p.by_bytes].bytes))
            p.by_bytes = i;
    }
    return p;
}

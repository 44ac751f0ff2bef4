/* alert_rules.c - parses alert rules and counts the values that violate them. */
#include "monitor/job/health/alert_rules.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/text.h"

static const struct {
    const char *text;
    bt_alert_kind kind;
} plain_rules[] = {{"rank lost", BT_ALERT_RANK_LOST},
                   {"run stalled", BT_ALERT_STALLED},
                   {"run failed", BT_ALERT_FAILED},
                   {"run done", BT_ALERT_DONE}};
enum { PLAIN = sizeof plain_rules / sizeof plain_rules[0] };

static bt_code fail_invalid_rule(const char *text, bt_err *err) {
    char shown[100];
    bt_text_plain(shown, sizeof shown, text);
    return bt_fail(err, BT_ARG,
                   "alert.rules: '%s' is not an alert rule (examples: 'loss > 10', 'val_loss not "
                   "better for 5', "
                   "'grad_norm > 100 for 3', 'disk < 10 %%', 'rank lost', 'run stalled', 'run "
                   "failed', 'run done')",
                   shown);
}

/* Parses the end of a rule: empty, or "for N". */
static bool parse_for_clause(const char *rest, int64_t *n) {
    char *end;
    rest += strspn(rest, " ");
    *n = 1;
    if (!*rest) return true;
    if (strncmp(rest, "for ", 4) != 0) return false;
    *n = strtoll(rest + 4, &end, 10);
    return end != rest + 4 && !end[strspn(end, " ")] && *n >= 1;
}

static bool read_disk(const char *rest, bt_alert_rule *rule) {
    char *end;
    rule->kind = BT_ALERT_DISK;
    rule->limit = strtod(rest, &end);
    if (end == rest || !(rule->limit > 0)) return false;
    end += strspn(end, " ");
    rule->bytes = strcmp(end, "GiB") == 0;
    if (rule->bytes) rule->limit *= 1073741824.0;
    if (strcmp(end, "%") == 0) rule->limit /= 100;
    return rule->bytes || (strcmp(end, "%") == 0 && rule->limit < 1);
}

static bt_code read_metric(const char *text, bt_alert_rule *rule, bt_err *err) {
    char key[64];
    const size_t n = strcspn(text, " <>");
    const char *rest = text + n + strspn(text + n, " ");
    snprintf(key, sizeof key, "%.*s", (int)n, text);
    if (strcmp(key, "disk") == 0 && *rest == '<')
        return read_disk(rest + 1, rule) ? BT_OK : fail_invalid_rule(text, err);
    rule->metric = bt_metric_find(BT_SCOPE_STEP, key);
    if (rule->metric < 0) {
        const char *names[BT_MS_COUNT];
        for (int m = 0; m < BT_MS_COUNT; m++) names[m] = bt_step_metrics[m].key;
        const char *near = bt_nearest(key, names, BT_MS_COUNT);
        if (!near || !*rest) return fail_invalid_rule(text, err);
        return bt_fail(err, BT_ARG, "alert.rules: '%.60s': no metric '%.40s' (did you mean '%s'?)",
                       text, key, near);
    }
    static const char not_better[] = "not better ";
    if (strncmp(rest, not_better, strlen(not_better)) == 0) {
        rule->kind = BT_ALERT_NOT_BETTER;
        rest += strlen(not_better);
        return *rest && parse_for_clause(rest, &rule->n) ? BT_OK : fail_invalid_rule(text, err);
    }
    char *end;
    if (*rest != '<' && *rest != '>') return fail_invalid_rule(text, err);
    rule->kind = *rest == '<' ? BT_ALERT_BELOW : BT_ALERT_ABOVE;
    rule->limit = strtod(rest + 1, &end);
    if (end == rest + 1 || !isfinite(rule->limit) || !parse_for_clause(end, &rule->n))
        return fail_invalid_rule(text, err);
    return BT_OK;
}

bt_code bt_alert_parse(bt_alert_rules *r, const char *list, bt_err *err) {
    memset(r, 0, sizeof *r);
    for (const char *p = list; *p; p += strcspn(p, "\n"), p += *p == '\n') {
        char text[BT_ALERT_TEXT];
        const size_t len = strcspn(p, "\n");
        if (!len) continue;
        if (r->n == BT_ALERT_RULES)
            return bt_fail(err, BT_ARG, "alert.rules: more than %d rules", BT_ALERT_RULES);
        snprintf(text, sizeof text, "%.*s", (int)len, p);
        if (len >= sizeof text) return fail_invalid_rule(text, err);
        bt_alert_rule *rule = &r->rule[r->n];
        *rule = (bt_alert_rule){.n = 1, .best = INFINITY, .best_step = -1, .metric = -1};
        snprintf(rule->text, sizeof rule->text, "%s", text);
        size_t k = 0;
        while (k < PLAIN && strcmp(plain_rules[k].text, text) != 0) k++;
        if (k < PLAIN)
            rule->kind = plain_rules[k].kind;
        else
            BT_TRY(read_metric(text, rule, err));
        r->n++;
    }
    return BT_OK;
}

static void report_rule(bt_alert_rules *r, bt_alert_rule *rule, const char *what) {
    char says[BT_ALERT_TEXT + 260];
    rule->reported = true;
    snprintf(says, sizeof says, "%s: %.240s", rule->text, what);
    if (r->tell) r->tell(r->ctx, says);
}

static void update_best_value(bt_alert_rules *r, bt_alert_rule *rule, double value, int64_t step) {
    char what[200], a[40], b[40];
    const bt_unit unit = bt_step_metrics[rule->metric].unit;
    if (value < rule->best) {
        rule->best = value;
        rule->best_step = step;
        rule->count = 0;
        rule->reported = false;
        return;
    }
    if (++rule->count < rule->n || rule->reported) return;
    snprintf(what, sizeof what, "it is %s, the best was %s at step %lld",
             bt_metric_format(a, sizeof a, value, unit),
             bt_metric_format(b, sizeof b, rule->best, unit), (long long)rule->best_step + 1);
    report_rule(r, rule, what);
}

void bt_alert_value(bt_alert_rules *r, int metric, double value, int64_t step) {
    for (int i = 0; i < r->n; i++) {
        bt_alert_rule *rule = &r->rule[i];
        char what[120], text[40];
        if (rule->metric != metric || rule->kind > BT_ALERT_NOT_BETTER) continue;
        if (rule->kind == BT_ALERT_NOT_BETTER) {
            update_best_value(r, rule, value, step);
            continue;
        }
        /* A value that is not a number exceeds every limit. */
        const bool holds = rule->kind == BT_ALERT_BELOW ? value < rule->limit
                                                        : !(value <= rule->limit);
        rule->count = holds ? rule->count + 1 : 0;
        if (!holds) rule->reported = false;
        if (rule->count < rule->n || rule->reported) continue;
        snprintf(what, sizeof what, "it is %s at step %lld",
                 bt_metric_format(text, sizeof text, value, bt_step_metrics[metric].unit),
                 (long long)step + 1);
        report_rule(r, rule, what);
    }
}

void bt_alert_step(bt_alert_rules *r, const double *values, int64_t step) {
    bool seen[BT_MS_COUNT] = {false};
    for (int i = 0; i < r->n; i++) {
        const int m = r->rule[i].metric;
        /* Ignores a metric that is not recorded at this step, except for a loss that is not a number. */
        if (m < 0 || seen[m] || (isnan(values[m]) && m != BT_MS_LOSS)) continue;
        seen[m] = true;
        bt_alert_value(r, m, values[m], step);
    }
}

void bt_alert_disk(bt_alert_rules *r, double free_bytes, double total_bytes) {
    for (int i = 0; i < r->n; i++) {
        bt_alert_rule *rule = &r->rule[i];
        char what[120], text[40];
        if (rule->kind != BT_ALERT_DISK || !(total_bytes > 0)) continue;
        const bool holds = (rule->bytes ? free_bytes : free_bytes / total_bytes) < rule->limit;
        if (!holds) rule->reported = false;
        if (!holds || rule->reported) continue;
        snprintf(what, sizeof what, "%s (%.1f %%) is free where the run keeps its checkpoints",
                 bt_metric_format(text, sizeof text, free_bytes, BT_UNIT_BYTES),
                 100 * free_bytes / total_bytes);
        report_rule(r, rule, what);
    }
}

void bt_alert_happened(bt_alert_rules *r, bt_alert_kind kind, const char *what) {
    for (int i = 0; i < r->n; i++)
        if (r->rule[i].kind == kind) report_rule(r, &r->rule[i], what);
}

bool bt_alert_has(const bt_alert_rules *r, bt_alert_kind kind) {
    for (int i = 0; i < r->n; i++)
        if (r->rule[i].kind == kind) return true;
    return false;
}

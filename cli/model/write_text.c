/* write_text.c - generates text and prints it on standard output. */
#include "cli/model/write_text.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "engine/base/clock.h"

void bt_show(const char *s, size_t n) {
    if (isatty(STDOUT_FILENO)) {
        bt_text plain;
        bt_text_init(&plain);
        bt_utf8_mend(&plain, s, n, true);
        fwrite(bt_text_str(&plain), 1, plain.len, stdout);
        bt_text_release(&plain);
    } else {
        fwrite(s, 1, n, stdout);
    }
    fflush(stdout);
}

double bt_per_second(int64_t n, double seconds) { return seconds > 0 ? (double)n / seconds : NAN; }

double bt_written_rate(const bt_written *w) {
    return w->passes ? bt_per_second(w->passes, w->seconds) : NAN;
}

void bt_show_speed(const bt_trained *t, const bt_written *w) {
    const double here = bt_written_rate(w),
                 prompt = bt_per_second(w->prompt_tokens, w->prompt_seconds);
    char rate[48] = "";
    if (!isnan(here)) (void)snprintf(rate, sizeof rate, ", %.*f tokens/s", here < 100, here);
    fprintf(stderr, "%lld token%s%s (prompt: %lld tokens, %.*f tokens/s), %s\n",
            (long long)w->tokens, w->tokens == 1 ? "" : "s", rate, (long long)w->prompt_tokens,
            prompt < 100, prompt, bt_trained_precision(t));
}

bt_code bt_write_tokens(bt_trained *t, bt_gen *gen, const bt_write_how *how, bt_written *w,
                        bt_err *err) {
    const int64_t began = bt_now_ns();
    bt_code code = BT_OK;
    size_t n;
    w->finish = "length";
    while (code == BT_OK && w->tokens < how->limit && !w->out.stopped) {
        const int32_t id = bt_gen_sample(gen, &how->sampling);
        if (id == how->end || bt_tokenizer_is_end(t->tokenizer, id)) {
            w->finish = "stop";
            break;
        }
        const char *bytes = bt_tokenizer_bytes(t->tokenizer, id, &n);
        bt_output_add(&w->out, bytes, bt_tokenizer_is_special(t->tokenizer, id) ? 0 : n);
        w->tokens++;
        if (w->tokens < how->limit && !w->out.stopped) {
            code = bt_gen_feed(gen, &id, 1, err);
            w->passes++;
        }
        const char *ready = bt_output_next(&w->out, false, &n);
        if (!how->quiet) bt_show(ready, n);
    }
    const char *rest = bt_output_next(&w->out, true, &n);
    if (!how->quiet) bt_show(rest, n);
    if (w->out.stopped) w->finish = "stop";
    w->seconds += (double)(bt_now_ns() - began) / 1e9;
    return code == BT_OK && w->out.text.failed ? bt_fail(err, BT_NOMEM, "no memory for the text")
                                               : code;
}

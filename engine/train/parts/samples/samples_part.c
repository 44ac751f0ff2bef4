/* samples_part.c - lets the model write text at each validation (train.sample_tokens) or on request. */
#include <stdlib.h>

#include "engine/base/clock.h"
#include "engine/observe/profile.h"
#include "engine/train/parts/samples/sample_text.h"
#include "engine/train/trainer_impl.h"

typedef struct samples {
    bt_sample_text *first; /* NULL when validations write no text */
} samples;

static bt_code samples_create(bt_trainer *t, const bt_trainer_setup *s, void **self, bt_err *err) {
    (void)t, (void)s;
    return bt_part_new(self, sizeof(samples), "samples", err);
}

static void samples_release(void *self) {
    samples *s = self;
    bt_sample_text_destroy(s->first);
    free(s);
}

static bt_code samples_build(void *self, bt_trainer *t, bt_err *err) {
    samples *s = self;
    if (!t->validation.first_tokens || t->setup.model.cfg.classes) return BT_OK;
    return bt_sample_text_create(&s->first, &t->cfg, t->mesh.world, t->validation.first_tokens,
                                 t->validation.n_tokens, err);
}

static void sample_event(const bt_trainer *t, const bt_text *prompt, const bt_text *text,
                         bool asked, double took_ms) {
    bt_text body;
    bt_json j;
    char line[64], shown[32]; /* first line of the text, start of the prompt */
    bt_text_init(&body);
    bt_text_plain(line, sizeof line, bt_text_str(text));
    bt_text_plain(shown, sizeof shown, bt_text_str(prompt));
    bt_json_begin(&j, &body);
    bt_json_object(&j, NULL);
    bt_json_str(&j, "prompt", bt_text_str(prompt));
    bt_json_str(&j, "text", bt_text_str(text));
    bt_json_num(&j, "took_ms", took_ms);
    if (asked) bt_json_bool(&j, "asked", true);
    bt_json_end(&j, '}');
    if (asked)
        bt_telemetry_event(&t->telemetry, BT_EVENT_SAMPLE, t->at.step - 1, bt_text_str(&body),
                           "sample after '%s': %s", shown, line);
    else
        bt_telemetry_event(&t->telemetry, BT_EVENT_SAMPLE, t->at.step - 1, bt_text_str(&body),
                           "sample: %s", line);
    bt_text_release(&body);
}

static bt_code write_sample_text(bt_trainer *t, bt_sample_text *s, bool asked, bt_err *err) {
    bt_text prompt, text;
    int64_t start = bt_now_ns();
    bt_text_init(&prompt);
    bt_text_init(&text);
    bt_progress_enter(t->page, BT_AT_EVALUATION, t->at.step - 1);
    bt_code code = bt_sample_text_run(s, t->model, t->schedule->pipe, t->update.weights, &prompt,
                                      &text, err);
    if (code == BT_OK && text.len > 0)
        sample_event(t, &prompt, &text, asked, (double)(bt_now_ns() - start) / 1e6);
    bt_text_release(&text);
    bt_text_release(&prompt);
    return code;
}

static bt_code generate_samples(void *self, bt_trainer *t, bt_err *err) {
    const samples *all = self;
    for (bt_sample_text *s = all->first; s; s = bt_sample_text_next(s))
        BT_TRY(write_sample_text(t, s, false, err));
    return BT_OK;
}

/* If the model cannot continue a prompt, all ranks refuse it, and training continues. */
static bt_code samples_act(void *self, bt_trainer *t, const bt_control *c, bool known,
                           bt_err *err) {
    (void)self, (void)known;
    if (!(c->verbs & BT_REQ_SAMPLE)) return BT_OK;
    const bool asked_here = bt_comm_rank(t->mesh.world) == 0;
    char *prompt = asked_here ? bt_control_take_prompt(t->requests) : NULL;
    bt_sample_text *s = NULL;
    bt_progress_enter(t->page, BT_AT_EVALUATION, t->at.step - 1);
    bt_code code = bt_sample_text_for_prompt(&s, &t->cfg, t->mesh.world, prompt, err);
    free(prompt);
    if (code == BT_ARG || code == BT_UNSUPPORTED) {
        bt_telemetry_event(&t->telemetry, BT_EVENT_REFUSED, t->at.step - 1, NULL, "no sample: %s",
                           err ? err->msg : "");
        return BT_OK;
    }
    bt_profile_hold(true);
    if (code == BT_OK) code = bt_trainer_swap_for_use(t, err);
    if (code == BT_OK) code = write_sample_text(t, s, true, err);
    if (code == BT_OK) code = bt_trainer_swap_for_use(t, err);
    bt_profile_hold(false);
    bt_trainer_forget_transfers(t);
    bt_sample_text_destroy(s);
    return code;
}

const bt_part bt_part_samples = {.name = "samples",
                                 .create = samples_create,
                                 .release = samples_release,
                                 .build = samples_build,
                                 .act = samples_act,
                                 .evaluated = generate_samples};

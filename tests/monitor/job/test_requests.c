// ctest: timeout=60
/* Requests to a run in each of its states: replies, messages to the ranks, and screen output. */
#include <signal.h>

#include "engine/base/text.h"
#include "job_test.h"

/* Sends a request; returns the reply or the message of the refusal. */
static bt_code send_request_of_desk(desk *d, const char *verb, const char *arg, char *said,
                                    size_t size) {
    bt_text out;
    bt_err err = BT_ERR_INIT;
    bt_text_init(&out);
    const bt_code code = bt_job_request(&d->job, verb, arg, "c\033tl", &out, &err);
    snprintf(said, size, "%s", code == BT_OK ? bt_text_str(&out) : err.msg);
    bt_text_release(&out);
    return code;
}

static void assert_request_reply(desk *d, const char *verb, const char *arg, bt_code want,
                                 const char *says) {
    char said[600];
    const bt_code code = send_request_of_desk(d, verb, arg, said, sizeof said);
    if (code != want || strcmp(said, says) != 0)
        fail_msg("%s %s: %s: %s", verb, arg, bt_code_name(code), said);
}

static void ranks_receive_requests(void **state) {
    desk *d = *state;
    desk_connect(d);
    assert_request_reply(d, "checkpoint", "", BT_OK, "checkpoint");
    desk_hears(d, "checkpoint 0;");
    desk_shows(d, "control -1 checkpoint requested by ctl\n");
    assert_request_reply(d, "resume", "", BT_BUSY, "the run is not paused");
    assert_request_reply(d, "pause", "", BT_OK, "pause");
    assert_true(bt_job_paused(&d->job) && d->job.health.paused);
    assert_request_reply(d, "pause", "", BT_BUSY, "the run is paused already");
    assert_request_reply(d, "resume", "", BT_OK, "resume");
    assert_true(!bt_job_paused(&d->job) && !d->job.health.paused);
    assert_request_reply(d, "eval", "", BT_OK, "eval");
    desk_hears(d, "pause 0;resume 0;eval 0;");
    desk_shows(d, "control -1 pause requested by ctl\ncontrol -1 resume requested by ctl\n"
                  "control -1 eval requested by ctl\n");
    assert_request_reply(d, "eval", "now", BT_ARG, "'eval' takes no value ('now')");
    assert_request_reply(
        d, "evil", "", BT_ARG,
        "unknown verb 'evil': did you mean 'eval'? (pause resume checkpoint stop eval sample "
        "mixture set "
        "resize status)");
    assert_request_reply(
        d, "xyzzyx", "", BT_ARG,
        "unknown verb 'xyzzyx' (pause resume checkpoint stop eval sample mixture set resize "
        "status)");
    desk_shows(d, "");
    assert_request_reply(d, "stop", "", BT_OK, "stop");
    assert_true(d->job.stop_asked && !d->job.stop_now);
    desk_hears(d, "stop 0;");
    assert_request_reply(d, "pause", "", BT_BUSY, "the run is stopping");
    assert_request_reply(d, "sample", "Once", BT_BUSY, "the run is stopping");
    assert_request_reply(d, "mixture", "1:1", BT_BUSY, "the run is stopping");
    assert_request_reply(d, "stop", "", BT_OK, "stop");
    desk_hears(d, "stop 0;");
}

static void a_learning_rate_is_set_in_bounds(void **state) {
    desk *d = *state;
    desk_connect(d);
    assert_request_reply(d, "set", "lr=0.001", BT_OK,
                         "set lr=0.001: the peak learning rate is 0.001, it began as 0.002");
    desk_hears(d, "set 0.5;");
    desk_shows(d, "control -1 peak learning rate 0.002 -> 0.001 (requested by ctl)\n");
    assert_request_reply(d, "set", "optim.lr=0.004", BT_OK,
                         "set optim.lr=0.004: the peak learning rate is 0.004, it began as 0.002");
    assert_request_reply(d, "set", "lr_factor=3", BT_OK,
                         "set lr_factor=3: the peak learning rate is 0.006, it began as 0.002");
    desk_hears(d, "set 2;set 3;");
    bt_job_multiply_lr(&d->job, 0.5, "key -");
    desk_hears(d, "set 1.5;");
    assert_true(d->job.lr_factor > 1.49 && d->job.lr_factor < 1.51 && d->job.told_factor > 1.49);
    desk_shows(d, "control -1 peak learning rate 0.001 -> 0.004 (requested by ctl)\n"
                  "control -1 peak learning rate 0.004 -> 0.006 (requested by ctl)\n"
                  "control -1 peak learning rate 0.006 -> 0.003 (requested by key -)\n");
    bt_job_multiply_lr(&d->job, -1, "key -");
    desk_shows(d, "refused -1 refused: a peak learning rate of -0.003 is not between 0 and 2000 "
                  "(it was set to "
                  "0.002)\n");
    assert_request_reply(
        d, "set", "lr_factor=0", BT_ARG,
        "a peak learning rate of 0 is not between 0 and 2000 (it was set to 0.002)");
    assert_request_reply(
        d, "set", "lr_factor=1e6", BT_ARG,
        "a peak learning rate of 2000 is not between 0 and 2000 (it was set to 0.002)");
    assert_request_reply(
        d, "set", "lr=1000", BT_BUSY,
        "a peak learning rate of 1000 is 5e+05 times the configured 0.002: lr=1000,force sets "
        "it anyway (ctl: --force)");
    assert_request_reply(
        d, "set", "lr_factor=10.1", BT_BUSY,
        "a peak learning rate of 0.0202 is 10.1 times the configured 0.002: lr=0.0202,force "
        "sets it anyway (ctl: --force)");
    assert_request_reply(d, "set", "lr=0.02,forced", BT_ARG, "'0.02,forced' is not a number");
    desk_hears(d, "");
    assert_request_reply(d, "set", "lr=0.04,force", BT_OK,
                         "set lr=0.04,force: the peak learning rate is 0.04, it began as 0.002");
    desk_hears(d, "set 20;");
    desk_shows(d, "control -1 peak learning rate 0.003 -> 0.04 (requested by ctl)\n");
    assert_request_reply(d, "set", "", BT_ARG, "set takes KEY=VALUE (lr, optim.lr or lr_factor)");
    assert_request_reply(d, "set", "=1", BT_ARG, "set takes KEY=VALUE (lr, optim.lr or lr_factor)");
    assert_request_reply(d, "set", "lr=", BT_ARG, "'' is not a number");
    assert_request_reply(d, "set", "lr=1x", BT_ARG, "'1x' is not a number");
    assert_request_reply(d, "set", "lr=inf", BT_ARG, "'inf' is not a number");
    assert_request_reply(
        d, "set", "lr_facto=1", BT_BUSY,
        "'lr_facto' cannot change while the run is live; did you mean 'lr_factor'? (lr, optim.lr, "
        "lr_factor can)");
    assert_request_reply(
        d, "set", "model.n_layers_and_much_more_than_that_is_too_long_a_key=1", BT_BUSY,
        "'model.n_layers_and_much_more_than_that_is_too_l' cannot change while the run is live "
        "(lr, optim.lr, "
        "lr_factor can)");
    d->setup.lr = 0;
    assert_request_reply(d, "set", "lr=1", BT_UNSUPPORTED,
                         "the run's peak learning rate is not known: use lr_factor");
    assert_request_reply(d, "set", "lr_factor=1e6", BT_ARG,
                         "a learning-rate factor of 1e+06 is not between 0 and 1e+06");
    assert_request_reply(d, "set", "lr_factor=0", BT_ARG,
                         "a learning-rate factor of 0 is not between 0 and 1e+06");
    desk_shows(d, "");
    assert_request_reply(d, "set", "lr_factor=2", BT_OK, "set lr_factor=2");
    desk_shows(d, "control -1 learning rate factor 20 -> 2 (requested by ctl)\n");
    desk_hears(d, "set 2;");
}

static void texts_are_sent_with_requests(void **state) {
    desk *d = *state;
    char many[BT_PROMPT_MAX + 2], says[120];
    desk_connect(d);
    assert_request_reply(d, "sample", "Once%20upon", BT_OK,
                         "sample requested: it is written at the end of this step");
    desk_hears(d, "sample 0 Once upon;");
    assert_request_reply(d, "mixture", "3:1.5", BT_OK, "mixture 3:1.5");
    desk_hears(d, "mixture 0 3:1.5;");
    desk_shows(d, "control -1 sample after 'Once upon' requested by ctl\ncontrol -1 mixture "
                  "3:1.5 requested by "
                  "ctl\n");
    assert_request_reply(d, "sample", "%20%0A", BT_ARG,
                         "sample takes a prompt: the text to continue");
    assert_request_reply(d, "sample", "", BT_ARG, "sample takes a prompt: the text to continue");
    assert_request_reply(d, "mixture", "", BT_ARG,
                         "mixture takes one weight for each source of data.path, such as 3:1 ('')");
    assert_request_reply(
        d, "mixture", "3:-1", BT_ARG,
        "mixture takes one weight for each source of data.path, such as 3:1 ('3:-1')");
    memset(many, '1', sizeof many);
    many[BT_PROMPT_MAX + 1] = '\0';
    snprintf(says, sizeof says,
             "mixture takes one weight for each source of data.path, such as 3:1 ('%.40s')", many);
    assert_request_reply(d, "mixture", many, BT_ARG, says);
    many[BT_PROMPT_MAX] = '\0';
    char said[600];
    assert_int_equal(send_request_of_desk(d, "mixture", many, said, sizeof said), BT_OK);
    char want[BT_PROMPT_MAX + 20];
    snprintf(want, sizeof want, "mixture 0 %s;", many);
    desk_hears(d, want);
    /* The longest prompts arrive completely. */
    many[BT_PROMPT_MAX] = '1';
    for (size_t more = 0; more < 2; more++) {
        many[BT_PROMPT_MAX - 1 + more] = '\0';
        assert_int_equal(send_request_of_desk(d, "sample", many, said, sizeof said), BT_OK);
        many[BT_PROMPT_MAX - 1 + more] = '1';
        snprintf(want, sizeof want, "sample 0 %.*s;", (int)(BT_PROMPT_MAX - 1 + more), many);
        desk_hears(d, want);
    }
    desk_leave(d);
    assert_request_reply(d, "sample", "Once", BT_BUSY,
                         "no rank can receive 'sample' yet (the run is starting)");
    d->job.restarting = true;
    assert_request_reply(d, "mixture", "1", BT_BUSY,
                         "no rank can receive 'mixture' yet (the run is restarting)");
}

/* If no rank is connected, requests are sent to the next one. */
static void requests_wait_for_ranks(void **state) {
    desk *d = *state;
    assert_request_reply(d, "checkpoint", "", BT_BUSY,
                         "no rank can receive 'checkpoint' yet (the run is starting)");
    d->job.restarting = true;
    assert_request_reply(d, "set", "lr=1e-3", BT_BUSY,
                         "no rank can receive 'set' yet (the run is restarting)");
    assert_true(d->job.lr_factor > 0.99 && d->job.lr_factor < 1.01);
    d->job.restarting = false;
    assert_request_reply(d, "pause", "", BT_OK, "pause");
    assert_int_equal(d->job.pending, BT_PENDING(PAUSE));
    assert_request_reply(d, "resume", "", BT_OK, "resume"); /* the pause is not sent */
    assert_int_equal(d->job.pending, BT_PENDING(RESUME));
    assert_request_reply(d, "pause", "", BT_OK, "pause");
    assert_int_equal(d->job.pending, BT_PENDING(PAUSE));
    bt_job_send_pending(&d->job); /* No rank is connected yet. */
    assert_int_equal(d->job.pending, BT_PENDING(PAUSE));
    assert_request_reply(d, "stop", "", BT_OK, "stop"); /* A run that stops cannot be paused. */
    assert_int_equal(d->job.pending, BT_PENDING(STOP));
    d->job.pending |= BT_PENDING(RESUME);
    desk_shows(d, "control -1 pause requested by ctl\ncontrol -1 resume requested by ctl\n"
                  "control -1 pause requested by ctl\ncontrol -1 stop requested by ctl\n");
    desk_connect(d);
    bt_job_send_pending(&d->job);
    desk_hears(d, "resume 0;stop 0;");
    assert_int_equal(d->job.pending, 0);
    bt_job_send_pending(&d->job);
    /* This factor is newer than the checkpoint from which the ranks resumed. */
    d->job.lr_factor = 0.25;
    bt_job_send_pending(&d->job);
    bt_job_send_pending(&d->job);
    desk_hears(d, "set 0.25;");
    desk_shows(d, "");
    desk_leave(d);
    d->job.lr_factor = 0.5;
    bt_job_send_pending(&d->job);
    desk_shows(d, "warning -1 no rank is connected to be told 'set'\n");
    assert_true(d->job.told_factor < 0.3);
}

/* The first signal stops the run after its step, the second at once; a second signal directly after the first is the
 * same request. */
static void signals_stop(void **state) {
    desk *d = *state;
    static const struct {
        int signal;
        const char *shows;
    } rows[] = {{SIGINT, "control -1 stop requested by Ctrl-C\n"},
                {SIGTERM, "control -1 stop requested by SIGTERM\n"},
                {SIGUSR1, "control -1 stop requested by SIGUSR1\n"},
                {SIGHUP, "control -1 stop requested by SIGHUP\n"}};
    unsetenv("SLURM_JOB_ID");
    desk_connect(d);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        d->job.stop_asked = d->job.stop_now = false;
        d->job.signal_ns = 0;
        d->result.signal = 0;
        bt_job_signal(&d->job, rows[i].signal);
        desk_shows(d, rows[i].shows);
        desk_hears(d, "stop 0;");
        assert_true(d->job.stop_asked && !d->job.stop_now);
        assert_int_equal(d->result.signal, rows[i].signal);
        bt_job_signal(&d->job, rows[i].signal);
        desk_shows(d, "");
        assert_false(d->job.stop_now);
    }
    /* Half a second separates two TERM signals, two seconds two Ctrl-C. */
    d->job.signal_ns = bt_now_ns() - 500000000;
    bt_job_signal(&d->job, SIGTERM);
    assert_false(d->job.stop_now);
    bt_job_signal(&d->job, SIGINT);
    assert_true(d->job.stop_now && d->job.stop_ns > 0);
    assert_int_equal(d->result.signal, SIGHUP);
    desk_shows(d, "warning -1 stopping at once, without a checkpoint\n");
    bt_job_stop_now(&d->job);
    desk_shows(d, "");
    /* The end of a batch job's time follows its notice. */
    d->job.stop_now = false;
    d->job.signal_ns = 1;
    setenv("SLURM_JOB_ID", "7", 1);
    bt_job_signal(&d->job, SIGTERM);
    unsetenv("SLURM_JOB_ID");
    assert_false(d->job.stop_now);
    bt_job_signal(&d->job, SIGTERM);
    assert_true(d->job.stop_now);
}

/* After a stop by other means, the signal that ends the run at once is reported. */
static void a_signal_after_a_stop(void **state) {
    desk *d = *state;
    assert_request_reply(d, "stop", "", BT_OK, "stop");
    bt_job_signal(&d->job, SIGTERM);
    assert_true(d->job.stop_now);
    assert_int_equal(d->result.signal, SIGTERM);
}

static void check_status(desk *d, const char *want) {
    char said[600], *silence;
    assert_int_equal(send_request_of_desk(d, "status", "", said, sizeof said), BT_OK);
    silence = strstr(said, ",\"silence_s\":");
    assert_non_null(silence);
    silence[0] = '\0';
    assert_string_equal(said, want);
    assert_non_null(strstr(silence + 1, ",\"dropped\":0,\"late\":"));
}

static void status_states_the_run(void **state) {
    desk *d = *state;
#define TELLS(state, step) \
    "{\"run\":\"r\",\"state\":\"" state \
    "\",\"attempt\":2,\"ranks\":2,\"restarts\":3,\"step\":" step \
    ",\"from_step\":5,\"committed_step\":-1"
    bt_job_view v;
    d->job.attempt = 2;
    d->job.history.restarts = 3;
    d->job.from.step = 5;
    d->job.last_step = 4;
    check_status(d, TELLS("starting", "4"));
    d->job.last_step = 5;
    check_status(d, TELLS("running", "5"));
    d->job.paused = true;
    check_status(d, TELLS("paused", "5"));
    d->job.stop_asked = true;
    check_status(d, TELLS("stopping", "5"));
    bt_job_read_view(&d->job, &v);
    assert_true(!v.late && !(v.restart_in_s > 0));
    d->job.restarting = d->job.health.warned = true;
    d->job.restart_at_ns = bt_now_ns() + INT64_C(3600000000000);
    check_status(d, TELLS("restarting", "5"));
    bt_job_read_view(&d->job, &v);
    assert_true(v.late && v.restart_in_s > 3500 && v.restart_in_s <= 3600);
    d->job.restart_at_ns = 1;
    bt_job_read_view(&d->job, &v);
    assert_true(v.restart_in_s >= 0 && v.restart_in_s <= 0);
}

int main(void) {
#define T(f) cmocka_unit_test_setup_teardown(f, desk_open, desk_close)
    const struct CMUnitTest tests[] = {
        T(ranks_receive_requests),
        T(a_learning_rate_is_set_in_bounds),
        T(texts_are_sent_with_requests),
        T(requests_wait_for_ranks),
        T(signals_stop),
        T(a_signal_after_a_stop),
        T(status_states_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

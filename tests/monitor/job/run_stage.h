/* run_stage.h - whole runs of the supervisor, with the test program in place of mpirun and of rank 0: each attempt runs
 * one of the job's scripts, and the screen records its output. The test's main function is `stage_main`. */
#ifndef BT_TESTS_MONITOR_JOB_RUN_STAGE_H
#define BT_TESTS_MONITOR_JOB_RUN_STAGE_H

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/base/clock.h"
#include "engine/base/text.h"
#include "monitor/job/health/rank_progress.h"
#include "monitor/job/launch/launch.h"
#include "monitor/job/spare_socket.h"
#include "monitor/job/supervisor.h"
#include "store/wire/control_client.h"

/* The rank. */

typedef struct rank {
    bt_wire *wire;
    int64_t step;
    _Atomic uint32_t told; /* one bit per request */
    const char *places;
    pid_t second; /* process of another rank, or 0 */
} rank;

static inline void on_told(void *ctx, const bt_ctl *c) {
    rank *r = ctx;
    r->told |= UINT32_C(1) << c->verb;
}

static inline const char *word_after(int argc, char **argv, const char *flag) {
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], flag) == 0) return argv[i + 1];
    return "";
}

/* Starts a second process that only waits: it is rank 0, and this one becomes rank 1. */
static inline void start_second_rank(rank *r, const bt_sink *to) {
    const pid_t me = getpid();
    r->second = fork();
    if (r->second == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == me) pause();
        _exit(0);
    }
    bt_rank_info all[2] = {{.rank = 0, .pid = (int)r->second}, {.rank = 1, .pid = (int)me}};
    for (int i = 0; i < 2; i++) gethostname(all[i].host, sizeof all[i].host - 1);
    to->ranks(to->ctx, all, 2);
}

/* Rank 0 waits in an exchange for rank 1, which computes. */
static inline void let_rank_1_be_late(const rank *r, int ms) {
    bt_progress_page *first = bt_rank_progress_map(r->places, 0), *late;
    if (!first) exit(95);
    late = first + 1;
    bt_progress_enter(first, BT_AT_EXCHANGE, r->step);
    bt_progress_enter(late, BT_AT_COMPUTE, r->step);
    bt_sleep_ns(ms * INT64_C(1000000));
    bt_progress_enter(late, BT_AT_EXCHANGE, r->step);
    munmap(first, 2 * sizeof *first);
}

/* Both ranks are starting; rank 0 has begun an exchange that rank 1 has not. */
static inline void start_late(const rank *r) {
    bt_progress_page *first = bt_rank_progress_map(r->places, 0);
    if (!first) exit(95);
    for (int i = 0; i < 2; i++) {
        bt_progress_enter(first + i, BT_AT_START, 0);
        atomic_store(&first[i].exchanges, 8 - i);
    }
}

/* Runs a script such as "steps 3;die 9", one action after the other. */
static inline int run_rank_script(rank *r, char *what) {
    double values[BT_MS_COUNT];
    char *value = strchr(what, ' ');
    if (value) *value++ = '\0';
    const int number = value ? atoi(value) : 0;
    const bt_sink *to = r->wire ? bt_wire_sink(r->wire) : NULL;
    for (int i = 0; i < BT_MS_COUNT; i++) values[i] = 1;
    if (strcmp(what, "says") == 0) {
        printf("%s\n", value);
        fflush(stdout);
    } else if (strcmp(what, "ranks") == 0) {
        bt_rank_info me = {.rank = 0, .pid = (int)getpid()};
        gethostname(me.host, sizeof me.host - 1);
        to->ranks(to->ctx, &me, 1);
    } else if (strcmp(what, "two") == 0) {
        start_second_rank(r, to);
    } else if (strcmp(what, "stops") == 0) {
        kill(r->second, SIGSTOP);
    } else if (strcmp(what, "starts_late") == 0) {
        start_late(r);
    } else if (strcmp(what, "late") == 0) {
        let_rank_1_be_late(r, number);
    } else if (strcmp(what, "steps") == 0) {
        for (int i = 0; i < number; i++, r->step++)
            to->step(to->ctx,
                     &(bt_step_record){.step = r->step, .wall_us = bt_wall_us(), .values = values});
    } else if (strcmp(what, "saves") == 0) {
        to->checkpoint(to->ctx, &(bt_ckpt_record){.step = r->step, .path = "/c", .hash = ""});
    } else if (strcmp(what, "result") == 0) {
        to->result(to->ctx, value);
    } else if (strcmp(what, "leaves") == 0) {
        bt_wire_close(r->wire);
        r->wire = NULL;
    } else if (strcmp(what, "until") == 0) {
        while (!(r->told >> bt_verb_find(value) & 1)) bt_sleep_ns(1000000);
    } else if (strcmp(what, "appears") == 0) { /* a spare that connects and sends no greeting */
        while (access(getenv("STAGE_SILENT"), F_OK) != 0) bt_sleep_ns(1000000);
    } else if (strcmp(what, "unmaps") ==
               0) { /* removes the file as a cleaner of temporary folders does */
        if (getenv("HWLOC_XMLFILE")) unlink(getenv("HWLOC_XMLFILE"));
    } else if (strcmp(what, "maps") == 0) {
        if (getenv("HWLOC_XMLFILE") && access(getenv("HWLOC_XMLFILE"), R_OK) != 0) return 96;
    } else if (strcmp(what, "waits") == 0) {
        for (;;) pause();
    } else if (strcmp(what, "die") == 0) {
        kill(getpid(), number);
    } else if (strcmp(what, "exit") == 0) {
        return number;
    }
    return -1;
}

/* Runs, in a child, the script whose number is that of the attempt. */
static inline int play_rank(int argc, char **argv) {
    const bt_wire_handlers h = {.control = on_told};
    int attempt = atoi(word_after(argc, argv, "--attempt"));
    const char *from = word_after(argc, argv, "--resume-from"),
               *spare = word_after(argc, argv, "--spare"), *says = getenv("STAGE_SPARE"),
               *but_one = getenv("STAGE_SPARE_BUT_ONE"), *silent = getenv("STAGE_SILENT");
    bt_spare_go go;
    bt_wire_handlers mine = h;
    bt_err err = BT_ERR_INIT;
    int code = 0;
    alarm(60);      /* ends the rank if the supervisor has died */
    if (spare[0]) { /* a rank of a hot spare waits, or ends with its own words */
        if (silent) {
            close(open(silent, O_WRONLY | O_CREAT, 0600));
            for (;;) pause();
        }
        /* The words contain several scripts; the first process creates this file and skips the first script. */
        const int first = but_one ? open(but_one, O_WRONLY | O_CREAT | O_EXCL, 0600) : -1;
        if (first >= 0) close(first);
        if (says && first < 0) {
            const size_t half = strcspn(says, "|"); /* a pause separates the two parts */
            printf("%.*s\n", (int)half, says);
            fflush(stdout);
            if (says[half]) {
                bt_sleep_ns(200000000);
                printf("%s\n", says + half + 1);
            }
            return 5;
        }
        if (bt_spare_wait(spare, &go, &err) != BT_OK) return 0;
        attempt = go.attempt;
        from = go.resume_from;
    }
    /* at least the attempt number returned by on_fence */
    if (!spare[0] && atoi(word_after(argc, argv, "--fence")) < attempt + 10) return 97;
    rank r = {.step = from[0] ? atoi(from + 1) : 0, .places = word_after(argc, argv, "--places")};
    char plays[4096], words[600], *line = plays;
    snprintf(plays, sizeof plays, "%s", getenv(BT_LAUNCH_SETTINGS));
    for (int i = 0; line && i < attempt; i++) strsep(&line, "\n");
    if (!line) return 99;
    snprintf(words, sizeof words, "%.*s", (int)strcspn(line, "\n"), line);
    mine.ctx = &r;
    if (strncmp(words, "alone", 5) != 0 &&
        bt_wire_connect(&r.wire, word_after(argc, argv, "--wire"), attempt, &mine, &err) != BT_OK)
        return 98;
    char *next = words;
    for (char *what; (what = strsep(&next, ";")) && (code = run_rank_script(&r, what)) < 0;)
        continue;
    bt_wire_close(r.wire);
    return code < 0 ? 0 : code;
}

/* The run. */

typedef struct stage {
    char dir[64], shown[8192], memory[300];
    bt_job_setup setup;
    bt_job_result result;
    int64_t resume_at; /* 0: no checkpoint */
    bool from_memory;  /* the first state to resume from is in memory */
    bool no_memory;    /* there is no folder for states in memory */
    int asked;         /* number of searches for a state to resume from */
    int away;          /* the folder of checkpoints is missing this many times */
    /* text on the screen that triggers the request, for example "step 3" and "stop" */
    const char *when, *verb, *value;
    const char *next_when; /* text that triggers the request a second time */
    int signal, key;       /* key: written to the supervisor's input */
    int ticks, taken;
    bool paused;
} stage;

static inline void show(stage *s, const char *fmt, ...) BT_PRINTF(2, 3);
static inline void show(stage *s, const char *fmt, ...) {
    const size_t n = strlen(s->shown);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s->shown + n, sizeof s->shown - n, fmt, ap);
    va_end(ap);
    if (s->when && strstr(s->shown, s->when)) {
        s->when = s->next_when;
        s->next_when = NULL;
        assert_int_equal(write(s->key, "k", 1), 1);
    }
}

static inline void on_event(void *ctx, const bt_event *e) {
    char title[480];
    snprintf(title, sizeof title, "%s", e->title);
    /* The process id differs each time. */
    char *pid = strstr(title, "(pid ");
    if (pid) memmove(pid + 4, strchr(pid, ')'), strlen(strchr(pid, ')')) + 1);
    char *since = strstr(title, " since ");
    if (since && strchr(since, ','))
        memmove(since, strchr(since, ','), strlen(strchr(since, ',')) + 1);
    /* The amount of memory differs, and is never zero. */
    char *mib = strstr(title, " MiB"), *at = mib;
    while (at && at > title && at[-1] != ' ') at--;
    if (mib && atoi(at) > 0) memmove(at, mib + 1, strlen(mib + 1) + 1);
    show(ctx, "%s %d %s\n", bt_events[e->kind].name, e->rank, title);
}

static inline void on_step(void *ctx, const bt_step_record *r) {
    show(ctx, "step %d\n", (int)r->step);
}
static inline void on_attempt(void *ctx, int attempt, int64_t from) {
    show(ctx, "attempt %d from %d\n", attempt, (int)from);
}

static inline void on_tick(void *ctx, const bt_job_view *v) {
    stage *s = ctx;
    s->ticks++;
    s->paused |= v->state == BT_STATE_PAUSED;
}

static inline void on_input(void *ctx, bt_job *job) {
    stage *s = ctx;
    bt_err err = BT_ERR_INIT;
    char key;
    assert_int_equal(read(s->setup.ui.input_fd, &key, 1), 1);
    if (s->signal) kill(getpid(), s->signal);
    if (s->verb &&
        bt_job_execute_verb(job, s->verb, s->value ? s->value : "", "key", &err) != BT_OK)
        show(s, "refused: %s\n", err.msg);
}

static inline bt_code on_resume(void *ctx, const char *memory, bt_resume_point *p, bt_text *why,
                                bt_err *err) {
    stage *s = ctx;
    struct stat st;
    s->asked++;
    if (s->no_memory) {
        assert_string_equal(memory, "");
    } else {
        assert_true(memory[0] && stat(memory, &st) == 0 && S_ISDIR(st.st_mode));
        assert_string_equal(strrchr(memory, '/'), "/states");
    }
    snprintf(s->memory, sizeof s->memory, "%s", memory);
    if (!s->resume_at || s->asked <= s->away) return bt_fail(err, BT_NOTFOUND, "none");
    if (s->asked == 1) bt_text_put(why, "a newer one is damaged\nand another");
    *p = (bt_resume_point){
        .step = s->resume_at, .lr_factor = 1, .memory = s->from_memory && s->asked == 1};
    snprintf(p->dir, sizeof p->dir, "/%d", (int)s->resume_at);
    return BT_OK;
}

static inline int on_fence(void *ctx, int attempt) {
    (void)ctx;
    return attempt + 10;
}

static inline int open_stage(void **state) {
    stage *s = calloc(1, sizeof *s);
    char path[96];
    int keys[2];
    strcpy(s->dir, "/tmp/bt_run_XXXXXX");
    if (!mkdtemp(s->dir) || pipe2(keys, O_CLOEXEC) != 0) return -1;
    alarm(30); /* A supervisor that hangs is ended. */
    s->key = keys[1];
    snprintf(path, sizeof path, "%s/mpirun", s->dir);
    FILE *f = fopen(path, "w");
    if (!f) return -1;
    fprintf(f, "#!/bin/sh\nwhile [ \"$1\" != \"$STAGE\" ]; do shift; done\nexec \"$@\"\n");
    if (fclose(f) != 0 || chmod(path, 0700) != 0) return -1;
    setenv("BITRAIN_MPIRUN", path, 1);
    s->setup = (bt_job_setup){.program = getenv("STAGE"),
                              .run = "r",
                              .out_dir = s->dir,
                              .run_lock = -1,
                              .ranks = 1,
                              .hosts = "",
                              .mpirun_args = "",
                              .max_restarts = 3,
                              .lr = 0.1,
                              .from = {.lr_factor = 1},
                              .resume_point = on_resume,
                              .fence = on_fence,
                              .resume_ctx = s,
                              .alert = {.command = "", .webhook = "", .curl = ""},
                              .ui = {.ctx = s,
                                     .event = on_event,
                                     .step = on_step,
                                     .attempt = on_attempt,
                                     .tick = on_tick,
                                     .input = on_input,
                                     .input_fd = keys[0]}};
    *state = s;
    return 0;
}

static inline int close_stage(void **state) {
    stage *s = *state;
    char cmd[96];
    close(s->setup.ui.input_fd);
    close(s->key);
    bt_job_result_release(&s->result);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", s->dir);
    /* States of the ranks in memory are removed with the run. */
    const int rc = system(cmd) != 0 || (s->memory[0] && access(s->memory, F_OK) == 0);
    free(s);
    return rc;
}

/* Writes the settings: each line is the script of the rank in one attempt. */
static inline void put_plays(stage *s, const char *const *plays) {
    static char lines[4096];
    lines[0] = '\0';
    for (size_t i = 0; plays[i]; i++)
        snprintf(lines + strlen(lines), sizeof lines - strlen(lines), "%s%s", i ? "\n" : "",
                 plays[i]);
    s->setup.settings = lines;
}

static inline void run(stage *s, const char *const *plays, const char *shows) {
    bt_err err = BT_ERR_INIT;
    put_plays(s, plays);
    if (bt_job_run(&s->setup, &s->result, &err) != BT_OK) fail_msg("%s", err.msg);
    assert_string_equal(s->shown, shows);
}
#define PLAYS(...) \
    (const char *const[]) { __VA_ARGS__, NULL }

/* Runs the script of a rank if this process is one, otherwise the tests. */
static inline int stage_main(int argc, char **argv, int (*tests)(void)) {
    char self[1024];
    if (argc > 1 && strcmp(argv[1], "rank") == 0) return play_rank(argc, argv);
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0) return 1;
    self[n] = '\0';
    setenv("STAGE", self, 1);
    setenv("HWLOC_COMPONENTS", "-pci", 0); /* the library does not free its list of devices */
    /* Parents such as nohup and a shell's & may leave these signals ignored. */
    static const int heeded[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
    for (size_t i = 0; i < sizeof heeded / sizeof *heeded; i++) signal(heeded[i], SIG_DFL);
    bt_job_block_signals();
    return tests();
}

#endif

/* soak_top.c - `top` under the sanitizers on malformed runs while they are written: soak_top [ROUNDS [SEED]]. Every
 * round creates a database with an interrupted run, and draws it with random keys and sizes while more records are
 * written: values that are not finite or absurd, steps without some ranks, jumps and repeated steps, attempts that end
 * and begin, titles with escape sequences. Even rounds draw into a cell grid; odd ones run the program's terminal code
 * in a pseudo-terminal. After each round the file is truncated and every screen is drawn from the remaining bytes. The
 * seed of a round is printed before it. */
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/monitor/tui/monkey.h"
#include "tests/store/synth_run.h"

enum { KEYS = 400 };

static void give_up(const char *what, const char *why) {
    fprintf(stderr, "soak_top: %s: %s\n", what, why);
    exit(1);
}

typedef struct scribe {
    bt_writer *w;
    uint32_t dice;
    bt_synth s;
    int64_t step, clock_us;
    bool open;
} scribe;

static uint32_t any_below(scribe *s, uint32_t n) { return monkey_dice(&s->dice, n); }

static void write_attempt(scribe *s) {
    bt_err err = BT_ERR_INIT;
    int number;
    bt_run_start start = {.name = "half",
                          .reason = "start",
                          .argv = "bitrain train \033]0;x\007",
                          .host = "here",
                          .user = "nobody",
                          .build = "soak",
                          .mpi = "none",
                          .config_json = any_below(s, 2) ? "{\"train.steps\":{\"value\":200}}"
                                                         : "{not json",
                          .out_dir = ".",
                          .world_size = s->s.ranks,
                          .seed = 1,
                          .pid = (int)getpid(),
                          .started_us = s->clock_us,
                          .resume = s->step > 0,
                          .from_step = s->step};
    if (bt_writer_begin(s->w, &start, &number, &err) != BT_OK) give_up("begin", err.msg);
    s->open = true;
    if (any_below(s, 4) == 0) return; /* no greeting */
    bt_rank_info info[64] = {{0}};
    int known = 1 + (int)any_below(s, (uint32_t)s->s.ranks);
    for (int r = 0; r < known; r++) {
        info[r] = (bt_rank_info){.rank = r,
                                 .pid = (int)getpid(),
                                 .threads = (int)any_below(s, 3),
                                 .isa = "\033[7mgeneric",
                                 .dp_replicate = r};
        snprintf(info[r].host, sizeof info[r].host, "n\xc3%d", r / 2);
    }
    const bt_sink *sink = bt_writer_sink(s->w);
    sink->ranks(sink->ctx, info, (size_t)known);
}

static double absurd_value(scribe *s, double v) {
    switch (any_below(s, 40)) {
    case 0: return NAN;
    case 1: return INFINITY;
    case 2: return -v;
    case 3: return v * 1e12;
    case 4: return 0;
    default: return v;
    }
}

static void write_absurd_step(scribe *s) {
    const bt_sink *sink = bt_writer_sink(s->w);
    double values[BT_MS_COUNT], ranks[64 * BT_MR_COUNT];
    bt_synth_step(&s->s, s->step, values, ranks);
    for (int i = 0; i < BT_MS_COUNT; i++) values[i] = absurd_value(s, values[i]);
    for (int i = 0; i < s->s.ranks * BT_MR_COUNT; i++) ranks[i] = absurd_value(s, ranks[i]);
    s->clock_us += any_below(s, 10) ? 120000 : -5000000;
    int n = any_below(s, 8) ? s->s.ranks : (int)any_below(s, (uint32_t)s->s.ranks + 1);
    sink->step(sink->ctx, &(bt_step_record){.step = s->step,
                                            .wall_us = s->clock_us,
                                            .values = values,
                                            .n_ranks = n,
                                            .rank_values = ranks});
    if (any_below(s, 12) == 0) bt_synth_layers(sink, s->step);
    if (any_below(s, 12) == 0) bt_synth_comm(sink, &s->s, s->step, 1 + any_below(s, 20));
    if (any_below(s, 12) == 0) bt_synth_pairs(sink, &s->s, s->step, 1 + any_below(s, 20));
    s->step += any_below(s, 15)  ? 1
               : any_below(s, 3) ? 1 + any_below(s, 3000)
                                 : -(int64_t)any_below(s, 5);
    if (s->step < 0) s->step = 0;
}

/* an event kind of another program version */
static void foreign_kind(void) {
    sqlite3 *db = NULL;
    if (sqlite3_open("m.db", &db) == SQLITE_OK) {
        sqlite3_busy_timeout(db, 1000);
        sqlite3_exec(db,
                     "UPDATE event SET kind = char(27) || '[31m' WHERE seq = (SELECT max(seq) FROM "
                     "event)",
                     NULL, NULL, NULL);
    }
    sqlite3_close(db);
}

static void write_absurd_event(scribe *s) {
    static const char *const titles[] = {
        "paused",
        "resumed after a pause of 3 s",
        "\033[2J\033]52;c;AAAA\007",
        "\xff\xfe\x80",
        "",
        "日本語のとても長い題名 日本語のとても長い題名 日本語のとても長い題名"};
    const bt_sink *sink = bt_writer_sink(s->w);
    sink->event(sink->ctx, &(bt_event){.kind = (bt_event_kind)any_below(s, BT_EVENT_COUNT),
                                       .step = any_below(s, 3) ? s->step : -1,
                                       .rank = (int)any_below(s, 4) - 1,
                                       .wall_us = s->clock_us,
                                       .title = titles[any_below(s, 6)]});
    if (any_below(s, 20) == 0) foreign_kind();
}

static void write_more(void *ctx) {
    scribe *s = ctx;
    bt_err err = BT_ERR_INIT;
    if (!s->open) {
        if (any_below(s, 3) == 0) write_attempt(s);
        return;
    }
    for (uint32_t i = any_below(s, 4); i > 0; i--) write_absurd_step(s);
    if (any_below(s, 10) == 0) write_absurd_event(s);
    if (any_below(s, 3) == 0 && bt_writer_flush(s->w, &err) != BT_OK) give_up("flush", err.msg);
    if (any_below(s, 120) == 0) {
        static const char *const ends[] = {"failed", "done", "stopped"};
        if (bt_writer_end(s->w, ends[any_below(s, 3)], "\033[1mrank 1 died", 1, &err) != BT_OK)
            give_up("end", err.msg);
        s->open = false;
    }
}

static void scribe_open(scribe *s, uint32_t seed) {
    bt_err err = BT_ERR_INIT;
    *s = (scribe){.dice = seed * 2654435761u + 1,
                  .s = bt_synth_default("half"),
                  .clock_us = bt_wall_us() - 60000000};
    s->s.ranks = 1 + (int)any_below(s, any_below(s, 3) ? 4 : 40);
    s->s.straggler = (int)any_below(s, 5) - 1;
    s->s.excess = 2;
    if (bt_writer_open(&s->w, "m.db", 5, &err) != BT_OK) give_up("open", err.msg);
    write_attempt(s);
    for (uint32_t i = any_below(s, 300); i > 0; i--) write_absurd_step(s);
    if (bt_writer_flush(s->w, &err) != BT_OK) give_up("flush", err.msg);
}

static bt_top_cfg config(bt_db *db, uint32_t *dice) {
    return (
        bt_top_cfg){.db = db,
                    .store = "m.db",
                    .run = "half",
                    .screen = 1 + (int)monkey_dice(dice, 8),
                    .at_step = -1,
                    .baseline = monkey_dice(dice, 4) ? "" : "half",
                    .frame_ns = 1,
                    .actions = {.control = fake_control, .start = fake_start, .mark = fake_mark}};
}

static void draw_into_grid(scribe *s, uint32_t seed) {
    bt_err err = BT_ERR_INIT;
    bt_db *db = NULL;
    monkey m = {.base = {.caps = {(bt_chars)(seed % 3), (bt_color_depth)(seed / 3 % 3), true},
                         .size = monkey_size,
                         .key = monkey_key,
                         .present = monkey_present,
                         .close = monkey_close},
                .dice = seed * 7919u,
                .left = KEYS,
                .w = 80,
                .h = 24,
                .meanwhile = write_more,
                .ctx = s};
    if (bt_db_open(&db, "m.db", &err) != BT_OK) give_up("open", err.msg);
    bt_top_cfg cfg = config(db, &m.dice);
    if (bt_top_interactive(&cfg, &m.base, &err) != BT_OK) give_up("top", err.msg);
    if (m.wrong || m.frames < 20) give_up("top", "a frame that cannot be shown, or hardly any");
    bt_db_close(db);
}

static int view_in_terminal(const char *seed) {
    uint32_t dice = (uint32_t)strtoul(seed, NULL, 10);
    bt_err err = BT_ERR_INIT;
    bt_db *db = NULL;
    bt_term *term = NULL;
    if (bt_db_open(&db, "m.db", &err) != BT_OK) give_up("open", err.msg);
    bt_top_cfg cfg = config(db, &dice);
    bt_code code = bt_term_open_ncurses(&term, bt_term_caps_of_env(), &err);
    if (code == BT_OK) code = bt_top_interactive(&cfg, term, &err);
    bt_term_close(term);
    bt_db_close(db);
    if (code != BT_OK) give_up("top", err.msg);
    return 0;
}

static pid_t start_view(const char *self, uint32_t seed, int *fd) {
    static const char *const terms[][2] = {
        {"xterm-256color", "C.UTF-8"}, {"xterm", "C.UTF-8"}, {"vt100", "C"}, {"linux", "C"}};
    char number[16];
    struct winsize ws = {.ws_row = 24, .ws_col = 80};
    snprintf(number, sizeof number, "%u", seed);
    pid_t pid = forkpty(fd, NULL, NULL, &ws);
    if (pid < 0) give_up("forkpty", "no pseudo-terminal");
    if (pid > 0) return pid;
    int log = open("view.err", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(log, STDERR_FILENO);
    setenv("TERM", terms[seed / 2 % 4][0], 1);
    setenv("LC_ALL", terms[seed / 2 % 4][1], 1);
    execl(self, self, "--view", number, (char *)NULL);
    _exit(127);
}

static void drain_terminal(int fd, int ms) {
    char buf[65536];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    while (poll(&p, 1, ms) > 0 && read(fd, buf, sizeof buf) > 0) ms = 0;
}

static void say_log(void) {
    char line[512];
    FILE *f = fopen("view.err", "r");
    while (f && fgets(line, sizeof line, f)) fputs(line, stderr);
    if (f) fclose(f);
}

static void draw_into_terminal(scribe *s, const char *self, uint32_t seed) {
    static const char *const bytes[] = {
        "\033[A", "\033[B", "\033OC",    "\033OD",        "\033[5~", "\033[6~",
        "\033[H", "\033[F", "\033[Z",    "\033[1;5D",     "\033OP",  "\033",
        "\t",     "\r",     "\x0c",      "\x7f",          "\x1a",    "\xe6\x97\xa5",
        "\xff",   "\033[",  "\033[200~", "\033[<0;10;10M"};
    uint32_t dice = seed * 7919u;
    int fd = -1, status = 0;
    pid_t pid = start_view(self, seed, &fd);
    drain_terminal(fd, 20000); /* the first frame */
    for (int i = 0; i < KEYS; i++) {
        char key[2] = {(char)(' ' + monkey_dice(&dice, 95)), 0};
        const char *send = monkey_dice(&dice, 3)
                               ? key
                               : bytes[monkey_dice(&dice, sizeof bytes / sizeof bytes[0])];
        if (key[0] == 'q') key[0] = '2';
        write_more(s);
        if (monkey_dice(&dice, 20) == 0) {
            struct winsize ws = {.ws_row = (unsigned short)(1 + monkey_dice(&dice, 70)),
                                 .ws_col = (unsigned short)(1 + monkey_dice(&dice, 220))};
            ioctl(fd, TIOCSWINSZ, &ws);
        }
        /* The program has ended; the exit status shows the cause. */
        if (write(fd, send, strlen(send)) < 0) break;
        drain_terminal(fd, i % 16 == 0 ? 120 : 1);
    }
    kill(pid, SIGTERM);
    for (int i = 0; i < 3000 && waitpid(pid, &status, WNOHANG) == 0; i++) {
        drain_terminal(fd, 0);
        bt_sleep_ns(10000000);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || kill(pid, 0) == 0) {
        char why[64];
        snprintf(why, sizeof why,
                 WIFSIGNALED(status) ? "signal %d"
                 : kill(pid, 0) == 0 ? "still there (%d)"
                                     : "exit status %d",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        say_log();
        kill(pid, SIGKILL);
        give_up("the viewer did not end well", why);
    }
    close(fd);
}

static void draw_truncated_file(uint32_t seed) {
    bt_err err = BT_ERR_INIT;
    bt_db *db = NULL;
    struct stat st;
    uint32_t dice = seed;
    if (system("cp m.db torn.db; cp m.db-wal torn.db-wal 2>/dev/null") != 0 &&
        access("torn.db", R_OK) != 0)
        give_up("cp", "no copy");
    const char *cut = monkey_dice(&dice, 2) && stat("torn.db-wal", &st) == 0 ? "torn.db-wal"
                                                                             : "torn.db";
    if (stat(cut, &st) == 0 && truncate(cut, st.st_size * monkey_dice(&dice, 100) / 100) != 0)
        give_up("truncate", cut);
    for (int k = 0; k < 8 && bt_db_open(&db, "torn.db", &err) == BT_OK; k++) {
        bt_term *term = NULL;
        FILE *nowhere = fopen("/dev/null", "w");
        bt_top_cfg cfg = config(db, &dice);
        cfg.screen = k + 1;
        if (!nowhere ||
            bt_term_open_text(&term, nowhere, (bt_term_caps){BT_CHARS_BRAILLE, BT_DEPTH_256, false},
                              120, 40, false, &err) != BT_OK)
            give_up("text", err.msg);
        if (bt_top_frame(&cfg, term, &err) != BT_OK && !err.msg[0])
            give_up("torn file", "an error without a word");
        bt_term_close(term);
        fclose(nowhere);
        bt_db_close(db);
        db = NULL;
        err = (bt_err)BT_ERR_INIT;
    }
    if (err.code != BT_OK && !err.msg[0]) give_up("torn file", "an error without a word");
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--view") == 0) return view_in_terminal(argv[2]);
    uint32_t rounds = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 100,
             seed = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 1;
    char self[PATH_MAX], dir[] = "/tmp/bt_soak_XXXXXX", clean[64];
    if (!realpath(argv[0], self) || !mkdtemp(dir) || chdir(dir) != 0)
        give_up(argv[0], "no place to work");
    for (uint32_t r = 0; r < rounds; r++) {
        scribe s;
        printf("soak_top: round %u: soak_top 1 %u\n", r + 1, seed + r);
        fflush(stdout);
        scribe_open(&s, seed + r);
        if ((seed + r) % 2 == 0)
            draw_into_grid(&s, seed + r);
        else
            draw_into_terminal(&s, self, seed + r);
        draw_truncated_file(seed + r);
        bt_writer_close(s.w);
        if (system("rm -rf ./* ") != 0) give_up("rm", dir);
    }
    snprintf(clean, sizeof clean, "rm -rf %s", dir);
    return chdir("/") == 0 && system(clean) == 0 ? 0 : 1;
}

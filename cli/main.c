/* main.c - finds and runs the command, prints its error once, and converts the code to the exit status. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/common/command.h"
#include "cli/common/verbs.h"
#include "cli/help.h"
#include "cli/version/version.h"
#include "engine/base/log.h"
#include "engine/base/system/hangup.h"
#include "engine/base/system/locale.h"
#include "engine/config/environment.h"
#include "engine/parallel/mpi/comm.h"

#ifdef BITRAIN_HAVE_TUI
#define BITRAIN_HAVE_SCREENS 1
#else
#define BITRAIN_HAVE_SCREENS 0
#endif

#define BT_COMMAND(name) extern const bt_command bt_cmd_##name;
#include "cli/commands.def"
#undef BT_COMMAND

#define BT_COMMAND(name) &bt_cmd_##name,
static const bt_command *const command_table[] = {
#include "cli/commands.def"
};
#undef BT_COMMAND

static void print_log_message(void *ctx, bt_log_level level, const char *line) {
    (void)ctx;
    char plain[1024];
    bt_text_plain(plain, sizeof plain, line);
    fprintf(stderr, "bitrain: %s: %s\n", bt_log_level_name(level), plain);
}

static void show_error(const char *command, bt_code code, const bt_err *err) {
    char plain[sizeof err->msg];
    bt_text_plain(plain, sizeof plain, err->msg[0] ? err->msg : bt_code_name(code));
    fflush(stdout);
    if (err->rank >= 0)
        fprintf(stderr, "bitrain %s: rank %d: %s\n", command, err->rank, plain);
    else
        fprintf(stderr, "bitrain %s: %s\n", command, plain);
}

static bool asks_for_help(int argc, char **argv) {
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

static int show_command_help(const bt_command *command, int argc, char **argv) {
    bt_err err = BT_ERR_INIT;
    bt_verb_help verb;
    bool found;
    bt_code code = bt_command_verb(command, argc, argv, &verb, &found, &err);
    if (code == BT_OK)
        bt_help_command(command, found ? &verb : NULL, stdout);
    else
        show_error(command->name, code, &err);
    return bt_exit_code(code);
}

/* Words that users type by mistake, and the command that each of them means. */
static const char *const other_words[][2] = {{"stop", "bitrain ctl RUN stop"},
                                             {"kill", "bitrain ctl RUN stop"},
                                             {"pause", "bitrain ctl RUN pause"},
                                             {"checkpoint", "bitrain ctl RUN checkpoint"},
                                             {"status", "bitrain ctl RUN status"},
                                             {"set", "bitrain ctl RUN set KEY=VALUE"},
                                             {"resume", "bitrain train --resume RUN"},
                                             {"continue", "bitrain train --resume RUN"},
                                             {"list", "bitrain runs"},
                                             {"ls", "bitrain runs"},
                                             {"ps", "bitrain runs state:running"},
                                             {"delete", "bitrain runs rm RUN"},
                                             {"rm", "bitrain runs rm RUN"},
                                             {"remove", "bitrain runs rm RUN"},
                                             {"rename", "bitrain runs rename RUN NAME"},
                                             {"tag", "bitrain runs tag RUN TAG"},
                                             {"note", "bitrain runs note RUN TEXT"},
                                             {"import", "bitrain runs import FILE"},
                                             {"chat", "bitrain serve RUN"},
                                             {"sample", "bitrain generate RUN --prompt TEXT"},
                                             {"infer", "bitrain generate RUN --prompt TEXT"},
                                             {"log", "bitrain logs RUN"},
                                             {"finetune", "bitrain train --init-from MODEL"},
                                             {"fine-tune", "bitrain train --init-from MODEL"},
                                             {"dashboard", "bitrain dash"},
                                             {"ui", "bitrain dash"},
                                             {"watch", "bitrain top RUN"},
                                             {"web", "bitrain dash"},
                                             {"version", "bitrain --version"},
                                             {"-v", "bitrain --version"},
                                             {"start", "bitrain train --data FILE"},
                                             {"run", "bitrain train --data FILE"},
                                             {"new", "bitrain train --data FILE"},
                                             {"init", "bitrain train --print-config"},
                                             {"config", "bitrain train --print-config"},
                                             {"presets", "bitrain help presets"},
                                             {"options", "bitrain help options"},
                                             {"test", "bitrain eval RUN"},
                                             {"predict", "bitrain generate RUN --prompt TEXT"},
                                             {"quantize", "bitrain convert RUN --to gguf"},
                                             {"info", "bitrain show RUN"}};

static int unknown_command(const char *word) {
    const char *names[64];
    char plain[96];
    size_t n = 0;
    for (size_t i = 0; i < bt_command_count() && n < 64; i++)
        if (!bt_command_at(i)->hidden) names[n++] = bt_command_at(i)->name;
    bt_text_plain(plain, sizeof plain, word);
    for (size_t i = 0; i < sizeof other_words / sizeof other_words[0]; i++)
        if (strcmp(word, other_words[i][0]) == 0) {
            fprintf(stderr, "bitrain: unknown command '%s' (did you mean '%s'?)\n", plain,
                    other_words[i][1]);
            return bt_exit_code(BT_ARG);
        }
    const char *near = bt_nearest(word, names, n);
    if (near)
        fprintf(stderr, "bitrain: unknown command '%s' (did you mean '%s'?)\n", plain, near);
    else
        fprintf(stderr, "bitrain: unknown command '%s' ('bitrain help' lists the commands)\n",
                plain);
    return bt_exit_code(BT_ARG);
}

/* Without this warning, a misspelt variable would silently have no effect. */
static void warn_of_unknown_variables(void) {
    for (size_t i = 0; environ[i]; i++) {
        bt_environment_name name;
        if (bt_environment_read(environ[i], &name)) continue;
        if (name.nearest[0])
            bt_log(BT_LOG_WARN,
                   "%s in the environment is unknown and has no effect (did you mean '%s'?)",
                   name.name, name.nearest);
        else
            bt_log(BT_LOG_WARN,
                   "%s in the environment is unknown and has no effect ('bitrain help options' "
                   "lists the settings)",
                   name.name);
    }
}

static bool no_stdout; /* the parent process had closed stdout */

/* Opens closed standard descriptors, because a file that received descriptor 1 would receive the printed output.
 * /dev/null is opened read-only as stdout, so that printing still fails. */
static void open_closed_standard_descriptors(void) {
    no_stdout = fcntl(STDOUT_FILENO, F_GETFD) < 0;
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
    }
}

/* Discards a report if stdout is closed. */
static void drop_report(const bt_command *command, int argc, char **argv) {
    bool drops = no_stdout && command->reports;
    for (int i = 0; i < argc; i++) drops = drops && strcmp(argv[i], "--json") != 0;
    const int null = drops ? open("/dev/null", O_WRONLY | O_CLOEXEC) : -1;
    if (null >= 0) {
        dup2(null, STDOUT_FILENO);
        close(null);
    }
}

/* True on ranks other than 0 for a command that is not an MPI program: `mpirun -np 2 bitrain eval` evaluates once, not
 * twice. */
static bool leaves_work_to_rank_0(const bt_command *command) {
    int rank, ranks;
    bt_comm_env_place(&rank, &ranks);
    if (command->ranked || ranks < 2) return false;
    if (rank == 0)
        bt_log(BT_LOG_WARN,
               "%s needs one process: rank 0 of this MPI job does the work, %d of %d ranks end at "
               "once (start it without mpirun, or with srun --mpi=none)",
               command->name, ranks - 1, ranks);
    return rank > 0;
}

static int run_command_line(int argc, char **argv) {
    const char *term = getenv("TERM");
    if (argc < 2 && BITRAIN_HAVE_SCREENS && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term &&
        term[0] && strcmp(term, "dumb") != 0)
        return run_command_line(3, (char *[]){argv[0], (char *)"top", (char *)"--home", NULL});
    if (argc < 2) {
        bt_help_overview(stderr);
        return bt_exit_code(BT_ARG);
    }
    const char *word = argv[1];
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("bitrain %s\n", bt_version_text());
        return 0;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        bt_help_overview(stdout);
        return 0;
    }
    const bt_command *command = bt_command_find(word);
    if (!command) return unknown_command(word);
    if (leaves_work_to_rank_0(command)) return 0;
    bt_err err = BT_ERR_INIT;
    if (asks_for_help(argc - 2, argv + 2)) return show_command_help(command, argc - 2, argv + 2);
    /* Ranks do not repeat the warning of the command that started them; doctor lists the variables itself. */
    if (!command->hidden && strcmp(command->name, "doctor") != 0) warn_of_unknown_variables();
    int status = -1;
    drop_report(command, argc - 2, argv + 2);
    bt_code code = bt_command_run(command, argc - 2, argv + 2, &status, &err);
    if (code != BT_OK && code != BT_STOPPED) show_error(command->name, code, &err);
    return status >= 0 ? status : bt_exit_code(code);
}

int main(int argc, char **argv) {
    open_closed_standard_descriptors();
    bt_hangup_restore();
    bt_commands_register(command_table, sizeof command_table / sizeof *command_table);
    /* The file size limit becomes an error of write(), like a full disk. */
    signal(SIGXFSZ, SIG_IGN);
    umask(umask(077) | S_IWOTH); /* no created file is writable by everybody */
    (void)bt_locale_follow();    /* braille and box drawing require a UTF-8 terminal */
    bt_log_set(print_log_message, NULL, BT_LOG_WARN);
    int status = run_command_line(argc, argv);
    errno = 0;
    if ((fflush(stdout) || ferror(stdout)) && status == 0) {
        fprintf(stderr, "bitrain: cannot write the output: %s\n", strerror(errno ? errno : EIO));
        status = 1;
    }
    return status;
}

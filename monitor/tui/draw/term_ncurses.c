/* term_ncurses.c - the interactive terminal; the only file that uses curses.
 *
 * newterm() is used, because initscr() exits the process on an unknown TERM. Colour pairs are
 * created on demand from (foreground, background) and cached; when the terminal has no more
 * pairs the default pair is used, because glyphs have the same meaning. curses sends changed
 * cells only; a comparison with the last canvas before it avoids all curses calls for an
 * unchanged frame. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#define NCURSES_WIDECHAR 1
#include <ncurses.h>

#include "engine/base/log.h"
#include "engine/base/system/locale.h"
#include "engine/base/text.h"
#include "monitor/tui/draw/term.h"

enum { PAIRS_MAX = 4096 };
/* curses allocates four arrays of cells of 28 bytes; a terminal may claim 65 535 columns */
enum { COLUMNS_MAX = 800, LINES_MAX = 300 };
/* bracketed paste: pasted text arrives between these two key codes */
enum { PASTE_BEGIN = KEY_MAX + 1, PASTE_END };

typedef struct nc_term {
    bt_term base;
    SCREEN *screen;
    bt_canvas shown; /* last state given to curses */
    bool all;        /* send the whole canvas next time */
    short pair_of[BT_C_COUNT][BT_C_COUNT];
    short pairs, pairs_max;
    char note[120]; /* printed after curses has ended, or "" */
} nc_term;

static volatile sig_atomic_t end_asked, resized;

static void note_resize(int sig) {
    (void)sig;
    resized = 1;
}

static void request_end(int sig) {
    (void)sig;
    end_asked = 1;
}

static void read_curses_size(bt_term *t, int *w, int *h) {
    (void)t;
    *w = COLS;
    *h = LINES;
}

/* A terminal of eight colours has no bright ones: grey becomes the default foreground, bright
 * colours their dark variants */
static short terminal_color(const nc_term *t, uint8_t role) {
    int i = bt_color_index(role, t->base.caps.depth);
    if (i >= 8 && COLORS < 16) i = i == 8 ? -1 : i - 8;
    return (short)i;
}

static short color_pair_for(nc_term *t, uint8_t fg, uint8_t bg) {
    if (fg == BT_C_NONE && bg == BT_C_NONE) return 0;
    short *p = &t->pair_of[fg][bg];
    if (*p == 0) {
        if (t->pairs >= t->pairs_max) return 0;
        init_pair(++t->pairs, terminal_color(t, fg), terminal_color(t, bg));
        *p = t->pairs;
    }
    return *p;
}

static attr_t curses_attributes(uint8_t a) {
    return (a & BT_ATTR_BOLD ? A_BOLD : 0) | (a & BT_ATTR_DIM ? A_DIM : 0) |
           (a & BT_ATTR_REVERSE ? A_REVERSE : 0) | (a & BT_ATTR_UNDERLINE ? A_UNDERLINE : 0);
}

static void put_curses_cell(nc_term *t, int x, int y, const bt_cell *cell) {
    wchar_t text[2] = {(wchar_t)cell->glyph, 0};
    cchar_t cc;
    short pair = t->base.caps.depth == BT_DEPTH_MONO
                     ? 0
                     : color_pair_for(t, cell->style.fg, cell->style.bg);
    attr_t attr = curses_attributes(cell->style.attr);
    if (t->base.caps.depth == BT_DEPTH_MONO && cell->style.bg != BT_C_NONE) attr ^= A_REVERSE;
    setcchar(&cc, text, attr, pair, NULL);
    mvadd_wch(y, x, &cc);
}

static bt_code present_canvas(bt_term *bt, const bt_canvas *c, bt_err *err) {
    nc_term *t = (nc_term *)bt;
    if (t->shown.w != c->w || t->shown.h != c->h) {
        bt_canvas_release(&t->shown);
        BT_TRY(bt_canvas_init(&t->shown, c->w, c->h, c->chars, err));
        t->all = true;
    }
    if (t->all) erase();
    bool any = t->all;
    for (int y = 0; y < c->h && y < LINES; y++)
        for (int x = 0; x < c->w && x < COLS; x++) {
            size_t i = (size_t)y * (size_t)c->w + (size_t)x;
            const bt_cell *cell = &c->cells[i];
            // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): unlike padding draws a cell again
            if (!t->all && memcmp(cell, &t->shown.cells[i], sizeof *cell) == 0) continue;
            t->shown.cells[i] = *cell;
            any = true;
            if (cell->glyph) put_curses_cell(t, x, y, cell);
        }
    if (t->all) clearok(stdscr, TRUE);
    t->all = false;
    if (any && (refresh() == ERR)) return bt_fail(err, BT_IO, "the terminal is gone");
    return BT_OK;
}

static void switch_bracketed_paste(bool on) {
    static const char begin[] = "\033[?2004h", end[] = "\033[?2004l";
    if (write(STDOUT_FILENO, on ? begin : end, sizeof begin - 1) < 0) end_asked = 1;
}

static int smaller_int(int a, int b) { return a < b ? a : b; }

/* Returns false if unknown. */
static bool window_size(int *w, int *h) {
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
        return false;
    *w = smaller_int(size.ws_col, COLUMNS_MAX);
    *h = smaller_int(size.ws_row, LINES_MAX);
    return true;
}

/* resizeterm also puts a KEY_RESIZE into the queue of keys */
static int32_t resize_screen(nc_term *t) {
    int w, h;
    resized = 0;
    if (window_size(&w, &h)) resizeterm(h, w);
    t->all = true;
    return BT_KEY_RESIZE;
}

static void suspend_terminal(nc_term *t) {
    switch_bracketed_paste(false);
    endwin();
    /* stops the whole foreground job, like the terminal's own Ctrl-Z */
    kill(0, SIGTSTP);
    switch_bracketed_paste(true);
    refresh();
    t->all = true;
}

/* Translates the wheel and the first button; other buttons are ignored. */
static int32_t read_mouse_key(nc_term *t) {
    MEVENT e;
    if (getmouse(&e) != OK) return BT_KEY_NONE;
    t->base.mouse_x = e.x;
    t->base.mouse_y = e.y;
    if (e.bstate & BUTTON4_PRESSED) return BT_KEY_WHEEL_UP;
    if (e.bstate & BUTTON5_PRESSED) return BT_KEY_WHEEL_DOWN;
    return e.bstate & BUTTON1_PRESSED ? BT_KEY_CLICK : BT_KEY_NONE;
}

static int32_t translate_key(nc_term *t, int rc, wint_t ch) {
    if (rc == OK) {
        if (ch == BT_CTRL('Z')) {
            suspend_terminal(t);
            return BT_KEY_RESIZE;
        }
        if (ch == 0x7F || ch == 0x08) return BT_KEY_BACKSPACE;
        return (int32_t)ch;
    }
    switch (ch) {
    case KEY_UP: return BT_KEY_UP;
    case KEY_DOWN: return BT_KEY_DOWN;
    case KEY_LEFT: return BT_KEY_LEFT;
    case KEY_RIGHT: return BT_KEY_RIGHT;
    case KEY_PPAGE: return BT_KEY_PAGE_UP;
    case KEY_NPAGE: return BT_KEY_PAGE_DOWN;
    case KEY_HOME: return BT_KEY_HOME;
    case KEY_END: return BT_KEY_END;
    case KEY_BTAB: return BT_KEY_BACKTAB;
    case KEY_DC: return BT_KEY_DELETE;
    case KEY_BACKSPACE: return BT_KEY_BACKSPACE;
    case KEY_ENTER: return '\n';
    case KEY_MOUSE: return read_mouse_key(t);
    case KEY_RESIZE: t->all = true; return BT_KEY_RESIZE;
    case PASTE_BEGIN: return BT_KEY_PASTE_BEGIN;
    case PASTE_END: return BT_KEY_PASTE_END;
    default: break;
    }
    if (ch >= (wint_t)KEY_F(1) && ch <= (wint_t)KEY_F(12))
        return BT_KEY_F((int32_t)(ch - (wint_t)KEY_F(0)));
    const char *name = keyname((int)ch); /* terminfo's extended names of modified arrows */
    if (name && strncmp(name, "kLFT", 4) == 0) return BT_KEY_CTRL_LEFT;
    if (name && strncmp(name, "kRIT", 4) == 0) return BT_KEY_CTRL_RIGHT;
    return BT_KEY_NONE;
}

static int32_t read_curses_key(bt_term *bt, int timeout_ms) {
    nc_term *t = (nc_term *)bt;
    if (end_asked) return BT_KEY_HANGUP;
    if (resized) return resize_screen(t);
    timeout(timeout_ms);
    wint_t ch = 0;
    errno = 0;
    int rc = get_wch(&ch);
    if (end_asked) return BT_KEY_HANGUP;
    if (rc == ERR && resized) return resize_screen(t);
    /* ERR means a timeout, a signal, or the end of input; after the latter no key can follow */
    if (rc == ERR) {
        if (errno == EIO || (errno != EINTR && timeout_ms > 0 && !isatty(STDIN_FILENO)))
            return BT_KEY_HANGUP;
        return BT_KEY_NONE;
    }
    return translate_key(t, rc, ch);
}

static void request_full_redraw(bt_term *bt) { ((nc_term *)bt)->all = true; }

static void close_curses(bt_term *bt) {
    nc_term *t = (nc_term *)bt;
    switch_bracketed_paste(false);
    endwin();
    delscreen(t->screen);
    if (t->note[0]) bt_log(BT_LOG_WARN, "%s", t->note);
    bt_canvas_release(&t->shown);
    free(t);
}

static void catch_signals(void) {
    struct sigaction a = {.sa_handler = request_end};
    sigemptyset(&a.sa_mask);
    end_asked = 0;
    sigaction(SIGTERM, &a, NULL);
    sigaction(SIGHUP, &a, NULL);
    sigaction(SIGINT, &a,
              NULL); /* for other processes that send SIGINT; in raw mode keys are bytes */
    sigaction(SIGQUIT, &a, NULL);
    a.sa_handler = note_resize; /* replaces the handler of curses, which accepts any size */
    sigaction(SIGWINCH, &a, NULL);
    a.sa_handler = SIG_IGN; /* a closed pipe is detected as a failed write */
    sigaction(SIGPIPE, &a, NULL);
}

bt_code bt_term_open_ncurses(bt_term **out, bt_term_caps want, bt_err *err) {
    nc_term *t = calloc(1, sizeof *t);
    if (!t) return bt_fail(err, BT_NOMEM, "cannot allocate a terminal");
    if (want.chars != BT_CHARS_ASCII && !bt_locale_follow() && !bt_locale_force_utf8())
        want.chars = BT_CHARS_ASCII;
    const char *term = getenv("TERM");
    int w, h;
    char columns[16], lines[16];
    if (window_size(&w, &h)) { /* curses prefers the environment */
        snprintf(columns, sizeof columns, "%d", w);
        snprintf(lines, sizeof lines, "%d", h);
        setenv("COLUMNS", columns, 1);
        setenv("LINES", lines, 1);
        use_tioctl(FALSE);
    }
    t->screen = newterm(NULL, stdout, stdin);
    /* newer terminals are not in the terminfo of older systems; all of them understand xterm's sequences */
    static const char *const others[] = {"xterm-256color", "xterm"};
    for (size_t i = 0; !t->screen && term && term[0] && i < 2; i++) {
        t->screen = newterm(others[i], stdout, stdin);
        if (t->screen)
            snprintf(t->note, sizeof t->note,
                     "terminal '%.40s' is unknown here: it was driven as '%s'", bt_text_shown(term),
                     others[i]);
    }
    unsetenv("COLUMNS");
    unsetenv("LINES");
    if (!t->screen) {
        free(t);
        return bt_fail(err, BT_UNSUPPORTED,
                       "cannot drive the terminal '%s'; try 'bitrain top --plain --watch 5'",
                       bt_text_shown(term));
    }
    set_term(t->screen);
    raw();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    define_key("\033[200~", PASTE_BEGIN);
    define_key("\033[201~", PASTE_END);
    switch_bracketed_paste(true);
    /* a frame is short, so the keyboard is not polled while drawing */
    typeahead(-1);
    set_escdelay(25);
    mouseinterval(0); /* report a press immediately */
    mousemask(BUTTON1_PRESSED | BUTTON4_PRESSED | BUTTON5_PRESSED, NULL);
    curs_set(0);
    if (want.depth != BT_DEPTH_MONO && has_colors()) {
        start_color();
        use_default_colors();
        if (want.depth == BT_DEPTH_256 && COLORS < 256) want.depth = BT_DEPTH_16;
        if (want.depth == BT_DEPTH_16 && COLORS < 8) want.depth = BT_DEPTH_MONO;
        t->pairs_max = (short)(COLOR_PAIRS - 1 < PAIRS_MAX ? COLOR_PAIRS - 1 : PAIRS_MAX);
    } else {
        want.depth = BT_DEPTH_MONO;
    }
    want.keys = true;
    t->base = (bt_term){want,
                        read_curses_size,
                        read_curses_key,
                        present_canvas,
                        request_full_redraw,
                        close_curses,
                        0,
                        0};
    t->all = true;
    catch_signals();
    *out = &t->base;
    return BT_OK;
}

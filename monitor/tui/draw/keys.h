/* keys.h - key codes, actions, and the table that binds them (keys.def). */
#ifndef BT_MONITOR_TUI_DRAW_KEYS_H
#define BT_MONITOR_TUI_DRAW_KEYS_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/text.h"

#define BT_CTRL(c) ((c)&0x1F)
#define BT_KEY_F(n) (BT_KEY_F0 + (n))

/* printable keys are their code point; other keys are above Unicode */
enum {
    BT_KEY_NONE = 0,
    BT_KEY_ESC = 0x1B,
    BT_KEY_BACKSPACE = 0x110000,
    BT_KEY_UP,
    BT_KEY_DOWN,
    BT_KEY_LEFT,
    BT_KEY_RIGHT,
    BT_KEY_PAGE_UP,
    BT_KEY_PAGE_DOWN,
    BT_KEY_HOME,
    BT_KEY_END,
    BT_KEY_BACKTAB,
    BT_KEY_DELETE,
    BT_KEY_CTRL_LEFT,
    BT_KEY_CTRL_RIGHT,
    BT_KEY_RESIZE,      /* the terminal has another size */
    BT_KEY_HANGUP,      /* the terminal was closed, or the end was requested */
    BT_KEY_PASTE_BEGIN, /* beginning of pasted text, until BT_KEY_PASTE_END */
    BT_KEY_PASTE_END,
    BT_KEY_CLICK, /* the first button of the mouse: bt_term's mouse_x and mouse_y */
    BT_KEY_WHEEL_UP,
    BT_KEY_WHEEL_DOWN,
    BT_KEY_F0 = 0x110100
};

typedef enum {
    BT_KEYS_CONTROL, /* first group, because a small help screen shows it without scrolling */
    BT_KEYS_VIEW,
    BT_KEYS_MOVE,
    BT_KEYS_TIME,
    BT_KEYS_RUNS,
    BT_KEYS_OTHER,
    BT_KEYS_GROUPS
} bt_key_group;

#define BT_BIND(action, group, keys, hint, help, a, b, c, d) BT_DO_##action,
typedef enum {
    BT_DO_NONE,
#include "monitor/tui/draw/keys.def"
    BT_DO_COUNT
} bt_action;
#undef BT_BIND

typedef struct bt_bind {
    bt_action action;
    bt_key_group group;
    const char *keys, *hint, *help;
    int32_t codes[4];
} bt_bind;

extern const bt_bind bt_binds[];
extern const size_t bt_binds_n;

bt_action bt_keys_action(int32_t key); /* '0'..'9' give BT_DO_SCREEN; '0': the tenth */
const char *bt_keys_group_name(bt_key_group g);
/* the table as text: for `top --help` and the manual page */
void bt_keys_help(bt_text *out);

#endif

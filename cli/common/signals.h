/* signals.h - signals of a rank become requests; the terminal is restored before every exit. */
#ifndef BT_CLI_COMMON_SIGNALS_H
#define BT_CLI_COMMON_SIGNALS_H

#include "engine/train/run_request.h"

/* USR1 and TERM = checkpoint and stop. With direct (no supervisor above) INT means the same, and a
 * second one ends at once. PIPE and XFSZ are ignored. The box must live as long as the process. */
void bt_signals_rank(bt_request_box *box, int direct);
int bt_signals_seen(void); /* the signal that requested the stop, 0: none */

/* remembers how the terminal `fd` was and puts it back at exit and on fatal signals; call once,
 * before raw mode */
void bt_signals_guard_terminal(int fd);
void bt_signals_restore_terminal(void);
/* a fatal signal leaves the full screen, too */
void bt_signals_full_screen(bool on);

#endif

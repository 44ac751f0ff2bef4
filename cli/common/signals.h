/* signals.h - turns signals to a rank into requests; restores the terminal before every exit. */
#ifndef BT_CLI_COMMON_SIGNALS_H
#define BT_CLI_COMMON_SIGNALS_H

#include "engine/train/run_request.h"

/* USR1 and TERM request a checkpoint and a stop. If `direct` (no supervisor), INT does the same, and a second INT ends
 * the process at once. PIPE and XFSZ are ignored. `box` must remain valid until the process ends. */
void bt_signals_rank(bt_request_box *box, int direct);
int bt_signals_seen(void); /* signal that requested the stop; 0: none */

/* Stores the state of the terminal `fd` and restores it at exit and on fatal signals. To be called once, before raw
 * mode. */
void bt_signals_guard_terminal(int fd);
void bt_signals_restore_terminal(void);
/* Makes a fatal signal also leave the full screen. */
void bt_signals_full_screen(bool on);

#endif

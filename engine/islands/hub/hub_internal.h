/* hub_internal.h - declarations for the files of the hub. A file calls only functions of files below it:
 *
 *     hub_server.c   checks and distributes messages
 *     hub_members.c  islands join, leave, or are declared dead
 *     hub_rounds.c   applies updates and lets islands begin steps
 *     hub_changes.c  turns updates into weights and stores them; hub_overdue.c finds islands that delay the job
 *     hub_state.c    the job, its checkpoints and its log
 *     hub_disk.c     waits for a disk
 *     hub_peers.c    messages and events */
#ifndef BT_ENGINE_ISLANDS_HUB_HUB_INTERNAL_H
#define BT_ENGINE_ISLANDS_HUB_HUB_INTERNAL_H

#include "engine/islands/hub/hub_changes.h"
#include "engine/islands/hub/hub_server.h"

/* hub_peers.c */
/* number of the hub or of a member in message heads: 1, 2, ... */
uint32_t bt_hub_number(const bt_hub *h, const bt_member *m);
void bt_hub_event(bt_hub *h, bt_event_kind kind, const bt_member *m, const char *fmt, ...)
    BT_PRINTF(4, 5);
bt_port_state bt_hub_send(bt_hub *h, const bt_hub_peer *to, const bt_island_head *head,
                          const void *payload);
/* Refuses a message by one line to a peer, which need not be a member. */
void bt_hub_refuse(bt_hub *h, const bt_hub_peer *to, const char *fmt, ...) BT_PRINTF(3, 4);
/* Sends one line for display to an island, or, with m NULL, to all islands that train. */
void bt_hub_notice(bt_hub *h, const bt_member *m, const char *line);
void bt_hub_unstage(bt_member *m);

/* hub_state.c. The settings of the first island become those of the job. */
bt_code bt_hub_begin_job(bt_hub *h, const char *text, size_t n, bt_err *err) BT_MUST_CHECK;

/* hub_changes.c. Returns the bytes of an update of this kind, and selects its fragment (bt_hub_model_use). */
size_t bt_hub_update_bytes(bt_hub *h, const bt_member *m, int64_t kind);
/* Returns true if the member's chunks, received or not, have the number and size of an update of `bytes` bytes. */
bool bt_hub_update_fits(const bt_member *m, size_t bytes);

/* hub_members.c */
bt_code bt_hub_hello(bt_hub *h, const bt_hub_peer *from, const char *text, size_t n, bt_err *err)
    BT_MUST_CHECK;
/* Removes a member, drops its update and returns its data. */
bt_code bt_hub_lose(bt_hub *h, bt_member *m, bt_member_state state, const char *why, bt_err *err)
    BT_MUST_CHECK;

/* hub_rounds.c. Called when all chunks of a member's update have arrived. */
bt_code bt_hub_pushed(bt_hub *h, bt_member *m, bt_err *err) BT_MUST_CHECK;
/* Called after a member has joined, left or pushed an update: applies all updates that can be applied, and sends a go
 * to each island that may begin a step. */
bt_code bt_hub_advance(bt_hub *h, bt_err *err) BT_MUST_CHECK;
void bt_hub_send_go(bt_hub *h, const bt_member *m);

/* hub_overdue.c. Reports islands that delay the job, and marks those that take far too long as overdue. Returns true if
 * another one became overdue, so that the remaining islands may begin (bt_hub_advance). */
bool bt_hub_watch(bt_hub *h);
/* Called when the member's update is complete. Returns true if the job had continued without this member. */
bool bt_hub_returns(bt_hub *h, bt_member *m);
/* Called after a member began a step, pushed, joined or left: updates the time since which an island waits. */
void bt_hub_note_waits(bt_hub *h);

/* hub_disk.c. Called after the disk refused to store something: reports it (if `first`), pings the islands and waits
 * about a second. An error ends the hub; it is `why` if waiting cannot help. */
bt_code bt_hub_wait_for_disk(bt_hub *h, bool first, const bt_err *why, bt_err *err) BT_MUST_CHECK;
void bt_hub_disk_is_back(bt_hub *h);

/* hub_observe.c. Called after an update was applied. */
void bt_hub_observe(bt_hub *h, const bt_hub_step *step, int64_t tokens);
/* Records the current rows of the islands, which replace those of the same update. */
void bt_hub_observe_islands(bt_hub *h);

#endif

/* hub_run.h - runs a hub from its first island to the end of its job: messages, signals, the record. */
#ifndef BT_CLI_HUB_HUB_RUN_H
#define BT_CLI_HUB_HUB_RUN_H

#include "engine/base/sink.h"
#include "engine/islands/hub/hub_server.h"
#include "engine/islands/zmq/hub_socket.h"
#include "monitor/job/launch/server_guard.h"

typedef struct bt_hub_settings {
    char listen[1024], keys[1024], allow[1024], name[64], store[1024], out[1024], isa[32];
    int64_t islands, threads, quorum, late, restarts;
    double grace_s, link_s, silence_s, quorum_s, overdue_s;
    double memory_mib; /* maximum memory beyond bt_hub_bytes; 0: no limit */
    bool quiet, no_monitor;
} bt_hub_settings;

/* Generates a name for the hub's run if none is given. */
bt_code bt_hub_name(bt_hub_settings *s, bt_err *err) BT_MUST_CHECK;
/* Runs until the job is done or a signal arrives. guarded: NULL if this process has no guard. */
bt_code bt_hub_run(const bt_hub_settings *s, bt_guarded *guarded, bt_hub_socket *socket,
                   bt_err *err) BT_MUST_CHECK;

#endif

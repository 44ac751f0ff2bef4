/* team.h - the exchanges of a tensor-parallel team (engine/base/team.h) over the tp axis of a mesh.
 *
 * Bytes sent by a rank of n, counted like all others:
 *     gather  (n-1) times its own rows       reduce  everybody else's rows: (n-1)/n of the matrix
 *     share   (n-1) times its bytes          sum     2 (n-1)/n of the array, n = the group
 * Owns: staging for BT_TEAM_CHUNK_BYTES of every rank, twice. No allocation after create. The training thread. */
#ifndef BT_ENGINE_PARALLEL_TEAM_H
#define BT_ENGINE_PARALLEL_TEAM_H

#include "engine/base/team.h"
#include "engine/parallel/comm.h"

enum { BT_TEAM_CHUNK_BYTES = 256 << 10 };

bt_code bt_team_create(bt_team **out, bt_comm *tp, bt_err *err) BT_MUST_CHECK;  /* borrows tp; on one rank alone: NULL */
void bt_team_destroy(bt_team *t);                       /* accepts NULL */
size_t bt_team_staging(int size);                       /* bytes that create takes */
bt_code bt_team_check(const bt_team *t, bt_err *err) BT_MUST_CHECK;             /* the first failure since create; NULL is fine */

#endif

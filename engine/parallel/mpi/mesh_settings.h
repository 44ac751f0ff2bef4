/* mesh_settings.h - the settings mesh.* as a struct; bt_run_cfg has it as its field `mesh`. */
#ifndef BT_ENGINE_PARALLEL_MPI_MESH_SETTINGS_H
#define BT_ENGINE_PARALLEL_MPI_MESH_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct bt_mesh_settings {
#define BT_SETTINGS_TABLE "engine/parallel/mpi/mesh_settings.def"
#include "engine/base/tables/opt_fields.def"
} bt_mesh_settings;

#endif

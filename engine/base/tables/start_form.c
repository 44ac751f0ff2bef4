/* start_form.c - the table generated from start_form.def. */
#include "engine/base/tables/start_form.h"

#include <string.h>

#define BT_START_FIELD(name, flag, first, choices, help) {name, flag, first, choices, help},
const bt_start_field bt_start_fields[BT_START_FIELDS] = {
#include "engine/base/tables/start_form.def"
};
#undef BT_START_FIELD

const bt_start_field *bt_start_field_find(const char *name) {
    for (size_t i = 0; i < BT_START_FIELDS; i++)
        if (strcmp(bt_start_fields[i].name, name) == 0) return &bt_start_fields[i];
    return NULL;
}

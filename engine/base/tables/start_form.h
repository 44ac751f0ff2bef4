/* start_form.h - fields of the form that starts a run (start_form.def). */
#ifndef BT_ENGINE_BASE_TABLES_START_FORM_H
#define BT_ENGINE_BASE_TABLES_START_FORM_H

#include <stddef.h>

typedef struct bt_start_field {
    const char *name, *flag;
    const char *first;   /* initial content of the field */
    const char *choices; /* "a|b"; "": any text */
    const char *help;
} bt_start_field;

#define BT_START_FIELD(name, flag, first, choices, help) +1
enum {
    BT_START_FIELDS =
#include "engine/base/tables/start_form.def"
};
#undef BT_START_FIELD

extern const bt_start_field bt_start_fields[BT_START_FIELDS];

const bt_start_field *bt_start_field_find(const char *name);

#endif

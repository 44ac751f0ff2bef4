/* report_page.h - the page as plain texts for a report: sheet, chart library, our script. Made by
 * bundle.cmake. */
#ifndef BT_WEB_API_REPORT_PAGE_H
#define BT_WEB_API_REPORT_PAGE_H

#include <stddef.h>

/* sha256 in hex */
typedef struct bt_page_part {
    const char *text;
    size_t n;
    const char *sha256;
} bt_page_part;
extern const bt_page_part bt_page_sheet, bt_page_uplot, bt_page_script;

#endif

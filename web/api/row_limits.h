/* row_limits.h - limits of a response with plain rows: size and time. */
#ifndef BT_WEB_API_ROW_LIMITS_H
#define BT_WEB_API_ROW_LIMITS_H

#include "store/read/row_json.h"

enum { BT_WEB_ROWS_MAX = 5000 };
#define BT_WEB_QUERY_S 2.0

#endif

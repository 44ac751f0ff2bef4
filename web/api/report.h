/* report.h - writes a run as one self-contained HTML file: the dashboard's pages with stored responses.
 *
 * The file opens without a server or network. The content policy of the file permits exactly its three embedded texts,
 * by hash. Text of the run is in a JSON block whose markup characters are escaped, so no name or log line can become
 * markup. Size: at most a few MB for a run of any length: series have COLUMNS points, and only the worst ranks are
 * included. */
#ifndef BT_WEB_API_REPORT_H
#define BT_WEB_API_REPORT_H

#include "engine/base/status.h"
#include "engine/base/text.h"
#include "store/store.h"

/* run: a name or "last". out receives the whole file. progress: called after every response; may be NULL. */
bt_code bt_report(bt_text *out, const char *store, const char *run,
                  const bt_store_progress *progress, bt_err *err) BT_MUST_CHECK;

#endif

/* report.h - a run as one self-contained HTML file: the dashboard's own pages over answers kept in
 * the file.
 *
 * Opens without a server or network, under a content policy that allows exactly the three embedded
 * texts (by hash) and nothing else. Text of the run stands in a JSON block whose markup characters
 * are escaped, so no name or log line can become markup.
 * Size:     a few MB at most whatever the run's length: series of COLUMNS points, the worst ranks only. */
#ifndef BT_WEB_API_REPORT_H
#define BT_WEB_API_REPORT_H

#include "engine/base/status.h"
#include "engine/base/text.h"
#include "store/store.h"

/* run: a name or "last". out receives the whole file. progress: called after every answer; may
 * be NULL */
bt_code bt_report(bt_text *out, const char *store, const char *run,
                  const bt_store_progress *progress, bt_err *err) BT_MUST_CHECK;

#endif

/* foreign_data.h - names of data sets in configuration files of other programs.
 *
 * LLaMA-Factory defines its data sets in the file dataset_info.json of a folder (`dataset_dir`, default "data").
 * ms-swift writes FILE#N for the first N rows of a file. Both become data.path, data.form, data.field and
 * data.max_rows. Threads: one caller, which owns the options. */
#ifndef BT_ENGINE_CONFIG_FOREIGN_DATA_H
#define BT_ENGINE_CONFIG_FOREIGN_DATA_H

#include "engine/base/opt.h"

/* Converts the values of o->deferred to options of origin `file`. BT_ARG: err names the file, the line, the data set
 * and the remedy. If o->faults is set, the message is appended to it and BT_OK is returned. */
bt_code bt_foreign_data_resolve(bt_opts *o, bt_err *err) BT_MUST_CHECK;

#endif

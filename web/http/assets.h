/* assets.h - the front end, compiled in: path, media type, bytes and entity tag of both forms. Made
 * by embed.cmake from web/static and uPlot. */
#ifndef BT_WEB_HTTP_ASSETS_H
#define BT_WEB_HTTP_ASSETS_H

#include <stddef.h>

typedef struct bt_asset_form {
    const char *etag; /* quoted */
    const unsigned char *data;
    size_t bytes;
} bt_asset_form;

typedef struct bt_asset {
    const char *path; /* "/" , "/assets/app.js" */
    const char *type;
    bt_asset_form plain, gzip; /* every browser takes gzip; plain curl does not */
} bt_asset;

#endif

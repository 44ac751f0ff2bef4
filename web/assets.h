/* assets.h - the front end, compiled in: path, media type, gzip bytes, entity tag. Made by embed.cmake from web/static and uPlot. */
#ifndef BT_WEB_ASSETS_H
#define BT_WEB_ASSETS_H

#include <stddef.h>

typedef struct bt_asset {
    const char *path;                   /* "/" , "/assets/app.js" */
    const char *type;
    const char *etag;                   /* quoted */
    const unsigned char *gzip;
    size_t gzip_bytes, bytes;           /* compressed, and plain */
} bt_asset;

extern const bt_asset bt_assets[];
extern const size_t bt_assets_n;

#endif

/* panes.c - drops items that do not fit, then distributes the remaining length. */
#include "monitor/tui/draw/panes.h"

static int needed_size(const bt_pane_size *want, const int *size, int n, int gap) {
    int sum = 0, shown = 0;
    for (int i = 0; i < n; i++)
        if (size[i] > 0) sum += want[i].min, shown++;
    return sum + (shown > 1 ? (shown - 1) * gap : 0);
}

static void drop_pane_of_highest_rank(const bt_pane_size *want, int *size, int n) {
    int worst = -1;
    for (int i = 0; i < n; i++)
        if (size[i] > 0 && (worst < 0 || want[i].rank >= want[worst].rank)) worst = i;
    if (worst >= 0) size[worst] = 0;
}

static void share_length(int total, const bt_pane_size *want, int n, int gap, int *size) {
    for (int i = 0; i < n; i++) size[i] = want[i].min > 0 ? want[i].min : want[i].weight > 0;
    while (needed_size(want, size, n, gap) > total) drop_pane_of_highest_rank(want, size, n);
    int left = total - needed_size(want, size, n, gap);
    /* Adds one cell at a time to the item farthest below its share. */
    while (left > 0) {
        int best = -1;
        for (int i = 0; i < n; i++) {
            if (size[i] == 0 || want[i].weight == 0 || (want[i].max > 0 && size[i] >= want[i].max))
                continue;
            if (best < 0 || (size[i] - want[i].min) * want[best].weight <
                                (size[best] - want[best].min) * want[i].weight)
                best = i;
        }
        if (best < 0) break;
        size[best]++;
        left--;
    }
}

void bt_layout_rows(bt_rect r, const bt_pane_size *want, int n, int gap, bt_rect *out) {
    int size[BT_LAYOUT_MAX], y = r.y;
    share_length(r.h, want, n, gap, size);
    for (int i = 0; i < n; i++) {
        out[i] = (bt_rect){r.x, y, r.w, size[i]};
        if (size[i] > 0) y += size[i] + gap;
    }
}

void bt_layout_cols(bt_rect r, const bt_pane_size *want, int n, int gap, bt_rect *out) {
    int size[BT_LAYOUT_MAX], x = r.x;
    share_length(r.w, want, n, gap, size);
    for (int i = 0; i < n; i++) {
        out[i] = (bt_rect){x, r.y, size[i], r.h};
        if (size[i] > 0) x += size[i] + gap;
    }
}

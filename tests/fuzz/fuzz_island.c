/* fuzz_island.c - arbitrary bytes as messages between hub and islands: as a frame (first byte 0), or as a list of
 * messages with valid heads for a hub with one member (1: ps; 3: diloco with 4-bit fragments). Each message consists of
 * one byte each for type, sequence number, chunk and number of chunks, two bytes of length, and the payload. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/threads.h"
#include "engine/islands/hub/hub_server.h"
#include "engine/islands/rules/job_settings.h"
#include "engine/kernels/table/kernels.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static bt_text settings[2]; /* for ps and diloco */
static size_t elements;
static uint32_t incarnation;

static bt_port_state check_answer(void *ctx, const bt_hub_peer *to, const void *frame,
                                  size_t bytes) {
    bt_island_head head;
    const void *payload;
    bt_err err = BT_ERR_INIT;
    (void)ctx, (void)to;
    if (bt_island_parse(frame, bytes, BT_SENT_BY_HUB, &head, &payload, &err) != BT_OK) abort();
    if (head.type == BT_ISLAND_WELCOME) incarnation = head.incarnation;
    return BT_PORT_SENT;
}

static void begin_hub(bt_text *job, bool diloco) {
    static const char *const words[] = {"--set",          "model.layers=1",
                                        "--set",          "model.d_model=16",
                                        "--set",          "model.heads=1",
                                        "--set",          "model.kv_heads=1",
                                        "--set",          "model.d_ff=16",
                                        "--set",          "model.vocab=16",
                                        "--seq-len",      "8",
                                        "--data",         "synth:chain",
                                        "--batch-tokens", "8",
                                        "--steps",        "9",
                                        "--mode",         "ps",
                                        "--staleness",    "1"},
                             *const own[] = {"--mode",      "diloco",
                                             "--staleness", "0",
                                             "--inner",     "2",
                                             "--codec",     "int8",
                                             "--set",       "islands.fragments=2",
                                             "--set",       "islands.warmup=0"};
    enum { N = sizeof words / sizeof *words, N_OWN = sizeof own / sizeof *own };
    const char *all[N + N_OWN];
    memcpy(all, words, sizeof words);
    memcpy(all + N, own, sizeof own);
    static bt_run_cfg cfg;
    static bt_opts o;
    bt_err err = BT_ERR_INIT;
    bt_model_cfg model;
    bt_params p;
    bool help;
    if (bt_comm_init(&err) != BT_OK || bt_kernels_select("generic", &err) != BT_OK ||
        bt_threads_init(1, &err) != BT_OK ||
        bt_run_cfg_read(&o, &cfg, diloco ? N + N_OWN : N, (char *const *)(uintptr_t)all, &help,
                        &err) != BT_OK ||
        bt_run_cfg_resolve_opts(&o, &cfg, 1, &err) != BT_OK) {
        fprintf(stderr, "%s\n", err.msg);
        abort();
    }
    bt_run_cfg_model(&cfg, &model);
    if (bt_params_init(&p, &model, (bt_model_slice){.tp_rank = 0}, &err) != BT_OK) abort();
    elements = p.count;
    bt_job_settings_put(job, &cfg, &(bt_job_hashes){bt_params_hash(&p), 1});
    bt_text_put(job, "name=a\nsequences=1\n");
    bt_params_release(&p);
}

static void give_message(bt_hub *h, bt_island_head head, const void *payload) {
    static unsigned char frame[BT_ISLAND_FRAME];
    const bt_hub_peer from = {.n = 1, .key = "k"};
    bt_err err = BT_ERR_INIT;
    head.epoch = 5;
    head.island = 1;
    head.incarnation = incarnation;
    const size_t n = bt_island_write(frame, &head, payload);
    if (bt_hub_receive(h, &from, frame, n, 1, &err) != BT_OK) abort();
}

static void handle_as_messages(const bt_text *job, const uint8_t *data, size_t n) {
    enum { HEAD = 6 };
    const bt_hub_cfg cfg = {
        .port = {.send = check_answer}, .islands = 1, .grace_s = 1, .silence_s = 1e9, .epoch = 5};
    bt_hub *h = NULL;
    bt_err err = BT_ERR_INIT;
    if (bt_hub_create(&h, &cfg, &err) != BT_OK) abort();
    give_message(h, (bt_island_head){.type = BT_ISLAND_HELLO, .bytes = (uint32_t)job->len},
                 bt_text_str(job));
    float *weights = calloc(elements, sizeof *weights);
    const uint32_t bytes = (uint32_t)(elements * sizeof *weights);
    const bt_island_push push = {.kind = BT_PUSH_WEIGHTS, .bytes = bytes, .sequences = 1};
    give_message(
        h, (bt_island_head){.type = BT_ISLAND_CHUNK_MESSAGE, .seq = 1, .chunks = 1, .bytes = bytes},
        weights);
    give_message(h, (bt_island_head){.type = BT_ISLAND_PUSH, .seq = 1, .bytes = sizeof push},
                 &push);
    free(weights);
    while (n >= HEAD) {
        const size_t len = (size_t)(data[4] | data[5] << 8) % (n - HEAD + 1);
        give_message(h,
                     (bt_island_head){.type = (bt_island_type)(data[0] % (BT_ISLAND_TYPES + 1)),
                                      .seq = data[1],
                                      .chunk = data[2],
                                      .chunks = data[3],
                                      .bytes = (uint32_t)len},
                     data + HEAD);
        data += HEAD + len;
        n -= HEAD + len;
        if (bt_hub_tick(h, 1, &err) != BT_OK) abort();
    }
    if (h->model && !(h->model->theta[0] == h->model->theta[0])) abort(); /* never NaN */
    bt_hub_destroy(h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (!settings[0].len) {
        begin_hub(&settings[0], false);
        begin_hub(&settings[1], true);
    }
    if (n == 0) return 0;
    if (data[0] % 2) {
        handle_as_messages(&settings[data[0] >> 1 & 1], data + 1, n - 1);
        return 0;
    }
    bt_island_head head;
    const void *payload;
    bt_err err = BT_ERR_INIT;
    unsigned sum = 0;
    for (int from = 0; from < 2; from++) {
        if (bt_island_parse(data + 1, n - 1, (bt_island_sender)from, &head, &payload, &err) !=
            BT_OK)
            continue;
        for (uint32_t i = 0; i < head.bytes; i++) sum += ((const uint8_t *)payload)[i];
    }
    return sum == 0xffffffff;
}

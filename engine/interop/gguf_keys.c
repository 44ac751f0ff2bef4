/* gguf_keys.c - the pre-tokenisers of llama.cpp that cut text as ours do. */
#include "engine/interop/gguf_keys.h"

const bt_gguf_pre bt_gguf_pres[] = {
    {"gpt-2", "gpt2", false},
    {"llama-bpe", "llama3", true},
    {"qwen2", "qwen2", false},
    {"llama3", "llama3", true},
    {"llama-v3", "llama3", true},
    {"gpt2", "gpt2", false},
    {"deepseek-r1-qwen", "qwen2", false},
};
const size_t bt_gguf_pres_n = sizeof bt_gguf_pres / sizeof *bt_gguf_pres;

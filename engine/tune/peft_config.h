/* peft_config.h - adapter_config.json of PEFT: rank, scale and layers of the adapters in a folder.
 *
 * Used: r, lora_alpha, lora_dropout, use_rslora, use_dora, alpha_pattern, base_model_name_or_path. Refused by name:
 *       every setting with which PEFT computes something else (rank_pattern, modules_to_save, bias, an
 *       initialisation that changes the base). Any other key that is not in a list of harmless ones is reported.
 * Threads: any; no shared state. */
#ifndef BT_ENGINE_TUNE_PEFT_CONFIG_H
#define BT_ENGINE_TUNE_PEFT_CONFIG_H

#include "engine/base/text.h"

#define BT_PEFT_CONFIG "adapter_config.json"
#define BT_PEFT_WEIGHTS "adapter_model.safetensors"
/* The end of the names of DoRA's magnitudes; in files of earlier versions ".weight" follows. */
#define BT_PEFT_MAGNITUDES ".lora_magnitude_vector"
/* The remedy for adapters that cannot be read. */
#define BT_PEFT_MERGE \
    "merge them into the base with PEFT's merge_and_unload, and use the folder that it saves"

enum { BT_PEFT_PATTERNS = 256 };

typedef struct bt_peft {
    int rank;
    double alpha, dropout;
    bool rslora, dora;
    unsigned targets;  /* BT_LORA_*: the layers that have adapters in the file with the weights */
    bool some_layers;  /* layers_to_transform is set */
    char base[1024];   /* base_model_name_or_path; "": not given */
    size_t n_patterns; /* alpha_pattern: modules that have their own alpha */
    struct {
        char module[128];
        double alpha;
    } pattern[BT_PEFT_PATTERNS];
} bt_peft;

/* Returns true if the folder has an adapter_config.json, no whole model, and is not a bitrain checkpoint. */
bool bt_peft_is(const char *folder);
/* notes (may be NULL) receives one line for each property that the user should check. BT_UNSUPPORTED names the key. */
bt_code bt_peft_read(bt_peft *out, const char *folder, bt_text *notes, bt_err *err) BT_MUST_CHECK;
/* Return the factor of B A for all modules, and for one, such as "model.layers.3.self_attn.q_proj". */
double bt_peft_scale(const bt_peft *p);
double bt_peft_scale_of(const bt_peft *p, const char *module);
/* Adds a note if the configuration names another base than the one at `path`; compares only the last components. */
void bt_peft_compare_base(const bt_peft *p, const char *path, bt_text *notes);

#endif

/* optim_table.c - the table of optimizers, the rule of a tensor, and the storage forms of its states. */
#include "engine/optim/optim.h"

static const bt_optim_info infos[] = {
#define BT_OPTIM(id, name, matrices, rest, lr_factor, help) \
    {name, help, &matrices, &rest, lr_factor},
#include "engine/optim/optim.def"
#undef BT_OPTIM
};

const bt_optim_info *bt_optim_info_of(bt_optim_id id) { return &infos[id]; }

const bt_optim_rule *bt_optim_rule_of(bt_optim_id kind, const bt_optim_span *span) {
    return span->matrix ? infos[kind].matrices : infos[kind].rest;
}

const char *bt_states_name(bt_states_kind states) {
    static const char *const names[] = {"fp32", "bf16", "log8"};
    return names[states];
}

bt_moment_form bt_optim_form(const bt_optim_rule *rule, bt_states_kind states, size_t k) {
    switch (states) {
    case BT_STATES_BF16: return BT_MOMENT_BF16;
    case BT_STATES_LOG8: return rule->never_negative[k] ? BT_MOMENT_ULOG8 : BT_MOMENT_LOG8;
    default: return BT_MOMENT_F32;
    }
}

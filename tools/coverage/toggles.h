// Counts the bits of a signal that have changed: counter 2k for bit k becoming 0, 2k + 1 for it becoming 1.
//
// These take the place of Verilator's functions VL_COV_TOGGLE_CHG_ST_*. Verilator 5.048's function for signals
// of more than 64 bits shifts a word by more than its width, and so counts bits that have not changed.
#pragma once
#include <cstdint>

static inline void rk_toggled_Q(int, uint32_t* counters, uint64_t now, uint64_t before) {
    for (uint64_t moved = now ^ before; moved; moved &= moved - 1) {
        const int k = __builtin_ctzll(moved);
        ++counters[2 * k + (now >> k & 1)];
    }
}
static inline void rk_toggled_I(int width, uint32_t* counters, uint32_t now, uint32_t before) {
    rk_toggled_Q(width, counters, now, before);
}
template <class Wide, class Before>
static inline void rk_toggled_W(int width, uint32_t* counters, const Wide& now, const Before& before) {
    for (int word = 0; 32 * word < width; word++) rk_toggled_Q(32, counters + 64 * word, now[word], before[word]);
}

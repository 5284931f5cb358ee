// The array cell of rtl/npu/array.py as plain C++, clock edge by clock edge (DESIGN 5).
//
// One object per cell. `step` is one rising clock edge; it may be skipped on an edge at which
// `wants_step` is false. Outputs are what the RTL shows between this edge and the next.
#ifndef NPU_CELL_H
#define NPU_CELL_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace npu {

constexpr int kLanes = 8;      // channels drained at once
constexpr int kChannels = 32;  // channels of a direct tile
constexpr int kKernels = 32;   // kernels of a direct tile
constexpr int kWide = 64;      // depthwise lanes
constexpr int kSlots = 16;     // pixels of a stripe
constexpr int kBanks = 2;

// Scalar inputs of one edge. Weights (64 bytes) and features (128 bytes) come beside it, byte 0 first.
struct CellIn {
    uint8_t depthwise;
    uint8_t w_valid, w_index, w_stride;
    uint8_t f_valid, f_swap, f_first, f_bank, f_slot;
    uint8_t d_valid, d_bank, d_slot, d_octet;
};

// Everything the cell remembers: copy it to save, copy it back to restore.
struct alignas(64) CellState {
    int64_t acc[kBanks][kSlots][kWide];
    uint32_t sum[kBanks][kSlots][kWide];
    uint8_t shadow[kKernels * kChannels];           // as written: 32 bytes a kernel
    int8_t active[kKernels * kChannels];            // the tile in use, same layout
    int16_t pairs[kChannels / 2][kKernels][2];      // the same tile, channel pair by channel pair
    int8_t a_data[kWide];
    int32_t b_acc[kWide];
    int32_t b_sum[kWide];
    int64_t o_acc[kLanes];
    uint32_t o_sum[kLanes];
    uint8_t a_valid, a_depthwise, a_first, a_bank, a_slot;
    uint8_t b_valid, b_depthwise, b_first, b_bank, b_slot;
    uint8_t pairs_stale;                            // `pairs` does not hold `active` yet
};
static_assert(std::is_trivially_copyable<CellState>::value, "saved as bytes");

class Cell {
public:
    Cell() { std::memset(&s_, 0, sizeof s_); }

    // One rising edge. `weights` is read when w_valid, `features` when f_valid.
    void step(const CellIn &in, const uint8_t *weights, const uint8_t *features) {
        if (in.d_valid) drain(in);
        if (s_.b_valid) accumulate();
        s_.b_valid = s_.a_valid;
        if (s_.a_valid) multiply();
        s_.a_valid = in.f_valid;
        if (in.f_valid) latch(in, features);
        if (in.w_valid) write(in, weights);
    }

    // As `step` with the reset active: what is under way is dropped, contents stay.
    void reset() { s_.a_valid = s_.b_valid = 0; }

    bool busy() const { return s_.a_valid | s_.b_valid; }

    // Sign-extended from 40 bits.
    int64_t acc(int lane) const { return s_.o_acc[lane]; }
    uint32_t sum(int lane) const { return s_.o_sum[lane]; }

    // Outputs as the ports carry them: 8 x 40 bits in 10 words, 8 x 32 bits in 8 words.
    void pack_acc(uint32_t *words) const;
    void pack_sum(uint32_t *words) const { std::memcpy(words, s_.o_sum, sizeof s_.o_sum); }

    static constexpr size_t state_bytes() { return sizeof(CellState); }
    void save(void *to) const { std::memcpy(to, &s_, sizeof s_); }
    void restore(const void *from) { std::memcpy(&s_, from, sizeof s_); }

private:
    void drain(const CellIn &in);
    void accumulate();
    void multiply();
    void latch(const CellIn &in, const uint8_t *features);
    void write(const CellIn &in, const uint8_t *weights);
    void widen();

    CellState s_;
};

}  // namespace npu

#endif

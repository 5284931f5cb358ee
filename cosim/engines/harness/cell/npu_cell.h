// The array cell of rtl/npu/array.py as plain C++, clock edge by clock edge.
//
// One object per cell. `step` is one rising clock edge; it may be skipped at an edge at which nothing is
// valid and `busy` is false. Outputs are those of the RTL between this edge and the next. The floating-point
// environment must have its default settings: round to nearest, subnormals kept.
#ifndef NPU_CELL_H
#define NPU_CELL_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "npu_cell_float.h"

namespace npu {

constexpr int kLanes = 8;       // channels drained per cycle
constexpr int kChannels = 32;   // channels of a direct tile, for all types except tf32
constexpr int kWide = 64;       // lanes of depthwise, and kernels of int4
constexpr int kTile = 1024;     // bytes of a tile
constexpr int kSlots = 16;      // pixels of a stripe
constexpr int kBanks = 2;
constexpr int kAccBits = 48;

// What a pixel does in the cell; same as Path in rtl/npu/array.py.
enum class Path : uint8_t { Int8, Int8Wide, Int16, Int16Wide, Int4, Fp16, Fp16Wide, Bf16, Bf16Wide, Tf32 };

// Scalar inputs of one edge. Weights (64 bytes) and features (128 bytes) are passed separately, byte 0 first.
struct CellIn {
    uint8_t precision, depthwise;
    uint8_t w_valid, w_index, w_stride;
    uint8_t f_valid, f_swap, f_first, f_bank, f_slot;
    uint8_t d_valid, d_bank, d_slot, d_octet;
};

// The position of a pixel in the accumulators.
struct Tag {
    uint8_t valid, first, bank, slot;
    Path path;
};

// The whole state of the cell: copy it to save, copy it back to restore.
struct alignas(64) CellState {
    // integers may exceed 48 bits and are truncated when read; floats are stored as bits
    int64_t acc[kBanks][kSlots][kWide];
    uint32_t sum[kBanks][kSlots][kWide];
    uint8_t shadow[kTile];               // in row order, as in the RTL
    uint8_t active[kTile];               // the tile in use
    uint8_t a_data[2 * kWide];
    int32_t b_acc[kWide];  // int16 direct: 16 sums with the low bytes of the weights, 16 with the high bytes
    int32_t b_sum[kWide];                // direct: one sum, in element 0
    uint32_t b_tile[kWide], c_tile[kWide];  // tile sums of floats, as bits
    int64_t o_acc[kLanes];
    uint32_t o_sum[kLanes];
    Tag a, b, c;
};
static_assert(std::is_trivially_copyable<CellState>::value, "saved as bytes");

class Cell {
public:
    Cell() { std::memset(&s_, 0, sizeof s_); }

    // One rising edge. `weights` is read if w_valid, `features` if f_valid.
    void step(const CellIn &in, const uint8_t *weights, const uint8_t *features) {
        if (in.d_valid) drain(in);
        if (s_.c.valid) accumulate_floats();
        s_.c.valid = 0;
        if (s_.b.valid) accumulate();
        s_.b.valid = s_.a.valid;
        if (s_.a.valid) multiply();
        s_.a.valid = in.f_valid;
        if (in.f_valid) latch(in, features);
        if (in.w_valid) write(in, weights);
    }

    // Like `step` with reset active: pixels in the pipeline are dropped, memories keep their contents.
    void reset() { s_.a.valid = s_.b.valid = s_.c.valid = 0; }

    bool busy() const { return s_.a.valid | s_.b.valid | s_.c.valid; }

    // Sign-extended from 48 bits.
    int64_t acc(int lane) const { return s_.o_acc[lane]; }
    uint32_t sum(int lane) const { return s_.o_sum[lane]; }

    // Outputs as on the ports: 8 x 48 bits in 12 words, 8 x 32 bits in 8 words.
    void pack_acc(uint32_t *words) const;
    void pack_sum(uint32_t *words) const { std::memcpy(words, s_.o_sum, sizeof s_.o_sum); }

    static constexpr size_t state_bytes() { return sizeof(CellState); }
    void save(void *to) const { std::memcpy(to, &s_, sizeof s_); }
    void restore(const void *from) {
        std::memcpy(&s_, from, sizeof s_);
        stale_ = true;
    }

private:
    void drain(const CellIn &in);
    void accumulate();
    void accumulate_floats();
    void multiply();
    void latch(const CellIn &in, const uint8_t *features);
    void write(const CellIn &in, const uint8_t *weights);
    void prepare();
    void prepare_int8();

    CellState s_;
    // Result of `prepare`: the active tile, rearranged for the path in use.
    bool stale_ = true;
    alignas(64) int16_t pairs_[kChannels / 2 * kWide * 2];  // [channel pair][kernel][2]
    FloatTile floats_;
};

}  // namespace npu

#endif

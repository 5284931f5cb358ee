// Tile sums of the array cell's floating-point types [HW 6.2].
#ifndef NPU_CELL_FLOAT_H
#define NPU_CELL_FLOAT_H

#include <cstdint>

namespace npu {

enum class FloatKind : uint8_t { Fp16, Bf16, Tf32 };

// The weights of a tile in the forms that the sums need.
class FloatTile {
public:
    static constexpr int kKernels = 16, kChannels = 32, kWide = 64;

    // Loads a tile of 1 KiB, 64 bytes per kernel.
    void direct(FloatKind kind, const uint8_t *tile);
    // Loads 64 weights of 16 bits.
    void depthwise(FloatKind kind, const uint8_t *tile);

    // 16 sums over the channels of one pixel, as bits of binary32; never -0.
    void sum_direct(const uint8_t *features, uint32_t *sums);
    // 64 products.
    void sum_depthwise(const uint8_t *features, uint32_t *sums) const;

private:
    // Smallest and largest biased exponents (as in binary32, at least the type's smallest) of operands that
    // are not 0.
    struct Range {
        int low, high;
    };

    Range range(const float *values, int count) const;
    void split(const float *values, int count, int64_t *mantissas, int64_t *places) const;
    void exact_sums(const float *features, uint32_t *sums);
    void window_sums(const float *features, uint32_t *sums);

    FloatKind kind_;
    int channels_;
    int bits_;        // width of a mantissa with its hidden bit
    int smallest_;    // biased exponent, in binary32, of the smallest normal number
    bool split_;      // `mantissas_` and `places_` belong to the present tile
    Range range_;
    alignas(64) float values_[kChannels * kKernels];  // [channel][kernel]; depthwise: 64
    alignas(64) double doubles_[kChannels * kKernels];
    // Signed mantissas, and exponents of their last places, biased as in binary32; very low for a zero.
    alignas(64) int64_t mantissas_[kChannels * kKernels];
    alignas(64) int64_t places_[kChannels * kKernels];
};


}  // namespace npu

#endif

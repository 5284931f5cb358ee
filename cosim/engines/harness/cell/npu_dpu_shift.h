// Shifts with rounding, and fields of packed words, for the cells of the DPU.
#ifndef NPU_DPU_SHIFT_H
#define NPU_DPU_SHIFT_H

#include <cstdint>

namespace npu {

// A right shift with rounding to nearest, ties to even; Shift in rtl/npu/arith.py.
struct DpuShift {
    int64_t below, unit;
    int32_t count;
};

inline DpuShift shift_of(int count) {
    count &= 63;
    const uint64_t unit = count == 0 || count == 63 ? 0 : uint64_t{1} << count;
    return {static_cast<int64_t>(((uint64_t{1} << 62) - 1) >> (63 - count)), static_cast<int64_t>(unit), count};
}

inline int64_t low_bits(int bits) { return (int64_t{1} << bits) - 1; }

// value / 2^count with the rounding of a tie given; `round_shift` in rtl/npu/arith.py.
inline int64_t shifted(int64_t value, const DpuShift &s, int64_t ties_up) {
    return (value + ties_up + s.below) >> s.count;
}

// The same, half to even; `mask` has the bits of the value.
inline int64_t to_even(int64_t value, const DpuShift &s, int64_t mask) {
    return shifted(value, s, (value & s.unit & mask) != 0);
}

// Reads fields one after the other from packed words, lowest bit first.
class Bits {
public:
    explicit Bits(const uint32_t *words) : words_(words) {}
    uint32_t take(int width) {
        uint64_t both = words_[at_ >> 5];
        if ((at_ & 31) + width > 32) both |= static_cast<uint64_t>(words_[(at_ >> 5) + 1]) << 32;
        const uint64_t value = (both >> (at_ & 31)) & ((uint64_t{1} << width) - 1);
        at_ += width;
        return static_cast<uint32_t>(value);
    }
    uint8_t u8(int width) { return static_cast<uint8_t>(take(width)); }
    uint16_t u16(int width) { return static_cast<uint16_t>(take(width)); }
    int16_t i16() { return static_cast<int16_t>(take(16)); }
    int32_t i32() { return static_cast<int32_t>(take(32)); }

private:
    const uint32_t *words_;
    int at_ = 0;
};

}  // namespace npu

#endif

// Functions of binary32 with the special values of rtl/npu/float32.py, on bits.
#ifndef NPU_DPU_FLOAT32_H
#define NPU_DPU_FLOAT32_H

#include <cmath>
#include <cstdint>
#include <cstring>

namespace npu {

constexpr uint32_t kNan = 0x7FC00000, kInfinity = 0x7F800000, kMagnitude = 0x7FFFFFFF;

inline uint32_t bits_of(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float float_of(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline bool is_nan(uint32_t bits) { return (bits & kMagnitude) > kInfinity; }

// The bits of a result; every NaN has the same.
inline uint32_t one_nan(float value) {
    const uint32_t bits = bits_of(value);
    return is_nan(bits) ? kNan : bits;
}

inline int32_t to_int32(uint32_t bits) {
    if (is_nan(bits)) return 0;
    const double whole = std::nearbyint(static_cast<double>(float_of(bits)));
    if (whole >= 2147483648.0) return INT32_MAX;
    if (whole <= -2147483648.0) return INT32_MIN;
    return static_cast<int32_t>(whole);
}

// A NaN keeps its fraction.
inline uint32_t widen_fp16(uint32_t value) {
    const uint32_t biased = value >> 10 & 31, fraction = value & 0x3FF, sign = (value >> 15 & 1) << 31;
    const uint32_t small = bits_of(static_cast<float>(static_cast<int32_t>(fraction)) * (1.0f / (1 << 24)));
    const uint32_t normal = (biased == 31 ? 255 : biased + 112) << 23 | fraction << 13;
    return sign | (biased ? normal : small);
}

inline uint32_t narrow_fp16(uint32_t value, uint32_t nan) {
    const uint32_t biased = (value >> 23) & 0xFF;
    const uint32_t down = biased > 112 ? 0 : biased < 113 - 31 ? 31 : 113 - biased;
    const uint32_t whole = ((value & 0x7FFFFF) | (biased ? 0x800000u : 0)) << 8;
    const uint32_t cut = whole >> down;
    const uint32_t kept = cut | ((cut << down) != whole);
    const uint32_t up = (kept >> 20) & ((kept & 0xFFFFF) != 0 || ((kept >> 21) & 1));
    const uint32_t below = biased > 112 ? (biased - 113) & 31 : 0;
    const uint32_t magnitude = ((below << 10) + (kept >> 21) + up) & 0x7FFF;
    const uint32_t limited = biased > 142 ? 0x7C00 : magnitude;
    return is_nan(value) ? nan : limited | (value >> 31) << 15;
}

inline uint32_t narrow_bf16(uint32_t value) {
    const uint32_t up = (value >> 15) & ((value & 0x7FFF) != 0 || ((value >> 16) & 1));
    return is_nan(value) ? 0x7FC0 : ((value >> 16) + up) & 0xFFFF;
}

// a > b in the order by sign and magnitude of the bits.
inline bool above(uint32_t a, uint32_t b) {
    const uint32_t x = a & kMagnitude, y = b & kMagnitude;
    return a >> 31 ? (b >> 31 && y > x) : (b >> 31 || x > y);
}

}  // namespace npu

#endif

// What the functions of a timing model use (cosim/engines/timing/expressions.py).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace {
inline int64_t widened(uint64_t value, unsigned width) {
    return int64_t(value << (64 - width)) >> (64 - width);
}
inline uint64_t floor_quotient(int64_t a, int64_t b) {
    if (!b) return 0;
    const int64_t q = a / b;
    return uint64_t(a % b && (a < 0) != (b < 0) ? q - 1 : q);
}
inline uint64_t floor_rest(int64_t a, int64_t b) {
    if (!b) return 0;
    const int64_t r = a % b;
    return uint64_t(r && (r < 0) != (b < 0) ? r + b : r);
}
template <class T, size_t count>
inline bool differ(const T (&a)[count], const T (&b)[count]) {
    T found = 0;
    for (size_t k = 0; k < count; k++) found |= a[k] ^ b[k];
    return found != 0;
}
template <class T, size_t count>
inline void take(T (&a)[count], const T (&b)[count]) {
    for (size_t k = 0; k < count; k++) a[k] = b[k];
}
inline uint64_t low_bits(uint64_t value, uint64_t shift) { return shift < 64 ? value >> shift : 0; }
inline uint64_t row_bits(const uint64_t* row, unsigned first, unsigned width) {
    const unsigned word = first / 64, bit = first % 64;
    uint64_t out = row[word] >> bit;
    if (bit + width > 64) out |= row[word + 1] << (64 - bit);
    return width < 64 ? out & ((uint64_t(1) << width) - 1) : out;
}
inline uint64_t word_bits(const uint32_t* words, unsigned first) {
    const uint64_t low = uint64_t(words[first / 32 + 1]) << 32 | words[first / 32];
    return first % 32 ? low >> first % 32 | uint64_t(words[first / 32 + 2]) << (64 - first % 32) : low;
}
// Bits from `shift` on of a value of `total` bits, continued with zeros or its sign.
template <unsigned count>
inline uint64_t part_bits(
    const std::array<uint64_t, count>& words, unsigned total, uint64_t shift, bool sign) {
    const bool fill = sign && (words[count - 1] >> ((total - 1) % 64) & 1);
    const auto word = [&](uint64_t n) {
        if (n >= count) return fill ? ~uint64_t(0) : 0;
        return n == count - 1 && fill && total % 64 ? words[n] | ~uint64_t(0) << total % 64 : words[n];
    };
    const uint64_t n = shift / 64, bit = shift % 64;
    return bit ? word(n) >> bit | word(n + 1) << (64 - bit) : word(n);
}
}  // namespace

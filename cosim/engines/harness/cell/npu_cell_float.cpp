#include "npu_cell_float.h"

#include <cstring>

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace npu {

namespace {

constexpr int kKernels = FloatTile::kKernels, kChannels = FloatTile::kChannels;
constexpr int kHalf = 8;  // kernels in a vector of 64-bit elements
constexpr int64_t kNowhere = -(1 << 20);  // exponent that marks a zero

// Vector types of GCC and Clang; the compiler maps them to whatever the machine offers.
typedef double Doubles __attribute__((vector_size(8 * kHalf), may_alias));
typedef int64_t Longs __attribute__((vector_size(8 * kHalf), may_alias));

uint32_t bits_of(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

float float_of(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// fp16 as a float. A NaN stays a NaN; its bits do not matter.
float from_half(uint32_t half) {
    // the two formats have different exponent biases
    const float scaled = float_of((half & 0x7FFF) << 13) * 0x1p112f;
    return float_of(bits_of(scaled) | (half & 0x8000) << 16 | ((half & 0x7C00) == 0x7C00 ? 0x7F800000 : 0));
}

void halves(const uint16_t *from, float *to, int count) {
    int n = 0;
#if defined(__F16C__)
    for (; n < count; n += 8)
        _mm256_storeu_ps(to + n, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from + n))));
#endif
    for (; n < count; ++n) to[n] = from_half(from[n]);
}

// Elements of a type as floats.
void widen(FloatKind kind, const uint8_t *from, float *to, int count) {
    if (kind == FloatKind::Tf32) {
        uint32_t words[kChannels];
        std::memcpy(words, from, sizeof words[0] * count);
        for (int n = 0; n < count; ++n) words[n] &= 0xFFFFE000;  // only the upper 19 bits are significant
        std::memcpy(to, words, sizeof words[0] * count);
        return;
    }
    uint16_t shorts[FloatTile::kWide];
    std::memcpy(shorts, from, sizeof shorts[0] * count);
    if (kind == FloatKind::Fp16) {
        halves(shorts, to, count);
    } else {
        uint32_t words[FloatTile::kWide];
        for (int n = 0; n < count; ++n) words[n] = static_cast<uint32_t>(shorts[n]) << 16;
        std::memcpy(to, words, sizeof words[0] * count);
    }
}

// 16 sums as bits; zeros are written without a sign.
void store(const float *values, uint32_t *sums, int count) {
    for (int n = 0; n < count; ++n) {
        const uint32_t bits = bits_of(values[n]);
        sums[n] = bits == 0x80000000 ? 0 : bits;
    }
}

// Sums in doubles; exact if the exponents of the products are close enough. NaN and infinity are always
// correct.
void dot(const double *weights, const float *features, int channels, double *sums) {
    // four independent chains: additions have a long latency, and the order does not matter, as they are
    // exact
    Doubles low[4] = {}, high[4] = {};
    const Doubles *w = reinterpret_cast<const Doubles *>(weights);
    for (int c = 0; c < channels; c += 4) {
        for (int n = 0; n < 4; ++n) {
            const double f = features[c + n];
            low[n] += f * w[2 * (c + n)];
            high[n] += f * w[2 * (c + n) + 1];
        }
    }
    const Doubles both[2] = {(low[0] + low[1]) + (low[2] + low[3]), (high[0] + high[1]) + (high[2] + high[3])};
    std::memcpy(sums, both, sizeof both);
}

// value * 2^power for an integer of up to 64 bits, rounded once.
float scaled(int64_t value, int power) {
    if (value >= int64_t{1} << 53 || value <= -(int64_t{1} << 53)) {
        // Bits beyond a float's precision are reduced to one sticky bit.
        value = (value >> 11) | ((value & 2047) != 0);
        power += 11;
    }
    const uint64_t factor = static_cast<uint64_t>(power + 1023) << 52;
    double scale;
    std::memcpy(&scale, &factor, sizeof scale);
    return static_cast<float>(static_cast<double>(value) * scale);
}

}  // namespace

FloatTile::Range FloatTile::range(const float *values, int count) const {
    uint32_t bits[kChannels * kKernels];
    std::memcpy(bits, values, sizeof bits[0] * count);
    int low = 256, high = smallest_;
    for (int n = 0; n < count; ++n) {
        const int exponent = static_cast<int>(bits[n] >> 23 & 255);
        const int least = exponent < smallest_ ? smallest_ : exponent;
        const int candidate = bits[n] << 1 == 0 ? 256 : least;
        low = candidate < low ? candidate : low;
        high = exponent > high ? exponent : high;
    }
    return {low < high ? low : high, high};
}

void FloatTile::split(const float *values, int count, int64_t *mantissas, int64_t *places) const {
    for (int n = 0; n < count; ++n) {
        const uint32_t bits = bits_of(values[n]);
        const int biased = static_cast<int>(bits >> 23 & 255), own = biased ? biased : 1;
        const int place = own < smallest_ ? smallest_ : own;
        const int64_t wide = (bits & 0x7FFFFF) | (biased ? 0x800000 : 0);
        const int64_t mantissa = wide >> (24 - bits_ + (place - own));
        mantissas[n] = bits >> 31 ? -mantissa : mantissa;
        places[n] = mantissa ? place : kNowhere;
    }
}

void FloatTile::direct(FloatKind kind, const uint8_t *tile) {
    kind_ = kind;
    channels_ = kind == FloatKind::Tf32 ? 16 : 32;
    bits_ = kind == FloatKind::Bf16 ? 8 : 11;
    smallest_ = kind == FloatKind::Fp16 ? 113 : 1;
    split_ = false;
    alignas(64) float rows[kKernels][kChannels];
    for (int k = 0; k < kKernels; ++k) widen(kind, tile + 64 * k, rows[k], channels_);
    for (int c = 0; c < channels_; ++c)
        for (int k = 0; k < kKernels; ++k) values_[kKernels * c + k] = rows[k][c];
    for (int n = 0; n < channels_ * kKernels; ++n) doubles_[n] = values_[n];
    range_ = range(values_, channels_ * kKernels);
}

void FloatTile::depthwise(FloatKind kind, const uint8_t *tile) {
    kind_ = kind;
    widen(kind, tile, values_, kWide);
}

void FloatTile::sum_depthwise(const uint8_t *features, uint32_t *sums) const {
    alignas(64) float products[kWide];
    widen(kind_, features, products, kWide);
    for (int n = 0; n < kWide; ++n) products[n] *= values_[n];
    store(products, sums, kWide);
}

void FloatTile::sum_direct(const uint8_t *features, uint32_t *sums) {
    alignas(64) float values[kChannels];
    widen(kind_, features, values, channels_);
    alignas(64) double doubles[kKernels];
    dot(doubles_, values, channels_, doubles);
    alignas(64) float floats[kKernels];
    for (int k = 0; k < kKernels; ++k) floats[k] = static_cast<float>(doubles[k]);
    store(floats, sums, kKernels);
    // All products are multiples of the product of the two smallest last places, and five bits are enough for
    // the sum of 32. If this fits in 53 bits, the doubles are exact, and no bit leaves the alignment window.
    const Range own = range(values, channels_);
    if ((own.high - own.low) + (range_.high - range_.low) + 2 * bits_ + 5 <= 53) return;
    if (!split_) split(values_, channels_ * kKernels, mantissas_, places_);
    split_ = true;
    alignas(64) uint32_t better[kKernels];
    if (kind_ == FloatKind::Fp16)
        exact_sums(values, better);
    else
        window_sums(values, better);
    for (int k = 0; k < kKernels; ++k) sums[k] = doubles[k] - doubles[k] == 0 ? better[k] : sums[k];
}

// Two fixed-point sums: products whose last place is at 2^-48 to 2^-20, and from 2^-19 upwards.
void FloatTile::exact_sums(const float *features, uint32_t *sums) {
    constexpr int kSplit = 29;
    alignas(64) int64_t mantissas[kChannels], places[kChannels];
    split(features, channels_, mantissas, places);
    Longs small[2] = {}, large[2] = {};
    for (int c = 0; c < channels_; ++c) {
        if (mantissas[c] == 0) continue;
        for (int h = 0; h < 2; ++h) {
            const int at = kKernels * c + kHalf * h;
            const Longs product = *reinterpret_cast<const Longs *>(mantissas_ + at) * mantissas[c];
            const Longs place = *reinterpret_cast<const Longs *>(places_ + at) + (places[c] - 2 * smallest_);
            const Longs is_large = place >= kSplit;
            small[h] += ~is_large & (product << (place & 63));
            large[h] += is_large & (product << ((place - kSplit) & 63));
        }
    }
    alignas(64) int64_t low[kKernels], high[kKernels];
    std::memcpy(low, small, sizeof low);
    std::memcpy(high, large, sizeof high);
    float values[kKernels];
    for (int k = 0; k < kKernels; ++k) {
        const int64_t carried = high[k] + (low[k] >> kSplit), rest = low[k] & ((1 << kSplit) - 1);
        if (carried < 1 << 23 && carried >= -(1 << 23)) {
            values[k] = scaled(carried * (int64_t{1} << kSplit) + rest, -48);
        } else {
            const int64_t word = carried * 64 + (rest >> 23);
            values[k] = scaled(word | ((rest & ((1 << 23) - 1)) != 0), -25);
        }
    }
    store(values, sums, kKernels);
}

// The alignment window of bf16 and tf32.
void FloatTile::window_sums(const float *features, uint32_t *sums) {
    constexpr int kGuard = 34;
    alignas(64) int64_t mantissas[kChannels], places[kChannels];
    split(features, channels_, mantissas, places);
    Longs top[2], total[2] = {}, lost[2] = {};
    for (int h = 0; h < 2; ++h) top[h] = Longs{} + 2 * kNowhere;
    for (int c = 0; c < channels_; ++c) {
        for (int h = 0; h < 2; ++h) {
            const Longs place = *reinterpret_cast<const Longs *>(places_ + kKernels * c + kHalf * h) + places[c];
            top[h] = place > top[h] ? place : top[h];
        }
    }
    for (int c = 0; c < channels_; ++c) {
        if (mantissas[c] == 0) continue;
        for (int h = 0; h < 2; ++h) {
            const int at = kKernels * c + kHalf * h;
            const Longs product = *reinterpret_cast<const Longs *>(mantissas_ + at) * mantissas[c];
            const Longs sign = product >> 63;
            const Longs wide = ((product ^ sign) - sign) << kGuard;
            Longs down = top[h] - (*reinterpret_cast<const Longs *>(places_ + at) + places[c]);
            down = down > 63 ? Longs{} + 63 : down;
            const Longs kept = wide >> down;
            lost[h] |= (kept << down) ^ wide;
            total[h] += (kept ^ sign) - sign;
        }
    }
    alignas(64) int64_t sum[kKernels], rest[kKernels], place[kKernels];
    std::memcpy(sum, total, sizeof sum);
    std::memcpy(rest, lost, sizeof rest);
    std::memcpy(place, top, sizeof place);
    float values[kKernels];
    for (int k = 0; k < kKernels; ++k) {
        const int64_t x = 2 * sum[k] | (rest[k] != 0);
        const int last = static_cast<int>(place[k]) - 2 * (127 + bits_ - 1);
        values[k] = x ? scaled(x, last - kGuard - 1) : 0;
    }
    store(values, sums, kKernels);
}

}  // namespace npu

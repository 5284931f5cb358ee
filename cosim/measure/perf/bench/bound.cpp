// Upper bound of the speed of any engine: only 1024 int8 multiply-accumulates per cycle.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#ifdef __AVX2__
#include <immintrin.h>
#endif

constexpr int N = 32;

int main(int argc, char** argv) {
    const uint64_t cycles = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 10000000;
    // Weights and features as 16-bit pairs of channels, the form that a multiply-add instruction needs.
    alignas(64) static int16_t weights[16][N / 2][N][2], features[64][N / 2][2];
    alignas(64) static int32_t acc[16][N];
    uint32_t seed = 1;
    auto draw = [&seed] { return int16_t(int8_t((seed = seed * 1664525u + 1013904223u) >> 24)); };
    for (auto& tile : weights)
        for (auto& pair : tile)
            for (auto& w : pair) w[0] = draw(), w[1] = draw();
    for (auto& pixel : features)
        for (auto& pair : pixel) pair[0] = draw(), pair[1] = draw();
    const std::clock_t start = std::clock();  // processor time, as for the engines
    for (uint64_t t = 0; t < cycles; t++) {
        const auto& w = weights[t / 16 % 16];
        const auto& f = features[t % 64];
        int32_t* a = acc[t % 16];
#ifdef __AVX2__
        __m256i sum[N / 8];
        for (int k = 0; k < N / 8; k++) sum[k] = _mm256_load_si256((const __m256i*)(a + 8 * k));
        for (int p = 0; p < N / 2; p++) {
            int32_t pair;
            std::memcpy(&pair, f[p], 4);
            const __m256i x = _mm256_set1_epi32(pair);
            for (int k = 0; k < N / 8; k++) {
                const __m256i y = _mm256_load_si256((const __m256i*)w[p][8 * k]);
                sum[k] = _mm256_add_epi32(sum[k], _mm256_madd_epi16(x, y));
            }
        }
        for (int k = 0; k < N / 8; k++) _mm256_store_si256((__m256i*)(a + 8 * k), sum[k]);
#else
        for (int p = 0; p < N / 2; p++)
            for (int k = 0; k < N; k++) a[k] += int32_t(w[p][k][0]) * f[p][0] + int32_t(w[p][k][1]) * f[p][1];
#endif
    }
    const double seconds = double(std::clock() - start) / CLOCKS_PER_SEC;
    int32_t check = 0;
    for (auto& row : acc)
        for (int32_t a : row) check ^= a;
    std::printf("%.0f %d\n", double(cycles) / seconds, check);
}

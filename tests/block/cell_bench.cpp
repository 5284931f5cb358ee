// Cycles a second of the C++ cell by itself, type by type: tiles back to back, every input of every cycle in
// use. Argument: cycles.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "npu_cell.h"

namespace {

alignas(64) uint8_t bytes[64 + 4096];

// Numbers of a type whose exponents are spread over `octaves` powers of two.
void fill(int precision, int octaves) {
    uint64_t state = 1;
    const auto random = [&state] {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return static_cast<uint32_t>(state >> 33);
    };
    for (size_t n = 0; n < sizeof bytes; ++n) bytes[n] = static_cast<uint8_t>(random() >> 8);
    const uint32_t bias = precision == 2 ? 15 : 127;
    const auto exponent = [&] { return bias - octaves / 2 + random() % octaves; };
    for (size_t n = 0; n < sizeof bytes / 4; ++n) {
        uint32_t word = random() << 1;
        const auto put = [&](uint32_t mask, int place) {
            word = (word & ~(mask << place)) | exponent() << place;
        };
        if (precision == 2) put(31, 10), put(31, 26);
        if (precision == 3) put(255, 7), put(255, 23);
        if (precision == 7) put(255, 23);
        if (precision == 2 || precision == 3 || precision == 7) std::memcpy(bytes + 4 * n, &word, 4);
    }
}

void run(const char *name, int precision, int depthwise, int octaves, uint64_t cycles) {
    static npu::Cell cell;
    fill(precision, octaves);
    npu::CellIn in{};
    in.precision = precision;
    in.depthwise = depthwise;
    in.w_valid = in.f_valid = 1;
    in.w_stride = depthwise || (precision && precision != 6) ? 2 : precision ? 0 : 1;
    const int octets = depthwise || precision == 6 ? 8 : precision ? 2 : 4;
    uint64_t check = 0;
    const auto start = std::chrono::steady_clock::now();
    for (uint64_t n = 0; n < cycles; ++n) {
        in.f_slot = n % 16;
        in.w_index = n % 16;
        in.f_swap = n % 16 == 0;
        in.f_first = n / 16 % 8 == 0;
        in.f_bank = n / 128 % 2;
        in.d_valid = n % 2 == 0;
        in.d_bank = !in.f_bank;
        in.d_slot = n / 8 % 16;
        in.d_octet = n / 2 % octets;
        cell.step(in, bytes + (n * 64) % 4096, bytes + (n * 32) % 3968);
        check += static_cast<uint64_t>(cell.acc(n % 8));
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%-24s %6.1f M cycles/s (check %016llx)\n", name, cycles / seconds / 1e6,
                static_cast<unsigned long long>(check));
}

}  // namespace

int main(int argc, char **argv) {
    const uint64_t cycles = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 20'000'000;
    run("int8", 0, 0, 1, cycles);
    run("int8 depthwise", 0, 1, 1, cycles);
    run("int4", 6, 0, 1, cycles);
    run("int16", 1, 0, 1, cycles);
    run("int16 depthwise", 1, 1, 1, cycles);
    run("fp16", 2, 0, 10, cycles);
    run("fp16, wide range", 2, 0, 28, cycles / 4);
    run("fp16 depthwise", 2, 1, 10, cycles);
    run("bf16", 3, 0, 10, cycles);
    run("bf16, wide range", 3, 0, 60, cycles / 4);
    run("bf16 depthwise", 3, 1, 10, cycles);
    run("tf32", 7, 0, 10, cycles);
    run("tf32, wide range", 7, 0, 60, cycles / 4);
    return 0;
}

// The values of one core's signals at the last sample, with a callback for each change.
#pragma once
#include <cstdint>
#include <cstring>

class Vcore__Syms;

struct TraceLog {
    virtual ~TraceLog() = default;
    virtual void changed(uint32_t variable, const uint32_t* words) = 0;
};

struct TraceSampler {
    uint32_t* old = nullptr;             // values of all signals, one after the other
    const uint32_t* variable = nullptr;  // by signal: its number in the waveform, or 0 if it is not wanted
    TraceLog* log = nullptr;

    void word(uint32_t signal, uint32_t place, uint32_t value) {
        if (__builtin_expect(old[place] != value, 0)) {
            old[place] = value;
            tell(signal, place);
        }
    }
    void quad(uint32_t signal, uint32_t place, uint64_t value) {
        uint64_t before;
        std::memcpy(&before, old + place, 8);
        if (__builtin_expect(before != value, 0)) {
            std::memcpy(old + place, &value, 8);
            tell(signal, place);
        }
    }
    void wide(uint32_t signal, uint32_t place, uint32_t words, const uint32_t* value) {
        if (__builtin_expect(std::memcmp(old + place, value, words * 4) != 0, 0)) {
            std::memcpy(old + place, value, words * 4);
            tell(signal, place);
        }
    }

private:
    void tell(uint32_t signal, uint32_t place) {
        if (variable[signal]) log->changed(variable[signal], old + place);
    }
};

// Tables generated for Verilator's model (cosim/engines/traces/table.py): groups of signals from `first` up
// to but excluding `end`, some of which may have changed if one of the flags in `causes` is set.
struct TraceGroup {
    void (*sample)(Vcore__Syms*, TraceSampler&);
    uint64_t causes;
    uint32_t first, end;
};

struct TraceSizes {
    uint32_t groups, signals, words;
};

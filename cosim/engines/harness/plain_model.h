// What an adaptor of a core has if it says nothing else: no waveforms, no saved state, nothing in common with
// the other cores.
#pragma once
#include <vector>

#include "pins.h"
#include "trace_sampler.h"

struct PlainModel {
    struct Shared : Probes {
        explicit Shared(StepFunction) {}
        static constexpr bool failed = false;
        static constexpr bool apart = true;  // cores may be evaluated in several threads
    };

    static constexpr bool savable = false;
    template <class Archive>
    void archive(Archive&) {}

    // No internal signal can be sampled from here.
    const char* trace_names() { return ""; }
    uint32_t trace_signals() const { return 0; }
    uint32_t trace_words() const { return 0; }
    uint32_t trace_place(uint32_t) const { return 0; }
    void trace_select(const std::vector<uint32_t>&) {}
    void trace_sample(TraceSampler&, bool) {}
};

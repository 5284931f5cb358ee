// Adaptor: one core as the generated timing model (cosim/engines/timing/cpp.py).
#pragma once
#include <memory>

#include "pins.h"
#include "snapshot.h"
#include "timing.h"
#include "trace_sampler.h"

class TimingModel {
public:
    struct Shared : Probes {
        explicit Shared(StepFunction) {}
        static constexpr bool failed = false;
        static constexpr bool apart = true;  // cores may be evaluated in several threads
    };

    TimingModel(Shared&, int) : state(std::make_unique<TimingState>()) { timing_start(*state); }

    // The rising edge; after it the pins are `i`.
    void edge(const CoreIn& i) {
        timing_commit(*state);
        timing_pins(*state, i);
        timing_settle(*state);
    }

    void pull(CoreOut& o) const { timing_pull(*state, o); }

    static constexpr bool savable = false;  // nothing saves a model without data
    template <class Archive>
    void archive(Archive&) {}

    void fall() {}
    const char* trace_names() { return ""; }
    uint32_t trace_signals() const { return 0; }
    uint32_t trace_words() const { return 0; }
    uint32_t trace_place(uint32_t) const { return 0; }
    void trace_select(const std::vector<uint32_t>&) {}
    void trace_sample(TraceSampler&, bool) {}

private:
    std::unique_ptr<TimingState> state;
};
using CoreModel = TimingModel;

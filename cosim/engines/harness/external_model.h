// Adaptor: a core that is simulated elsewhere (by Amaranth's simulator) and stepped through a callback.
#pragma once
#include <memory>

#include "pins.h"
#include "trace_sampler.h"

class ExternalModel {
public:
    struct Shared : Probes {
        explicit Shared(StepFunction step) : step(step) {}
        const StepFunction step;
        bool failed = false;
        static constexpr bool apart = false;  // all cores are stepped in Python
    };

    ExternalModel(Shared& shared, int index) : shared(shared), index(index) {}
    void edge(const CoreIn& next) {
        if (!shared.failed && shared.step(index, &in, &out)) shared.failed = true;
        in = next;
    }
    void pull(CoreOut& o) const { o = out; }
    static constexpr bool savable = false;  // its state is in Python
    template <class Archive>
    void archive(Archive&) {}

    // No internal signal can be sampled from here.
    const char* trace_names() { return ""; }
    uint32_t trace_signals() const { return 0; }
    uint32_t trace_words() const { return 0; }
    uint32_t trace_place(uint32_t) const { return 0; }
    void trace_select(const std::vector<uint32_t>&) {}
    void trace_sample(TraceSampler&, bool) {}

private:
    Shared& shared;
    const int index;
    CoreIn in{};
    CoreOut out{};
};
using CoreModel = ExternalModel;

// Adaptor: a core that lives elsewhere (Amaranth's simulator) and is stepped through a callback.
#pragma once
#include <memory>

#include "pins.h"

class ExternalModel {
public:
    struct Shared : Probes {
        explicit Shared(StepFunction step) : step(step) {}
        bool open_trace(const char*, std::unique_ptr<ExternalModel>*, int) { return false; }
        void dump(uint64_t) {}
        void close_trace() {}
        const StepFunction step;
        bool failed = false;
    };

    ExternalModel(Shared& shared, int index) : shared(shared), index(index) {}
    void edge(const CoreIn& next) {
        if (!shared.failed && shared.step(index, &in, &out)) shared.failed = true;
        in = next;
    }
    void fall() {}
    void pull(CoreOut& o) const { o = out; }

private:
    Shared& shared;
    const int index;
    CoreIn in{};
    CoreOut out{};
};
using CoreModel = ExternalModel;

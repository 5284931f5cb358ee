// Adaptor: a core that is simulated elsewhere (by Amaranth's simulator) and stepped through a callback.
#pragma once
#include <memory>

#include "plain_model.h"

class ExternalModel : public PlainModel {
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

private:
    Shared& shared;
    const int index;
    CoreIn in{};
    CoreOut out{};
};
using CoreModel = ExternalModel;

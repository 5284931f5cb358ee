// Adaptor: one core as the generated timing model (cosim/engines/timing/cpp.py).
#pragma once
#include <memory>

#include "plain_model.h"
#include "timing.h"

class TimingModel : public PlainModel {
public:
    TimingModel(Shared&, int) : state(std::make_unique<TimingState>()) { timing_start(*state); }

    // The rising edge; after it the pins are `i`.
    void edge(const CoreIn& i) {
        timing_commit(*state);
        timing_pins(*state, i);
        timing_settle(*state);
    }

    void pull(CoreOut& o) const { timing_pull(*state, o); }

private:
    std::unique_ptr<TimingState> state;
};
using CoreModel = TimingModel;

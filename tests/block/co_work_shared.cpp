// C functions around cosim/engines/harness/co_work.h, for tests/block/test_co_work.py.
#include "co_work.h"

extern "C" {
StepUnit* steps_new(int cores, uint32_t join, uint32_t patience) { return new StepUnit(cores, join, patience); }
void steps_delete(StepUnit* unit) { delete unit; }
void steps_exchange(StepUnit* unit, const uint32_t* reports, uint32_t* answers) { unit->exchange(reports, answers); }
int steps_wait(const StepUnit* unit) { return unit->waits(); }
}

// A Verilated unit whose inputs are one vector, and its outputs another, behind a C interface.

#include <cstdint>

#include "Vdesign.h"
#include "verilated.h"

namespace {

struct Unit {
    VerilatedContext context;
    Vdesign design{&context};
};

Vdesign &design(void *handle) { return static_cast<Unit *>(handle)->design; }

}  // namespace

extern "C" {

void *unit_create() { return new Unit; }

void unit_destroy(void *handle) {
    design(handle).final();
    delete static_cast<Unit *>(handle);
}

uint32_t *unit_inputs(void *handle) { return design(handle).i.data(); }

uint32_t *unit_outputs(void *handle) { return design(handle).o.data(); }

// Let what the inputs change reach the outputs.
void unit_settle(void *handle) { design(handle).eval(); }

// One edge of the clock.
void unit_edge(void *handle) {
    design(handle).clk = 1;
    design(handle).eval();
    design(handle).clk = 0;
    design(handle).eval();
}

}  // extern "C"

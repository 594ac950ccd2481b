// A Verilated pipeline with operands a and b and result o, one pair per cycle, behind a C interface.

#include <cstddef>
#include <cstdint>

#include "Vdesign.h"
#include "verilated.h"

extern "C" void pairs_run(const uint16_t *a, const uint16_t *b, uint16_t *o, size_t count, size_t latency) {
    VerilatedContext context;
    Vdesign design(&context);
    design.rst = 0;
    for (size_t cycle = 0; cycle + 1 < count + latency; ++cycle) {
        const size_t pair = cycle < count ? cycle : count - 1;
        design.a = a[pair];
        design.b = b[pair];
        design.clk = 0;
        design.eval();
        design.clk = 1;
        design.eval();
        if (cycle + 1 >= latency) o[cycle + 1 - latency] = design.o;
    }
    design.final();
}

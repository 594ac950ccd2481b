// A Verilated design that is the slave of a serial peripheral interface, and its master, behind a C interface.
//
// The clock of the master is none of the design's: its period is any fraction of cycles of clk. The master clocks bytes
// in mode 0, and takes each bit right before the rising edge; nothing is between the pins of the two.

#include <cstdint>

#include "verilated_design.h"

namespace {

struct Simulation : VerilatedDesign {
    uint64_t now = 0, next_edge = 0;               // in ticks, of which half a cycle of clk has as many as it takes
    uint64_t half_clk = 1, half_sck = 2, gap = 0;  // of these, in ticks; the gap is the one behind each byte
    uint64_t dropped = 0;

    Simulation() { design->csn = 1; }

    void eval() {
        design->eval();
        tick();
    }

    // Edges of clk for so many ticks.
    void pass(uint64_t ticks) {
        now += ticks;
        for (; next_edge <= now; next_edge += half_clk) {
            if (!design->clk) sample_memory();
            design->clk = !design->clk;
            cycles += design->clk;
            eval();
            if (design->clk) show_memory();
        }
    }

    uint8_t transfer(uint8_t sent) {
        uint8_t received = 0;
        for (int bit = 7; bit >= 0; --bit) {
            design->copi = sent >> bit & 1;
            eval();
            pass(half_sck);
            received = received << 1 | design->cipo;
            dropped += design->dropped;
            design->sck = 1;
            eval();
            pass(half_sck);
            design->sck = 0;
            eval();
        }
        pass(gap);
        return received;
    }
};

Simulation *of(void *handle) { return static_cast<Simulation *>(handle); }

}  // namespace

extern "C" {

void *concord_create() { return new Simulation; }

void concord_destroy(void *handle) { delete of(handle); }

// Run for so many cycles of clk without a transfer.
void concord_spi_idle(void *handle, uint64_t cycles) { of(handle)->pass(2 * of(handle)->half_clk * cycles); }

void concord_reset(void *handle) {
    of(handle)->design->rst = 1;
    concord_spi_idle(handle, 4);
    of(handle)->design->rst = 0;
}

// From now on sck has a period of `period / denominator` cycles of clk, and is still for `gap / denominator` cycles
// behind each byte.
void concord_spi_pace(void *handle, uint64_t period, uint64_t gap, uint64_t denominator) {
    auto *sim = of(handle);
    sim->half_clk = denominator;
    sim->half_sck = period;
    sim->gap = 2 * gap;
    sim->next_edge = sim->now + denominator;
}

// One transfer: bytes there and as many back.
void concord_spi_transfer(void *handle, const uint8_t *sent, uint8_t *received, size_t count) {
    auto *sim = of(handle);
    sim->design->csn = 0;
    sim->eval();
    sim->pass(sim->half_sck);
    for (size_t k = 0; k < count; ++k) received[k] = sim->transfer(sent[k]);
    sim->design->csn = 1;
    sim->eval();
}

// Bytes that the design had no place for.
uint64_t concord_dropped(void *handle) { return of(handle)->dropped; }

// Violations of the times of the external memory so far.
uint64_t concord_sdram_faults(void *handle) { return of(handle)->memory_faults(); }

uint64_t concord_cycles(void *handle) { return of(handle)->cycles; }

// Write waveforms to a VCD file from now on; returns 0, or -1 if the library was built without this.
int concord_trace(void *handle, const char *path) { return of(handle)->open_trace(path); }

}  // extern "C"

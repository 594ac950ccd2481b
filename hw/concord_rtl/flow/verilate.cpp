// A Verilated design with byte streams rx and tx behind a C interface.
//
// Bytes to send wait in a queue of any length; bytes received are taken at once.

#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>

#include "Vdesign.h"
#include "verilated.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif

// Verilator writes a double underscore as ___05F.
#define PORT(stream, member) stream##___05F##member

namespace {

constexpr uint64_t kIdle = 256;  // cycles without a byte after which a reply counts as complete

struct Simulation {
    VerilatedContext context;
    std::unique_ptr<Vdesign> design;
    std::deque<uint8_t> to_design, from_design;
    uint64_t cycles = 0;
    uint64_t last_byte = 0;
#if VM_TRACE
    std::unique_ptr<VerilatedVcdC> trace;
#endif

    Simulation() {
        context.randReset(0);
#if VM_TRACE
        context.traceEverOn(true);
#endif
        design = std::make_unique<Vdesign>(&context);
    }

    void dump() {
#if VM_TRACE
        if (trace) trace->dump(context.time());
#endif
    }

    void step() {
        design->clk = 0;
        design->PORT(rx, valid) = !to_design.empty();
        design->PORT(rx, payload) = to_design.empty() ? 0 : to_design.front();
        design->PORT(tx, ready) = 1;
        design->eval();
        dump();
        context.timeInc(1);
        if (design->PORT(rx, valid) && design->PORT(rx, ready) && !design->rst) to_design.pop_front();
        if (design->PORT(tx, valid) && !design->rst) {
            from_design.push_back(design->PORT(tx, payload));
            last_byte = cycles;
        }
        design->clk = 1;
        design->eval();
        dump();
        context.timeInc(1);
        ++cycles;
    }
};

}  // namespace

extern "C" {

void *concord_create() { return new Simulation; }

void concord_destroy(void *handle) {
    auto *sim = static_cast<Simulation *>(handle);
#if VM_TRACE
    if (sim->trace) sim->trace->close();
#endif
    sim->design->final();
    delete sim;
}

// Reset the design, and forget the bytes in both queues.
void concord_reset(void *handle) {
    auto *sim = static_cast<Simulation *>(handle);
    sim->to_design.clear();
    sim->design->rst = 1;
    for (int n = 0; n < 4; ++n) sim->step();
    sim->design->rst = 0;
    sim->from_design.clear();
}

void concord_push(void *handle, const uint8_t *bytes, size_t count) {
    auto *sim = static_cast<Simulation *>(handle);
    sim->to_design.insert(sim->to_design.end(), bytes, bytes + count);
}

// Run until `wanted` bytes are there, or some and no more coming, or for `cycles`; return the bytes that are there.
size_t concord_run(void *handle, uint64_t cycles, size_t wanted) {
    auto *sim = static_cast<Simulation *>(handle);
    for (const uint64_t end = sim->cycles + cycles; sim->cycles != end; sim->step()) {
        const size_t there = sim->from_design.size();
        if (there >= wanted || (there && sim->to_design.empty() && sim->cycles - sim->last_byte > kIdle)) break;
    }
    return sim->from_design.size();
}

size_t concord_pull(void *handle, uint8_t *bytes, size_t room) {
    auto *sim = static_cast<Simulation *>(handle);
    size_t count = 0;
    for (; count < room && !sim->from_design.empty(); ++count) {
        bytes[count] = sim->from_design.front();
        sim->from_design.pop_front();
    }
    return count;
}

uint64_t concord_cycles(void *handle) { return static_cast<Simulation *>(handle)->cycles; }

// Write waveforms to a VCD file from now on; returns 0, or -1 if the library was built without this.
int concord_trace(void *handle, const char *path) {
#if VM_TRACE
    auto *sim = static_cast<Simulation *>(handle);
    sim->trace = std::make_unique<VerilatedVcdC>();
    sim->design->trace(sim->trace.get(), 99);
    sim->trace->open(path);
    return 0;
#else
    (void)handle;
    (void)path;
    return -1;
#endif
}

}  // extern "C"

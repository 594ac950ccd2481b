// What every wrapper has of a Verilated design: the design itself, its waveforms, and its end.

#pragma once

#include <cstdint>
#include <memory>

#include "Vdesign.h"
#include "verilated.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif

struct VerilatedDesign {
    VerilatedContext context;
    std::unique_ptr<Vdesign> design;
    uint64_t cycles = 0;
#if VM_TRACE
    std::unique_ptr<VerilatedVcdC> trace;
#endif

    VerilatedDesign() {
        context.randReset(0);
#if VM_TRACE
        context.traceEverOn(true);
#endif
        design = std::make_unique<Vdesign>(&context);
    }

    ~VerilatedDesign() {
#if VM_TRACE
        if (trace) trace->close();
#endif
        design->final();
    }

    // Put the waveforms at a time into the file, if there is one.
    void dump(uint64_t time) {
#if VM_TRACE
        if (trace) trace->dump(time);
#else
        (void)time;
#endif
    }

    // A step of time, behind an evaluation.
    void tick() {
#if VM_TRACE
        dump(context.time());
#endif
        context.timeInc(1);
    }

    // Write waveforms to a VCD file from now on; returns 0, or -1 if the library was built without this.
    int open_trace(const char *path) {
#if VM_TRACE
        trace = std::make_unique<VerilatedVcdC>();
        design->trace(trace.get(), 99);
        trace->open(path);
        return 0;
#else
        (void)path;
        return -1;
#endif
    }
};

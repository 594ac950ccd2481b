// What every wrapper has of a Verilated design: the design itself, its waveforms, and its end.

#pragma once

#include <cstdint>
#include <memory>

#include "Vdesign.h"
#include "sdram.h"
#include "verilated.h"
#if VM_TRACE
#include "verilated_vcd_c.h"
#endif

// Verilator writes a double underscore as ___05F.
#define PORT(stream, member) stream##___05F##member

struct VerilatedDesign {
    VerilatedContext context;
    std::unique_ptr<Vdesign> design;
    uint64_t cycles = 0;
#if VM_TRACE
    std::unique_ptr<VerilatedVcdC> trace;
#endif
#ifdef SDRAM_PHASES
    SdramModel sdram;
    uint16_t columns_data = 0;  // that the registers of the pads show after the next edge of clk
#endif

    VerilatedDesign() {
        context.randReset(0);
#if VM_TRACE
        context.traceEverOn(true);
#endif
        design = std::make_unique<Vdesign>(&context);
#ifdef SDRAM_PHASES
        design->PORT(sdram, step___05Fready) = 1;
        design->eval();  // the memory sees its pins before the first edge
#endif
    }

    ~VerilatedDesign() {
#if VM_TRACE
        if (trace) trace->close();
#endif
        design->final();
    }

    // Let the external memory see its pins, right before a rising edge of clk.
    void sample_memory() {
#ifdef SDRAM_PHASES
        columns_data = sdram.cycle(design->PORT(sdram, pins___05Fcommand), design->PORT(sdram, pins___05Fbank),
                                   design->PORT(sdram, pins___05Faddr), design->PORT(sdram, pins___05Fdq_o),
                                   design->PORT(sdram, pins___05Foe), design->PORT(sdram, pins___05Fmask));
        if (design->PORT(sdram, step___05Fvalid)) sdram.phase += design->PORT(sdram, step___05Fpayload) ? -1 : 1;
#endif
    }

    // Let the design see the data of the external memory, after that edge was evaluated.
    void show_memory() {
#ifdef SDRAM_PHASES
        design->PORT(sdram, pins___05Fdq_i) = columns_data;
#endif
    }

    // Violations of the times of the external memory so far.
    uint64_t memory_faults() const {
#ifdef SDRAM_PHASES
        return sdram.faults;
#else
        return 0;
#endif
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

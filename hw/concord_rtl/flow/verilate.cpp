// A Verilated design with byte streams rx and tx behind a C interface.
//
// Bytes to send wait in a queue of any length; bytes received are taken at once. With a pace they come and go as over a
// serial port without flow control: each takes its time, both ways at once, and one that finds the byte before it not
// taken is dropped.
//
// Memories can be read and written without the design, between two steps.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "banks.h"
#include "verilated_design.h"

namespace {

constexpr uint64_t kIdle = 256;  // cycles without a byte after which a reply counts as complete

struct Bank {
    size_t nbytes;  // of a word
    uint8_t *words;
};

struct Simulation : VerilatedDesign {
#define BANK(name, width, depth) {sizeof design->rootp->name[0], reinterpret_cast<uint8_t *>(&design->rootp->name[0])},
#ifdef SDRAM_PHASES
    const std::vector<Bank> banks{
        BANKS(BANK){sizeof sdram.columns[0], reinterpret_cast<uint8_t *>(sdram.columns.data())}};
#else
    const std::vector<Bank> banks{BANKS(BANK)};
#endif
#undef BANK
    std::deque<uint8_t> to_design, from_design;
    std::deque<uint64_t> seen;  // when the host sees each of the bytes that it does not see yet
    uint64_t last_byte = 0;
    uint64_t pace = 0, delay = 0;           // cycles of a byte on the line, and in the drivers of the host
    uint64_t next_rx = 0, next_tx = 0;      // when the line has the next byte for the design, and takes one
    uint64_t dropped = 0;
    bool held = false;                      // a byte that the line has brought waits for the design
    uint8_t byte = 0;

    // The next byte of the queue, when its time has come.
    void bring() {
        if (to_design.empty() || cycles < next_rx || (held && !pace)) return;
        if (held) {
            ++dropped;
        } else {
            held = true;
            byte = to_design.front();
        }
        to_design.pop_front();
        next_rx = cycles + pace;
    }

    // Bytes that the host sees.
    size_t there() {
        while (!seen.empty() && seen.front() <= cycles) seen.pop_front();
        return from_design.size() - seen.size();
    }

    void step() {
        bring();
        design->clk = 0;
        design->PORT(rx, valid) = held;
        design->PORT(rx, payload) = held ? byte : 0;
        design->PORT(tx, ready) = cycles >= next_tx;
        design->eval();
        sample_memory();
        tick();
        if (design->PORT(rx, valid) && design->PORT(rx, ready) && !design->rst) held = false;
        if (design->PORT(tx, valid) && design->PORT(tx, ready) && !design->rst) {
            from_design.push_back(design->PORT(tx, payload));
            last_byte = cycles;
            next_tx = cycles + pace;
            if (pace + delay) seen.push_back(next_tx + delay);
        }
        design->clk = 1;
        design->eval();
        show_memory();
        tick();
        ++cycles;
    }
};

}  // namespace

extern "C" {

void *concord_create() { return new Simulation; }

void concord_destroy(void *handle) { delete static_cast<Simulation *>(handle); }

// Reset the design, and forget the bytes in both queues.
void concord_reset(void *handle) {
    auto *sim = static_cast<Simulation *>(handle);
    sim->to_design.clear();
    sim->held = false;
    sim->design->rst = 1;
    for (int n = 0; n < 4; ++n) sim->step();
    sim->design->rst = 0;
    sim->from_design.clear();
    sim->seen.clear();
}

void concord_push(void *handle, const uint8_t *bytes, size_t count) {
    auto *sim = static_cast<Simulation *>(handle);
    if (sim->to_design.empty()) sim->next_rx = std::max(sim->next_rx, sim->cycles + sim->pace);
    sim->to_design.insert(sim->to_design.end(), bytes, bytes + count);
}

// From now on a byte takes `cycles` on the line, and `delay` more until the host sees it.
void concord_pace(void *handle, uint64_t cycles, uint64_t delay) {
    auto *sim = static_cast<Simulation *>(handle);
    sim->pace = cycles;
    sim->delay = delay;
    sim->next_rx = sim->next_tx = sim->cycles;
}

// Bytes that the design did not take in time.
uint64_t concord_dropped(void *handle) { return static_cast<Simulation *>(handle)->dropped; }

// Run until `wanted` bytes are there, or some and no more coming, or for `cycles`; return the bytes that are there. On
// a line with a pace one byte is enough.
size_t concord_run(void *handle, uint64_t cycles, size_t wanted) {
    auto *sim = static_cast<Simulation *>(handle);
    for (const uint64_t end = sim->cycles + cycles; sim->cycles != end; sim->step()) {
        const size_t there = sim->there();
        if (there >= wanted || (there && sim->pace)) break;
        if (there && sim->to_design.empty() && sim->cycles - sim->last_byte > kIdle) break;
    }
    return sim->there();
}

size_t concord_pull(void *handle, uint8_t *bytes, size_t room) {
    auto *sim = static_cast<Simulation *>(handle);
    size_t count = 0;
    for (room = std::min(room, sim->there()); count < room; ++count) {
        bytes[count] = sim->from_design.front();
        sim->from_design.pop_front();
    }
    return count;
}

// Memories of the design in the order of their numbers, one a line: its name, bits of a word, and words.
const char *concord_banks(void *) {
#define BANK(name, width, depth) #name " " #width " " #depth "\n"
#ifdef SDRAM_PHASES
    return "" BANKS(BANK) SDRAM_BANK;
#else
    return "" BANKS(BANK);
#endif
#undef BANK
}

// Copy words of a memory; each has as many bytes as the smallest of the types of 1, 2, 4 and 8 bytes that holds it, or
// a multiple of four.
void concord_peek(void *handle, size_t number, size_t first, size_t count, uint8_t *bytes) {
    const Bank &bank = static_cast<Simulation *>(handle)->banks[number];
    std::memcpy(bytes, bank.words + first * bank.nbytes, count * bank.nbytes);
}

// Write words of a memory; unused bits must be zero.
void concord_poke(void *handle, size_t number, size_t first, size_t count, const uint8_t *bytes) {
    const Bank &bank = static_cast<Simulation *>(handle)->banks[number];
    std::memcpy(bank.words + first * bank.nbytes, bytes, count * bank.nbytes);
}

// Violations of the times of the external memory so far.
uint64_t concord_sdram_faults(void *handle) { return static_cast<Simulation *>(handle)->memory_faults(); }

uint64_t concord_cycles(void *handle) { return static_cast<Simulation *>(handle)->cycles; }

// Write waveforms to a VCD file from now on; returns 0, or -1 if the library was built without this.
int concord_trace(void *handle, const char *path) { return static_cast<Simulation *>(handle)->open_trace(path); }

}  // extern "C"

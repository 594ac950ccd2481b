// A Verilated design with a USB port, and the line to it, behind a C interface.
//
// The design has three clocks: clk, usb_clk (12 MHz) and usb_io_clk (48 MHz), the last two with edges at the same time.
// The host is outside: it sends packets, listens for packets, and holds the line. Here bytes become states of the line and
// states become bytes: SYNC, NRZI, bit stuffing and the end of a packet. The host has a clock of its own.
//
// What comes from the device is judged more strictly than a host does: a bit that is off by more than an eighth, a wrong
// SYNC, a wrong end of a packet or seven equal bits are errors.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "verilated_design.h"

namespace {

constexpr double kSecond = 1e15;                 // times are in femtoseconds
constexpr double kUsbIoPeriod = kSecond / 48e6;
constexpr double kBit = kSecond / 12e6;
constexpr double kJitter = 0.125;                // of a bit, between two changes of the line
constexpr double kGapBits = 3;                   // between two packets of the host

enum State : uint8_t { SE0 = 0, J = 1, K = 2, SE1 = 3 };  // D+ is bit 0, D- is bit 1

enum Trouble : int { kNothing = -1, kBadTiming = -2, kBadSync = -3, kBadStuffing = -4, kBadEnd = -5, kBadLength = -6 };

struct Simulation : VerilatedDesign {
    double now = 0;
    double period = kSecond / 50e6, next_clk = 0, next_io = 0;
    uint64_t io_cycles = 0;
    bool high[3] = {false, false, false};        // clk, usb_clk, usb_io_clk

    double bit = kBit;                           // of the host
    bool driving = false;                        // the host drives the line
    State level = J;                             // what it drives
    double released = 0;                         // when its last packet was over
    double slowest = 0;                          // longest time from there to an answer, in bits
    uint64_t collisions = 0;                     // cycles of usb_io_clk in which both have driven

    State line() const {
        if (design->oe) return static_cast<State>(design->d_p_o | design->d_n_o << 1);
        if (driving) return level;
        return design->pullup ? J : SE0;
    }

    void clocks() {
        design->clk = high[0];
        design->usb_clk = high[1];
        design->usb_io_clk = high[2];
        design->eval();
        dump(static_cast<uint64_t>(now / 1e3));
    }

    // The next edge of a clock, if it comes before `end`.
    bool step(double end) {
        const double at = std::min(next_clk, next_io);
        if (at >= end) {
            now = std::max(now, end);
            return false;
        }
        const bool io = next_io == at, rise[3] = {next_clk == at, io && io_cycles % 4 == 0, io};
        bool again = false;
        for (int k = 0; k < 3; ++k) {
            again = again || (rise[k] && high[k]);
            high[k] = false;
        }
        if (again) clocks();
        now = at;
        if (io) {
            const State state = line();
            design->d_p = state & 1;
            design->d_n = state >> 1;
            collisions += design->oe && driving;
            ++io_cycles;
            next_io = io_cycles * kUsbIoPeriod;
        }
        if (rise[0]) {
            ++cycles;
            next_clk += period;
            sample_memory();
        }
        std::copy(rise, rise + 3, high);
        clocks();
        if (rise[0]) show_memory();
        return true;
    }

    void until(double end) {
        while (step(end)) {
        }
    }

    void drive(State state, double end) {
        level = state;
        driving = true;
        until(end);
    }

    void send(const uint8_t *bytes, size_t count) {
        double at = std::max(now, released + kGapBits * bit);
        until(at);
        State state = J;
        int ones = 0;
        const auto put = [&](bool value) {
            if (!value) state = state == J ? K : J;
            drive(state, at += bit);
            ones = value ? ones + 1 : 0;
        };
        const auto stuffed = [&](bool value) {
            put(value);
            if (ones == 6) put(false);
        };
        for (int k = 0; k < 8; ++k) stuffed(k == 7);
        for (size_t n = 0; n < count; ++n)
            for (int k = 0; k < 8; ++k) stuffed(bytes[n] >> k & 1);
        drive(SE0, at += 2 * bit);
        released = at;
        drive(J, at += bit);
        driving = false;
    }

    // One packet of the device that begins within `bits`; its bytes, or one of Trouble.
    int listen(double bits, std::vector<uint8_t> &bytes) {
        const double end = now + bits * bit;
        while (!design->oe)
            if (!step(end)) return kNothing;
        State state = J;  // which the device may drive in front of the first K
        double since = now;
        bool begun = false, driven = true;
        std::vector<bool> data;
        int ones = 0, trouble = 0, end_bits = 0;
        for (; driven; step(now + kBit)) {
            driven = design->oe;
            if (now - since > 20 * kBit) return kBadEnd;
            const State seen = driven ? static_cast<State>(design->d_p_o | design->d_n_o << 1) : J;
            if (seen == state) continue;
            const double length = (now - since) / bit;
            const int count = static_cast<int>(std::lround(length));
            if (begun && std::abs(length - count) > kJitter) trouble = kBadTiming;
            if (!begun) {
                if (seen != K) return kBadSync;
                slowest = std::max(slowest, (now - released) / bit);
                begun = true;
            } else if (state == SE0) {
                end_bits = count;
                if (seen != J) trouble = kBadEnd;
            } else if (end_bits || state == SE1) {
                trouble = kBadEnd;
            } else {
                // The first bit of a state is a 0 (or stuffed), all others are 1.
                for (int k = 0; k < count; ++k) {
                    if (k == 0 && ones == 6) {
                        ones = 0;
                        continue;
                    }
                    data.push_back(k > 0);
                    ones = k > 0 ? ones + 1 : 0;
                    if (ones > 6) trouble = kBadStuffing;
                }
            }
            state = seen;
            since = now;
        }
        released = now;
        if (!trouble && end_bits != 2) trouble = kBadEnd;
        if (trouble) return trouble;
        if (data.size() < 16 || data.size() % 8) return kBadLength;
        for (size_t k = 0; k < 8; ++k)
            if (data[k] != (k == 7)) return kBadSync;
        for (size_t n = 8; n < data.size(); n += 8) {
            uint8_t byte = 0;
            for (int k = 0; k < 8; ++k) byte |= data[n + k] << k;
            bytes.push_back(byte);
        }
        return static_cast<int>(bytes.size());
    }
};

Simulation *of(void *handle) { return static_cast<Simulation *>(handle); }

}  // namespace

extern "C" {

void *concord_create() { return new Simulation; }

void concord_destroy(void *handle) { delete of(handle); }

// Reset everything, with a clock of so many hertz.
void concord_reset(void *handle, double hz) {
    auto *sim = of(handle);
    sim->period = kSecond / hz;
    sim->next_clk = sim->now + sim->period;
    sim->driving = false;
    sim->design->rst = sim->design->usb_rst = sim->design->usb_io_rst = 1;
    sim->until(sim->now + 16 * kUsbIoPeriod);
    sim->design->rst = sim->design->usb_rst = sim->design->usb_io_rst = 0;
    sim->released = sim->now;
}

// Violations of the times of the external memory so far.
uint64_t concord_sdram_faults(void *handle) { return of(handle)->memory_faults(); }

uint64_t concord_cycles(void *handle) { return of(handle)->cycles; }

// Seconds of simulated time.
double concord_line_time(void *handle) { return of(handle)->now / kSecond; }

// The clock of the host is so many parts per million too fast.
void concord_line_offset(void *handle, double ppm) { of(handle)->bit = kBit / (1 + ppm * 1e-6); }

// Whether there is a device at the line.
int concord_line_attached(void *handle) { return of(handle)->design->pullup; }

// Send a packet: PID, and what follows it.
void concord_line_send(void *handle, const uint8_t *bytes, size_t count) { of(handle)->send(bytes, count); }

// Wait for a packet that begins within so many bits; its length, or a negative number: see Trouble.
int concord_line_listen(void *handle, double bits, uint8_t *bytes, size_t room) {
    std::vector<uint8_t> packet;
    const int count = of(handle)->listen(bits, packet);
    std::copy_n(packet.begin(), std::min(room, packet.size()), bytes);
    return count;
}

// For so many seconds, hold the line in a state (0: SE0, 1: J, 2: K), or leave it alone (3).
void concord_line_hold(void *handle, int state, double seconds) {
    auto *sim = of(handle);
    sim->driving = state != SE1;
    sim->level = static_cast<State>(state);
    sim->until(sim->now + seconds * kSecond);
    sim->driving = false;
    sim->released = sim->now;
}

// Longest time from the end of a packet of the host to an answer, in bits.
double concord_line_slowest(void *handle) { return of(handle)->slowest; }

// How often both ends have driven the line.
uint64_t concord_line_collisions(void *handle) { return of(handle)->collisions; }

// Write waveforms to a VCD file from now on, in picoseconds; returns 0, or -1 if the library was built without this.
int concord_trace(void *handle, const char *path) { return of(handle)->open_trace(path); }

}  // extern "C"

// A circuit on its board in place of a Verilated design: byte streams rx and tx, with the serial line between them and it.
//
// The host's end of the line is here. A step is one cycle of the design's clock.
#pragma once

#include <cstdint>
#include <utility>

#include "circuit.h"
#include "verilated.h"

#define PORT(stream, member) stream##___05F##member

extern const char kCircuit[];  // what concord_rtl.flow.gates.circuit wrote

class Vdesign {
public:
    uint8_t clk = 0, rst = 0;
    uint8_t PORT(rx, valid) = 0, PORT(rx, payload) = 0, PORT(rx, ready) = 0;
    uint8_t PORT(tx, valid) = 0, PORT(tx, payload) = 0, PORT(tx, ready) = 0;

    explicit Vdesign(VerilatedContext *) : circuit_(kCircuit) {}
    void final() {}

    // A reset is the start after configuration: this design has no other.
    void eval() {
        if (rst) {
            if (started_) *this = Vdesign(*this, circuit_.again());
            return;
        }
        PORT(rx, ready) = started_ >= circuit_.start && sending_ == 0;
        if (clk && !before_) step();
        before_ = clk;
    }

private:
    static constexpr int kBits = 10;  // of a byte on the line
    Circuit circuit_;
    uint64_t started_ = 0;  // steps since then
    uint8_t before_ = 0;
    unsigned sent_ = ~0u, sending_ = 0;     // bits to send, and steps until they are
    unsigned seen_ = 0, receiving_ = 0;     // bits received, and steps until the stop bit's middle

    Vdesign(const Vdesign &old, Circuit circuit) : clk(old.clk), rst(old.rst), circuit_(std::move(circuit)) {}

    void step() {
        const unsigned bit = circuit_.bit;
        if (PORT(rx, valid) && PORT(rx, ready)) {
            sent_ = ~0u << (kBits - 1) | unsigned{PORT(rx, payload)} << 1;
            sending_ = kBits * bit;
        }
        circuit_.step(sent_ & 1);
        if (sending_ && --sending_ % bit == 0) sent_ = sent_ >> 1 | 1u << (kBits - 1);
        receive(circuit_.line(), bit);
        ++started_;
    }

    void receive(bool line, unsigned bit) {
        PORT(tx, valid) = 0;
        if (!receiving_) {
            if (!line && started_ >= circuit_.start) receiving_ = (kBits - 1) * bit + bit / 2;
        } else if (--receiving_ % bit == 0) {
            if (receiving_) {
                seen_ = seen_ >> 1 | unsigned{line} << 7;
            } else if (line) {
                PORT(tx, valid) = 1;
                PORT(tx, payload) = seen_ & 0xff;
            }
        }
    }
};

#undef PORT

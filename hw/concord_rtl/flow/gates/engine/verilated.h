// What verilate.cpp asks of Verilator's library, which a circuit has no use for.
#pragma once

struct VerilatedContext {
    void randReset(int) {}
    void timeInc(int) {}
};

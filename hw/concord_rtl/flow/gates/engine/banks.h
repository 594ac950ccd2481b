// A circuit has no memories that can be reached: see verilate.cpp.
#define BANKS(bank)

// An SDR SDRAM at the pins of a Verilated design: its contents, its clock, and every time that it asks for.
//
// Cycles are those of the fastest clock of the part. A read with a clock phase that does not work gives anything, as
// contents do after power-up.

#pragma once

#include <cstdint>
#include <cstdio>
#include <vector>

struct SdramModel {
    struct Bank {
        bool open = false;
        uint32_t row = 0;
        int64_t opened = -1000, closed = -1000, written = -1000;
    };
    // Steps of the clock with which data come at the earlier of two cycles, and those with which at the later one.
    static constexpr int kEarly = SDRAM_PHASES / 8, kLate = SDRAM_PHASES + SDRAM_PHASES / 8;
    static constexpr int kWorks = SDRAM_PHASES / 2;
    static constexpr int kDelays = 8;

    std::vector<uint16_t> columns;
    Bank banks[1 << SDRAM_BANK_BITS];
    uint16_t read[kDelays] = {};
    uint64_t seed = 0x9E3779B97F4A7C15u, faults = 0;
    int64_t now = 0, refreshed = -1, moded = -1000;
    int phase = 0;
    bool ready = false;

    SdramModel() : columns(size_t(1) << (SDRAM_BANK_BITS + SDRAM_ROW_BITS + SDRAM_COLUMN_BITS)) {
        for (auto &column : columns) column = anything();
    }

    uint16_t anything() {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        return uint16_t(seed >> 24);
    }

    void fault(const char *what) {
        if (faults++ < 10) std::fprintf(stderr, "SDRAM, cycle %lld: %s\n", (long long)now, what);
    }

    void after(int64_t since, int64_t least, const char *what) {
        if (now - since < least) fault(what);
    }

    void all_closed() {
        for (const Bank &bank : banks) {
            if (bank.open) fault("a command for closed banks with an open row");
            after(bank.closed, SDRAM_RP, "a command too soon after PRECHARGE");
        }
    }

    // A cycle: what the pins say, and the data that the registers of the pads show in the next one.
    uint16_t cycle(int command, int number, uint32_t addr, uint16_t data, bool driven, int mask) {
        ++now;
        for (int k = kDelays - 1; k; --k) read[k] = read[k - 1];
        read[0] = anything();
        if (refreshed >= 0 && now - refreshed > SDRAM_REFRESH) {
            fault("no refresh for too long");
            refreshed = now;
        }
        if (command != 7) {
            if (now < SDRAM_POWER_UP) fault("a command too soon after power-up");
            if (refreshed >= 0) after(refreshed, SDRAM_RFC, "a command too soon after REFRESH");
            after(moded, SDRAM_MRD, "a command too soon after MODE");
            execute(command, banks[number], number, addr, data, driven, mask);
        }
        // The pads take the data of a read two cycles of pads and the CAS latency after its command.
        const int turn = phase % (2 * SDRAM_PHASES);
        if (turn >= kEarly && turn < kEarly + kWorks) return read[SDRAM_CAS];
        if (turn >= kLate && turn < kLate + kWorks) return read[SDRAM_CAS + 1];
        return anything();
    }

    void execute(int command, Bank &bank, int number, uint32_t addr, uint16_t data, bool driven, int mask) {
        switch (command) {
        case 0:
            all_closed();
            if (addr != SDRAM_CAS << 4) fault("another mode");
            ready = true;
            moded = now;
            break;
        case 4:
            all_closed();
            refreshed = now;
            break;
        case 2:
            for (int k = 0; k < 1 << SDRAM_BANK_BITS; ++k)
                if ((addr >> 10 & 1) || k == number) close(banks[k]);
            break;
        case 6:
            if (!ready) fault("ACTIVATE before MODE");
            if (bank.open) fault("ACTIVATE of an open bank");
            after(bank.closed, SDRAM_RP, "ACTIVATE too soon after PRECHARGE");
            after(bank.opened, SDRAM_RC, "ACTIVATE too soon after ACTIVATE");
            for (const Bank &other : banks) after(other.opened, SDRAM_RRD, "ACTIVATE too soon after that of another bank");
            bank.open = true;
            bank.row = addr;
            bank.opened = now;
            break;
        case 1:
        case 5:
            access(command == 1, bank, number, addr, data, driven, mask);
            break;
        default:
            fault("no such command");
        }
    }

    void close(Bank &bank) {
        if (bank.open) {
            after(bank.opened, SDRAM_RAS, "PRECHARGE too soon after ACTIVATE");
            after(bank.written, SDRAM_WR, "PRECHARGE too soon after WRITE");
        }
        bank.open = false;
        bank.closed = now;
    }

    void access(bool write, Bank &bank, int number, uint32_t addr, uint16_t data, bool driven, int mask) {
        if (!bank.open) return fault("an access without an open row");
        after(bank.opened, SDRAM_RCD, "an access too soon after ACTIVATE");
        uint16_t &column = columns[((size_t(bank.row) << SDRAM_BANK_BITS | number) << SDRAM_COLUMN_BITS) | addr];
        if (!write) {
            read[0] = column;
            return;
        }
        if (!driven) fault("WRITE without data");
        const uint16_t kept = (mask & 1 ? 0xFF : 0) | (mask & 2 ? 0xFF00 : 0);
        column = (column & kept) | (data & ~kept);
        bank.written = now;
    }
};

// A circuit of functions, registers and memories, simulated event by event.
//
// Only what may have changed is computed: functions in the order of their depth, registers at the ticks of their clocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

class Circuit {
public:
    unsigned bit = 0;     // steps per bit of the serial line
    uint64_t start = 0;   // steps after which the design listens

    explicit Circuit(const char *text) {
        std::istringstream in(text);
        read(in);
        connect();
        power_up();
    }

    // The same circuit as after configuration.
    Circuit again() const {
        Circuit other(*this);
        other.power_up();
        return other;
    }

    bool line() const { return value_[tx_]; }

    void step(bool line) {
        set(rx_, line);
        settle();
        for (unsigned turn = 0; turn < ratio_; ++turn) {
            tick(turn == 0);
            settle();
        }
    }

private:
    enum Kind : uint8_t { kLut, kRead, kProduct };
    struct Cell {
        Kind kind;
        uint8_t split;      // inputs of the first factor
        int in, inputs, out, outputs, level, memory;
        uint64_t table;
    };
    struct Register {
        int domain, q, d, enable, reset;
        uint8_t init, set;
    };
    struct Memory {
        std::vector<uint64_t> init, words;
        std::vector<int> readers;
    };
    struct Write {
        int domain, memory, enable, addr, addr_bits, data, data_bits;
    };
    struct Domain {
        bool slow;          // ticks once in a step, not with every cycle of the oscillator
        std::vector<int> gates, armed, armed_writes;
    };
    struct Store {
        int memory;
        uint64_t addr, data;
    };

    unsigned ratio_ = 1;
    int rx_ = 0, tx_ = 0;
    std::vector<uint8_t> value_;
    std::vector<Cell> cells_;
    std::vector<Register> registers_;
    std::vector<Memory> memories_;
    std::vector<Write> writes_;
    std::vector<Domain> domains_;
    std::vector<int> pins_;                              // nets of all inputs and outputs, one list after the other
    std::vector<std::vector<int>> to_cells_, to_registers_, to_writes_;
    std::vector<std::vector<int>> waiting_;              // cells to compute, by level
    std::vector<uint8_t> is_waiting_, is_armed_, is_armed_write_;
    std::vector<std::pair<int, uint8_t>> next_;
    std::vector<Store> stores_;

    [[noreturn]] static void fail(const std::string &what) {
        std::fprintf(stderr, "circuit: %s\n", what.c_str());
        std::abort();
    }

    int list(std::istringstream &in, int &count) {
        in >> count;
        const int at = static_cast<int>(pins_.size());
        for (int k = 0, net; k < count; ++k) {
            in >> net;
            pins_.push_back(net);
        }
        return at;
    }

    void read(std::istringstream &in) {
        std::string word;
        while (in >> word) {
            if (word == "nets") {
                int count;
                in >> count;
                value_.resize(count);
            } else if (word == "serial") {
                in >> rx_ >> tx_ >> bit >> ratio_ >> start;
            } else if (word == "domain") {
                Domain domain{};
                int count;
                in >> domain.slow;
                for (int k = list(in, count), end = k + count; k < end; ++k) domain.gates.push_back(pins_[k]);
                domains_.push_back(domain);
            } else if (word == "lut" || word == "read" || word == "product") {
                Cell cell{};
                cell.kind = word == "lut" ? kLut : word == "read" ? kRead : kProduct;
                if (cell.kind == kLut) in >> std::hex >> cell.table >> std::dec;
                if (cell.kind == kRead) in >> cell.memory;
                if (cell.kind == kProduct) {
                    int split;
                    in >> split;
                    cell.split = static_cast<uint8_t>(split);
                }
                cell.in = list(in, cell.inputs);
                cell.out = list(in, cell.outputs);
                cells_.push_back(cell);
            } else if (word == "register") {
                Register reg{};
                int init, set;
                in >> reg.domain >> reg.q >> reg.d >> reg.enable >> reg.reset >> init >> set;
                reg.init = static_cast<uint8_t>(init), reg.set = static_cast<uint8_t>(set);
                registers_.push_back(reg);
            } else if (word == "memory") {
                size_t depth;
                in >> depth;
                Memory memory;
                memory.init.resize(depth);
                for (auto &value : memory.init) in >> std::hex >> value >> std::dec;
                memories_.push_back(memory);
            } else if (word == "write") {
                Write write{};
                in >> write.domain >> write.memory >> write.enable;
                write.addr = list(in, write.addr_bits);
                write.data = list(in, write.data_bits);
                writes_.push_back(write);
            } else {
                fail("unknown word " + word);
            }
            if (!in) fail("it ends within " + word);
        }
    }

    void connect() {
        const size_t nets = value_.size(), cells = cells_.size();
        to_cells_.resize(nets), to_registers_.resize(nets), to_writes_.resize(nets);
        std::vector<int> driver(nets, -1), open(cells, 0), ready;
        for (size_t c = 0; c < cells; ++c) {
            const Cell &cell = cells_[c];
            for (int k = 0; k < cell.outputs; ++k) driver[pins_[cell.out + k]] = static_cast<int>(c);
            for (int k = 0; k < cell.inputs; ++k) to_cells_[pins_[cell.in + k]].push_back(static_cast<int>(c));
            if (cell.kind == kRead) memories_[cell.memory].readers.push_back(static_cast<int>(c));
        }
        for (size_t c = 0; c < cells; ++c) {
            for (int k = 0; k < cells_[c].inputs; ++k) open[c] += driver[pins_[cells_[c].in + k]] >= 0;
            if (!open[c]) ready.push_back(static_cast<int>(c));
        }
        size_t levels = 0, done = 0;
        for (; done < ready.size(); ++done) {
            const Cell &cell = cells_[ready[done]];
            levels = std::max(levels, static_cast<size_t>(cell.level) + 1);
            for (int k = 0; k < cell.outputs; ++k)
                for (int user : to_cells_[pins_[cell.out + k]]) {
                    cells_[user].level = std::max(cells_[user].level, cell.level + 1);
                    if (--open[user] == 0) ready.push_back(user);
                }
        }
        if (done != cells) fail("there is a loop without a register");
        for (size_t r = 0; r < registers_.size(); ++r)
            for (int net : {registers_[r].d, registers_[r].enable, registers_[r].reset})
                to_registers_[net].push_back(static_cast<int>(r));
        for (size_t w = 0; w < writes_.size(); ++w) {
            const Write &write = writes_[w];
            to_writes_[write.enable].push_back(static_cast<int>(w));
            for (int k = 0; k < write.addr_bits; ++k) to_writes_[pins_[write.addr + k]].push_back(static_cast<int>(w));
            for (int k = 0; k < write.data_bits; ++k) to_writes_[pins_[write.data + k]].push_back(static_cast<int>(w));
        }
        waiting_.resize(levels);
        is_waiting_.resize(cells), is_armed_.resize(registers_.size()), is_armed_write_.resize(writes_.size());
    }

    void power_up() {
        std::fill(value_.begin(), value_.end(), uint8_t{0});
        value_[1] = 1;
        for (auto &memory : memories_) memory.words = memory.init;
        for (const auto &reg : registers_) value_[reg.q] = reg.init;
        for (size_t c = 0; c < cells_.size(); ++c) wait(static_cast<int>(c));
        for (size_t r = 0; r < registers_.size(); ++r) arm(static_cast<int>(r));
        for (size_t w = 0; w < writes_.size(); ++w) arm_write(static_cast<int>(w));
    }

    void wait(int cell) {
        if (is_waiting_[cell]) return;
        is_waiting_[cell] = 1;
        waiting_[cells_[cell].level].push_back(cell);
    }

    void arm(int reg) {
        if (is_armed_[reg]) return;
        is_armed_[reg] = 1;
        domains_[registers_[reg].domain].armed.push_back(reg);
    }

    void arm_write(int write) {
        if (is_armed_write_[write]) return;
        is_armed_write_[write] = 1;
        domains_[writes_[write].domain].armed_writes.push_back(write);
    }

    void set(int net, uint8_t value) {
        if (value_[net] == value) return;
        value_[net] = value;
        for (int cell : to_cells_[net]) wait(cell);
        for (int reg : to_registers_[net]) arm(reg);
        for (int write : to_writes_[net]) arm_write(write);
    }

    uint64_t gather(int at, int count) const {
        uint64_t bits = 0;
        for (int k = 0; k < count; ++k) bits |= uint64_t{value_[pins_[at + k]]} << k;
        return bits;
    }

    int64_t gather_signed(int at, int count) const {
        const uint64_t sign = uint64_t{1} << (count - 1);
        return static_cast<int64_t>((gather(at, count) ^ sign) - sign);
    }

    uint64_t compute(const Cell &cell) const {
        if (cell.kind == kLut) return cell.table >> gather(cell.in, cell.inputs) & 1;
        if (cell.kind == kProduct)
            return static_cast<uint64_t>(
                gather_signed(cell.in, cell.split) * gather_signed(cell.in + cell.split, cell.inputs - cell.split)
            );
        const auto &words = memories_[cell.memory].words;
        const uint64_t addr = gather(cell.in, cell.inputs);
        return addr < words.size() ? words[addr] : 0;
    }

    void settle() {
        for (auto &level : waiting_) {
            for (size_t k = 0; k < level.size(); ++k) {
                const Cell &cell = cells_[level[k]];
                is_waiting_[level[k]] = 0;
                const uint64_t bits = compute(cell);
                for (int j = 0; j < cell.outputs; ++j) set(pins_[cell.out + j], bits >> j & 1);
            }
            level.clear();
        }
    }

    // One edge: all registers and memories take what was there before it.
    void tick(bool slow) {
        next_.clear();
        stores_.clear();
        std::vector<Domain *> running;
        for (auto &domain : domains_) {
            bool runs = slow || !domain.slow;
            for (int gate : domain.gates) runs = runs && value_[gate];
            if (runs) running.push_back(&domain);
        }
        for (Domain *domain : running) {
            for (int r : domain->armed) {
                const Register &reg = registers_[r];
                is_armed_[r] = 0;
                if (value_[reg.reset]) next_.emplace_back(reg.q, reg.set);
                else if (value_[reg.enable]) next_.emplace_back(reg.q, value_[reg.d]);
            }
            domain->armed.clear();
            for (int w : domain->armed_writes) {
                const Write &write = writes_[w];
                is_armed_write_[w] = 0;
                if (value_[write.enable])
                    stores_.push_back({write.memory, gather(write.addr, write.addr_bits),
                                       gather(write.data, write.data_bits)});
            }
            domain->armed_writes.clear();
        }
        for (const auto &[net, value] : next_) set(net, value);
        for (const auto &store : stores_) {
            auto &memory = memories_[store.memory];
            if (store.addr >= memory.words.size() || memory.words[store.addr] == store.data) continue;
            memory.words[store.addr] = store.data;
            for (int reader : memory.readers) wait(reader);
        }
    }
};

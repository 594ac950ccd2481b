# amaranth: UnusedElaboratable=no
"""Memories: contents, latency, bank boundaries, host access."""

import random
from pathlib import Path

import pytest
from amaranth import unsigned
from amaranth.back import verilog
from amaranth.lib import data

from concord.spec import multipliers
from concord.spec.config import SERIAL_ROWS
from concord.spec.presets import ECP5_85F, ECP5_85F_256, TINY
from concord.spec.presets import UP5K as UP5K_CONFIG
from concord_rtl import families
from concord_rtl.cells.block_ram import BlockRam
from concord_rtl.cells.spram import Spram
from concord_rtl.memories.column_memory import ColumnMemory
from concord_rtl.memories.matrix_memory import MatrixMemory
from concord_rtl.memories.row_memory import RowMemory
from concord_rtl.memories.vector_memory import VectorMemory, bank_depths
from support.bench import simulate
from support.netlist import run_netlist
from support.rtl_configs import WRITABLE, WRITABLE_ENGINES, WRITABLE_WINDOWS

ECP5, UP5K = families.ECP5.target, families.ICE40.target


@pytest.mark.parametrize(
    "depth, banks",
    [
        (2560, [2048, 512]),
        (2048, [2048]),
        (96, [96]),
        (512 + 40, [512, 40]),
        (1024 + 512 + 3, [1024, 512, 3]),
        (9000, [4096, 4096, 512, 296]),
    ],
)
def test_banks_are_powers_of_two_but_for_a_small_last_one(depth, banks):
    assert bank_depths(depth, 512, 4096) == banks


def run_vector_memory(depth, init, seed=0, cycles=1500):
    """Random reads and writes, one of each per cycle; every word read is compared two cycles later."""
    width = 11
    dut = VectorMemory(unsigned(width), depth, init)
    rng = random.Random(seed)
    edges = [0, 1, depth - 1, depth - 2]
    for bank in dut.banks[:-1]:
        edges += [bank - 1, bank]
    model = list(init) + [0] * (depth - len(init))
    checked = [0]

    async def bench(ctx):
        due = []
        for _ in range(cycles):
            read, write = (rng.choice([rng.randrange(depth), rng.choice(edges)]) for _ in range(2))
            en, r_en, word = rng.random() < 0.5 and read != write, rng.random() < 0.9, rng.getrandbits(width)
            ctx.set(dut.read.addr, read)
            ctx.set(dut.read.en, r_en)
            ctx.set(dut.write.addr, write)
            ctx.set(dut.write.data, word)
            ctx.set(dut.write.en, en)
            due.append(model[read] if r_en else 0)
            if en:
                model[write] = word
            *_, got = await ctx.tick().sample(dut.read.data)
            if len(due) > dut.LATENCY:
                assert got == due.pop(0)
                checked[0] += 1

    simulate(dut, bench)
    assert checked[0] == cycles - dut.LATENCY


@pytest.mark.slow
@pytest.mark.parametrize("depth", [2, 5, 64, 96, 552, 1539])
def test_vector_memory(depth):
    run_vector_memory(depth, [(37 * k + 5) % 2048 for k in range(depth - 1)], seed=depth)


def test_a_word_of_a_layout():
    word = data.StructLayout({"mant": data.ArrayLayout(4, 3), "exp": 5})
    dut = VectorMemory(word, 16)
    value = {"mant": [1, 2, 3], "exp": 9}

    async def bench(ctx):
        ctx.set(dut.write.addr, 7)
        ctx.set(dut.write.data, value)
        ctx.set(dut.write.en, 1)
        ctx.set(dut.read.addr, 7)
        for _ in range(dut.LATENCY + 1):
            await ctx.tick()
        assert ctx.get(dut.read.data) == word.const(value)

    simulate(dut, bench)


def test_an_unconnected_enable_reads():
    dut = VectorMemory(unsigned(8), 4, [1, 2, 3, 4])

    async def bench(ctx):
        ctx.set(dut.read.addr, 2)
        for _ in range(dut.LATENCY):
            await ctx.tick()
        assert ctx.get(dut.read.data) == 3

    simulate(dut, bench)


def matrix_rows(config, seed):
    rng = random.Random(seed)
    return [rng.getrandbits(config.matrix_row.width) for _ in range(config.matrix_depth * config.rows)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [TINY, TINY.replace(matrix_depth=600, engines=8), WRITABLE],
    ids=["tiny", "eight", "writable"],
)
def test_matrix_memory(config):
    """The host writes some rows and reads others back; the engines read whole words. Latencies are exact."""
    rng = random.Random(4)
    init = matrix_rows(config, 1)
    dut = MatrixMemory(config, init)
    rows, width = config.rows, config.matrix_row.width

    async def bench(ctx):
        due = {}
        for now in range(1200):
            addr, row, host = rng.randrange(config.matrix_depth), rng.randrange(rows), rng.random() < 0.5
            write, word = rng.random() < 0.5, rng.getrandbits(width)
            used = addr if host else rng.randrange(config.matrix_depth)
            ctx.set(dut.host.sel, host)
            ctx.set(dut.host.addr, addr)
            ctx.set(dut.host.row, row)
            ctx.set(dut.host.en, write)
            ctx.set(dut.host.w_data, word)
            ctx.set(dut.read.addr, used if not host else rng.randrange(config.matrix_depth))
            if host and write:
                init[addr * rows + row] = word
            elif host:
                due[now + dut.HOST_LATENCY] = ("host", init[addr * rows + row])
            else:
                whole = sum(init[used * rows + k] << k * width for k in range(rows))
                due[now + dut.LATENCY] = ("read", whole)
            *_, wide, one = await ctx.tick().sample(dut.read.data.as_value(), dut.host.data)
            kind, want = due.pop(now, (None, None))
            assert kind is None or (one if kind == "host" else wide) == want

    simulate(dut, bench)


@pytest.mark.slow
@pytest.mark.parametrize("width", [8, 5], ids=["parts of one size", "a shorter part"])
def test_rows_of_pairs_go_to_and_from_the_host_in_parts(width):
    """As above; an access of the host takes as long as its parts do, and no longer."""
    rng = random.Random(4)
    config = ECP5_85F_256.replace(matrix_depth=48, wgt_mant=width, act_mant=width)
    init = matrix_rows(config, 1)
    dut = MatrixMemory(config, init)
    rows = config.rows

    async def bench(ctx):
        for _ in range(60):
            addr, row = rng.randrange(config.matrix_depth), rng.randrange(rows)
            write, word = rng.random() < 0.5, rng.getrandbits(config.matrix_row.width)
            ctx.set(dut.host.sel, 1)
            ctx.set(dut.host.addr, addr)
            ctx.set(dut.host.row, row)
            ctx.set(dut.host.w_data, word)
            ctx.set(dut.read.addr, rng.randrange(config.matrix_depth))
            if write:
                init[addr * rows + row] = word
                while not ctx.get(dut.host.ready):
                    await ctx.tick()
                ctx.set(dut.host.en, 1)
                await ctx.tick()
                ctx.set(dut.host.en, 0)
            else:
                await ctx.tick().repeat(dut.HOST_LATENCY)
                assert ctx.get(dut.host.data) == init[addr * rows + row]
            ctx.set(dut.host.sel, 0)
            ctx.set(dut.host.w_data, rng.getrandbits(config.matrix_row.width))
            ctx.set(dut.read.addr, addr)
            await ctx.tick().repeat(dut.LATENCY)
            whole = sum(init[addr * rows + k] << k * config.matrix_row.width for k in range(rows))
            assert ctx.get(dut.read.data.as_value()) == whole

    simulate(dut, bench)


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        WRITABLE,
        WRITABLE_ENGINES,
        WRITABLE.replace(lanes=4, mfu_lanes=1, matrix_depth=600),
        WRITABLE.replace(native=8, lanes=1, mfu_lanes=1, max_payload=256),
        WRITABLE.replace(native=32, lanes=8, mfu_lanes=8, matrix_depth=24, max_payload=256),
        WRITABLE_WINDOWS.replace(mfu_lanes=1, wgt_exp_max=WRITABLE_WINDOWS.wgt_exp_min),
    ],
    ids=lambda config: f"{config.native}x{config.lanes}x{config.mfu_lanes}x{config.engines}",
)
def test_rows_of_the_pipe(config):
    """Rows come back to back and with gaps, and every word is read in every cycle: old rows up to that of the write.

    The host reads some of them afterwards.
    """
    assert not multipliers.paired(config), "the host alone writes rows of pairs"
    rng = random.Random(config.mfu_lanes)
    words = matrix_rows(config, 1)
    dut = MatrixMemory(config, words)
    rows, width, beats = config.rows, config.matrix_row.width, config.beats
    used = [rng.randrange(config.matrix_depth // config.steps) for _ in range(3)]  # tiles
    used.append(config.matrix_depth // config.steps - 1)

    def place(addr, row):
        return addr * rows + row

    async def bench(ctx):
        due, pending, latest = {}, {}, []
        left, seen = 0, 0
        for now in range(400):
            if left == 0 and rng.random() < 0.7:
                left, tile, row = beats, rng.choice(used), rng.randrange(rows)
                exp = rng.randrange(config.wgt_exp_max - config.wgt_exp_min + 1)
                ctx.set(dut.row.exp, exp)
                ctx.set(dut.row.row, tile * rows + row)
            ctx.set(dut.row.valid, left != 0)
            ctx.set(dut.row.beat, beats - left if left else rng.randrange(beats))
            latest += [rng.randint(-config.wgt.q_max, config.wgt.q_max) for _ in range(config.mfu_lanes)]
            latest = latest[-config.lanes :]
            ctx.set(dut.row.mant, [0] * (config.lanes - len(latest)) + latest)
            if left:
                left -= 1
                done = beats - left
                if done * config.mfu_lanes % config.lanes == 0:
                    addr = tile * config.steps + done * config.mfu_lanes // config.lanes - 1
                    pending[now + dut.ROW_LATENCY] = addr, row, config.matrix_row.pack(mant=latest, exp=exp)
            if now in pending:
                addr, row_now, word = pending.pop(now)
                words[place(addr, row_now)] = word
            addr = rng.choice(used) * config.steps + rng.randrange(config.steps)
            ctx.set(dut.read.addr, addr)
            written = pending.get(now + 1)  # in the cycle of the read, which gives anything
            skip = written[1] if written and written[0] == addr else None
            due[now + dut.LATENCY] = skip, [words[place(addr, k)] for k in range(rows)]
            *_, wide = await ctx.tick().sample(dut.read.data.as_value())
            skip, want = due.pop(now, (None, None))
            if want is not None:
                seen += 1
                for k in range(rows):
                    assert k == skip or wide >> k * width & (1 << width) - 1 == want[k]
        ctx.set(dut.row.valid, 0)
        await ctx.tick().repeat(4)
        for _, (addr, row_now, word) in sorted(pending.items()):
            words[place(addr, row_now)] = word
        if left:
            used.remove(tile)
        for _ in range(20):
            addr, row = rng.choice(used) * config.steps, rng.randrange(rows)
            ctx.set(dut.host.sel, 1)
            ctx.set(dut.host.addr, addr)
            ctx.set(dut.host.row, row)
            await ctx.tick().repeat(dut.HOST_LATENCY)
            assert ctx.get(dut.host.data) == words[place(addr, row)]
            ctx.set(dut.host.sel, 0)
            await ctx.tick()
        assert seen > 350

    simulate(dut, bench)


def test_rows_match_the_matrix_region():
    """Row r of word a is at address a*T*N + r, with the fields of the row where the layout has them."""
    rng = random.Random(9)
    values = [
        {"mant": [rng.randint(-127, 127) for _ in range(TINY.lanes)], "exp": rng.randrange(16)} for _ in range(4 * 8)
    ]
    dut = MatrixMemory(TINY, [TINY.matrix_row.pack(**value) for value in values])

    async def bench(ctx):
        ctx.set(dut.read.addr, 6)
        for _ in range(dut.LATENCY):
            await ctx.tick()
        for row in range(TINY.rows):
            got = ctx.get(dut.read.data[row])
            assert TINY.matrix_row.unpack(got.as_bits()) == values[6 * TINY.rows + row]

    simulate(dut, bench)


def test_spram_reads_what_was_written():
    dut = Spram()
    rng = random.Random(3)
    model = {}

    async def bench(ctx):
        due = {}
        for now in range(400):
            addr = rng.choice([0, 1, 77, dut.DEPTH - 1])
            write, word, r_en = rng.random() < 0.4, rng.getrandbits(dut.WIDTH), rng.random() < 0.8
            ctx.set(dut.addr, addr)
            ctx.set(dut.w_en, write)
            ctx.set(dut.r_en, r_en)
            ctx.set(dut.w_data, word)
            if write:
                model[addr] = word
            elif addr in model or not r_en:
                due[now + dut.LATENCY] = model[addr] if r_en else 0
            *_, got = await ctx.tick().sample(dut.data)
            assert got == due.pop(now, got)

    simulate(dut, bench)


#: Random reads and writes to the plain memory, to the instances, and to the instances after a change of a parameter.
#: Reads begin when the contents can be told from zeros; addresses are far apart in the cycle of a write.
BENCH = """
module bench(input clk, output reg [15:0] wrong, noticed, moved);
    initial {{wrong, noticed, moved}} = 0;
    reg [63:0] noise = 64'h9E3779B97F4A7C15;
    wire [63:0] n1 = noise ^ (noise << 13), n2 = n1 ^ (n1 >> 7), n3 = n2 ^ (n2 << 17);
    wire [{addr}-1:0] to = noise[0] ? noise[63:32] % {depth} : noise[63:32] % 64;
    wire [{addr}-1:0] draw = noise[0] ? noise[31:8] % {depth} : noise[31:8] % 64;
    wire [{addr}-1:0] from = draw == to ? (to + 1) % {depth} : draw;
    wire [{width}-1:0] data = {{noise[40:3], noise[60:2]}};
    wire [{width}-1:0] plain, block, broken;
    twin twin_i ({ports}, .data(plain));
    block block_i ({ports}, .data(block));
    broken broken_i ({ports}, .data(broken));
    always @(posedge clk) begin
        noise <= n3;
        if (plain != block) wrong <= wrong + 1;
        if (plain != broken) noticed <= noticed + 1;
        if (plain != 0) moved <= moved + 1;
    end
endmodule
"""
PORTS = ".clk(clk), .rst(1'b0), .addr(from), .w_en(noise[1]), .w_addr(to), .w_data(data)"
CELL = (Path(__file__).parents[3] / "sim" / "cells" / "dp16kd.v").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "width, depth, change",
    [
        (40, 512, ('.REGMODE_B("OUTREG")', '.REGMODE_B("NOREG")')),
        (10, 2048, (".ADB3(", ".ADB4(")),
        (20, 1000, (".INITVAL_3", ".INITVAL_2")),
        (5, 4096, (".DATA_WIDTH_B(32'd4)", ".DATA_WIDTH_B(32'd9)")),
    ],
)
def test_block_ram_equals_its_twin_and_a_wrong_parameter_is_noticed(monkeypatch, width, depth, change):
    monkeypatch.setenv("AMARANTH_USE_YOSYS", "builtin")
    rng = random.Random(depth)
    init = [rng.getrandbits(width) for _ in range(depth)]
    twin = verilog.convert(BlockRam(width, depth, init), name="twin", emit_src=False)
    block = verilog.convert(BlockRam(width, depth, init), name="block", platform=ECP5, emit_src=False)
    old, new = change
    assert old in block
    # Where both are there, they are exchanged.
    broken = new.join(part.replace(new, old) for part in block.replace("module block(", "module broken(").split(old))
    text = BENCH.format(width=width, depth=depth, addr=(depth - 1).bit_length(), ports=PORTS)
    wrong, noticed, moved = run_netlist([twin, block, broken, CELL, text], ["wrong", "noticed", "moved"], 1500)
    assert wrong == 0
    assert noticed > 100
    assert moved > 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    "width, depth, count", [(68, 2048, 8), (68, 512, 2), (68, 2560, 10), (136, 2048, 16), (256, 1024, 15)]
)
def test_block_rams_used_on_ecp5(monkeypatch, width, depth, count):
    monkeypatch.setenv("AMARANTH_USE_YOSYS", "builtin")
    assert verilog.convert(VectorMemory(width, depth), platform=ECP5).count("DP16KD #(") == count


@pytest.mark.slow
def test_spram_is_used_on_up5k_only(monkeypatch):
    monkeypatch.setenv("AMARANTH_USE_YOSYS", "builtin")
    row = RowMemory(UP5K_CONFIG)
    used = SERIAL_ROWS * -(-row.host.data.shape().width // Spram.WIDTH)
    assert verilog.convert(row, platform=UP5K).count("SB_SPRAM256KA") == used == 4
    wide = UP5K_CONFIG.replace(wgt_mant=8, wgt_exp_max=-3)
    assert "SPRAM" not in verilog.convert(RowMemory(wide), platform=UP5K), "two rows do not fit"
    assert "SPRAM" not in verilog.convert(RowMemory(UP5K_CONFIG, [1]), platform=ECP5)
    small = UP5K_CONFIG.replace(matrix_depth=16)
    rams = families.primitives_of(UP5K).single_port_rams
    assert verilog.convert(MatrixMemory(small), platform=UP5K).count("SB_SPRAM256KA") == rams
    assert "SB_SPRAM256KA" not in verilog.convert(MatrixMemory(small))


def test_rows_are_read_in_pairs():
    config, rng = UP5K_CONFIG.replace(matrix_depth=16), random.Random(9)
    width = config.matrix_row.width
    rows = [rng.getrandbits(width) for _ in range(config.matrix_depth * config.rows)]
    dut = RowMemory(config, rows)

    async def bench(ctx):
        for _ in range(200):
            number = rng.randrange(len(rows))
            for port, value in (("addr", number // config.rows), ("row", number % config.rows), ("sel", 1)):
                ctx.set(getattr(dut.host, port), value)
            await ctx.tick()
            assert ctx.get(dut.host.data) == rows[number]
            rows[number] = rng.getrandbits(width)
            ctx.set(dut.host.w_data, rows[number])
            ctx.set(dut.host.en, 1)
            await ctx.tick()
            ctx.set(dut.host.en, 0)
            ctx.set(dut.host.sel, 0)
            pair = rng.choice([number, rng.randrange(len(rows))]) // SERIAL_ROWS
            ctx.set(dut.read.addr, pair)
            await ctx.tick()
            found = [ctx.get(dut.read.data[k]).as_bits() for k in range(SERIAL_ROWS)]
            assert found == rows[pair * SERIAL_ROWS : (pair + 1) * SERIAL_ROWS]

    simulate(dut, bench)


def test_spram_cannot_be_initialised():
    with pytest.raises(ValueError, match="init must be empty in SPRAM"):
        verilog.convert(RowMemory(UP5K_CONFIG, [1]), platform=UP5K)
    with pytest.raises(ValueError, match="init must be empty in SPRAM"):
        verilog.convert(MatrixMemory(UP5K_CONFIG, [1]), platform=UP5K)


def test_constructors_reject_nonsense():
    with pytest.raises(ValueError, match="depth must be an integer of at least 2, not 1"):
        VectorMemory(unsigned(4), 1)
    with pytest.raises(ValueError, match=r"depth must be in 2..16384, not 16385"):
        BlockRam(4, 16385)
    with pytest.raises(ValueError, match="init must have at most depth=4 words, not 5"):
        VectorMemory(unsigned(4), 4, [0] * 5)
    with pytest.raises(ValueError, match="init must have at most 32768 rows, not 32769"):
        MatrixMemory(ECP5_85F, [0] * 32769)
    with pytest.raises(ValueError, match="init must have at most depth=2 words, not 3"):
        ColumnMemory([4], 2, [0] * 3)

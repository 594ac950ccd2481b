"""Integer chains that look up tables, and products of two tensors: entries, ranges, rules, and what programs may do."""

import random
from fractions import Fraction

import numpy as np
import pytest

from concord.emulator import Emulator, ReferenceMachine
from concord.golden.lookup import entry_numbers
from concord.image import Memories
from concord.program import trace
from concord.program.assembler import assemble
from concord.program.integer_access import broken_chain_rules
from concord.program.integers import IntegerChain
from concord.program.verify import Span, verify
from concord.spec.isa import Trap
from concord.spec.lookup import BINADE_MIN, binade_entries, table_words
from concord.spec.memmap import RegionId
from support.integer_contents import LOSS_LARGE, LOSS_SMALL, LOSS_WHOLE, TRAIN_SMALL
from support.integer_programs import random_case

TABLE, BINADES, SOURCE, TARGET = 100, 3, 5, 40
LOOKUP = f"""
    t_look 2
    t_set 1, -15
    set_shape 2, 1
    i_src table, addr={SOURCE}, row=1
    i_opd wide, addr={TABLE}
    i_dst wide, addr={TARGET}, row=2
    i_run 99, tensor=1, valid=3, peak=1, to_vector=1, binades={BINADES}
    halt
"""
PRODUCT = """
    set_shape 1, 1
    i_src wide, addr=10
    i_opd wide, addr=20
    i_dst wide, addr=40
    i_run 99, to_vector=1, mul=1, peak=1, tensor=1
    halt
"""
MACHINES = [Emulator, ReferenceMachine]


def contents(program=LOOKUP, config=LOSS_SMALL, exp=0):
    """Two vectors of codes, a table whose entries are some number less their own, and the exponent of the codes."""
    memories, words = Memories(config), assemble(program)
    memories.program[: len(words)] = words
    count = table_words(BINADES, config.act_mant, config.native)
    memories.wide[TABLE : TABLE + count] = 20_000 - np.arange(count * config.native).reshape(count, -1)
    memories.narrow_mant[SOURCE] = np.resize([3, -1, 7, 6, -3, 127, 65, -127], config.native)
    memories.narrow_mant[SOURCE + 1] = np.resize([5, -2, 127, 0], config.native)  # the last entry is left out
    memories.tensor_exp[2] = exp
    return memories


def wide(memories, address):
    return memories.wide[address : address + 2].reshape(-1).astype("<u2").view("<i4").tolist()


# Entries ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("exp", [-200, -24, -23, BINADE_MIN - 3, -5, 0, 1, 3, 4, 200])
def test_numbers_of_entries_are_those_of_the_nearest_number_of_the_table(exp):
    """Every code: the entry is that of the number itself where the table has it."""
    binades, half = 9, binade_entries(8) // 2
    codes = np.arange(-127, 128)
    for code, number in zip(codes.tolist(), entry_numbers(codes, exp, binades, 8).tolist(), strict=True):
        binade, place = divmod(number, 2 * half)
        negative, fraction = divmod(place, half)
        entry = Fraction((-1 if negative else 1) * (half + fraction)) * Fraction(2) ** (BINADE_MIN + binade - 6)
        value = Fraction(code) * Fraction(2) ** exp
        assert bool(negative) == (code < 0)
        if abs(value) < Fraction(2) ** BINADE_MIN:
            assert binade == 0
        elif abs(value) >= Fraction(2) ** (BINADE_MIN + binades):
            assert binade == binades - 1
        else:
            assert entry == value


def test_words_of_tables():
    assert [table_words(binades, 8, native) for binades, native in ((1, 16), (21, 16), (3, 64), (1, 8))] == [
        8,
        168,
        6,
        16,
    ]


# Chains ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("config", [LOSS_SMALL, LOSS_WHOLE, LOSS_LARGE], ids=lambda config: config.name)
def test_random_chains_are_those_of_the_reference_machine(config):
    seen = dict.fromkeys(("table", "mul", "trap"), 0)
    for seed in range(40):
        words, memories = random_case(random.Random(seed), config, traps=seed % 4 == 0)
        fast, exact = Emulator(memories.copy()), ReferenceMachine(memories.copy())
        run, other = fast.run(), exact.run()
        assert (run.trap, run.cycles) == (other.trap, other.cycles), seed
        assert not fast.memories.differences(exact.memories), seed
        for item in trace(words, config).integers:
            if isinstance(item, IntegerChain):
                seen["table"] += item.kind.name == "TABLE"
                seen["mul"] += item.steps.mul
        seen["trap"] += run.trap is Trap.INTEGER_RANGE
    assert min(seen.values()) >= 3, seen


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("exp", [BINADE_MIN, BINADE_MIN + 1, -40, 40])
def test_a_lookup(machine, exp):
    """Entries of both vectors; elements that are left out are zero, and not seen by the peak."""
    memories = contents(exp=exp)
    codes, native = memories.narrow_mant[SOURCE : SOURCE + 2].astype(np.int64), memories.config.native
    want = 20_000 - entry_numbers(codes, exp, BINADES, 8)
    assert want[1, 3] > max(want[0].max(), want[1, :3].max())
    run = machine(memories).run()
    assert run.trap is Trap.NONE
    want[1, 3:] = 0
    assert [wide(memories, TARGET), wide(memories, TARGET + 2)] == want.tolist()
    assert (memories.tensor_exp[1], memories.tensor_top[1]) == (-15, want.max())
    assert native > 3


@pytest.mark.parametrize("machine", MACHINES)
def test_the_least_code_traps_where_it_counts(machine):
    memories = contents()
    memories.narrow_mant[SOURCE + 1, 3] = -128  # left out
    assert machine(memories.copy()).run().trap is Trap.NONE
    for vector, element in ((0, 3), (1, 2)):
        other = memories.copy()
        other.narrow_mant[SOURCE + vector, element] = -128
        assert machine(other).run().trap is Trap.INTEGER_RANGE


@pytest.mark.parametrize("machine", MACHINES)
def test_the_exponent_is_that_of_the_latest_step(machine):
    """A step reads it then; a run begins with zero."""
    later = LOOKUP.replace("t_set 1, -15", "t_set 2, 40\n t_set 1, -15")
    memories = contents(later, exp=BINADE_MIN)
    machine(memories).run()
    want = contents(exp=BINADE_MIN)
    machine(want).run()
    assert wide(memories, TARGET) == wide(want, TARGET)
    unset = contents(LOOKUP.replace("t_look 2", "fence"), exp=BINADE_MIN)
    machine(unset).run()
    want = contents(exp=0)
    machine(want).run()
    assert wide(unset, TARGET) == wide(want, TARGET)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    "source, factor, trap",
    [
        (-7, 9, False), (2**31 - 1, 2**16 - 1, False), (-(2**31 - 1), 2**16 - 1, False),
        (3, -(2**16 - 1), False), (1, 2**16, True), (1, -(2**16), True), (0, 2**31 - 1, True), (0, 1 - 2**31, True),
    ],
)  # fmt: skip
def test_products_of_two_tensors(machine, source, factor, trap):
    memories, words = Memories(LOSS_SMALL), assemble(PRODUCT.replace("to_vector=1, ", ""))
    memories.program[: len(words)] = words
    for address, value in ((10, source), (20, factor)):
        memories.wide[address : address + 2] = np.full(8, value, "<i4").view("<u2").reshape(2, -1)[:, :8]
    assert machine(memories).run().trap is (Trap.INTEGER_RANGE if trap else Trap.NONE)
    if not trap:
        assert memories.tensor_top[1] == abs(source * factor)


# Rules -----------------------------------------------------------------------------------------


def chain_of(text, config=LOSS_SMALL) -> IntegerChain:
    item = trace(assemble(text), config).integers[-1]
    assert isinstance(item, IntegerChain)
    return item


@pytest.mark.parametrize(
    "program, old, new, rule",
    [
        (LOOKUP, "binades=3", "binades=0", "must have binades with a table"),
        (LOOKUP, "peak=1", "peak=1, add=1", "must have no operand with a table, which takes its place"),
        (LOOKUP, "i_run 99", "i_run 7", "must have an interval of at least 8 cycles, not 7"),
        (LOOKUP, f"addr={TABLE}", "addr=470", "must stay below word 512 of the wide memory, not touch 517"),
        (LOOKUP, f"addr={SOURCE}", "addr=511", "must stay below word 512 of the narrow memory, not touch 512"),
        (LOOKUP, f"addr={TARGET}", "addr=140", "must not read wide 140 in a vector, which another vector of it writes"),
        (PRODUCT, "mul=1", "mul=1, scale=1", "must multiply either by a factor or by an operand"),
        (PRODUCT, "mul=1", "mul=1, add=1", "must have one operand: to add, to multiply, to mask, or the weights"),
        (PRODUCT, "i_opd wide", "i_opd narrow", "must have a wide operand to multiply"),
        (PRODUCT, "i_src wide", "i_src product", "must not scale or multiply a product"),
    ],
)  # fmt: skip
def test_rules(program, old, new, rule):
    assert not broken_chain_rules(chain_of(program), LOSS_SMALL)
    text = program.replace(old, new, 1)
    assert text != program
    assert broken_chain_rules(chain_of(text), LOSS_SMALL)[0].message.startswith(rule)
    for machine in MACHINES:
        with pytest.raises(ValueError, match=r"^an integer chain at pc "):
            machine(contents(text)).run()


def test_the_verifier_knows_what_they_read():
    words = assemble(LOOKUP)
    codes, table = Span(RegionId.NARROW, SOURCE, 2), Span(RegionId.WIDE, TABLE, table_words(BINADES, 8, 8))
    register, results = Span(RegionId.TENSORS, 2, 1), Span(RegionId.WIDE, TARGET, 4)

    def problems(*loaded):
        return [problem.message for problem in verify(words, LOSS_SMALL, inputs=loaded, outputs=[results])]

    assert not problems(codes, table, register)
    assert problems(codes, register) == ["reads wide 100, 101, 102, 103, ... (48 in all) before it is written"]
    assert problems(table, register) == ["reads narrow 5, 6 before it is written"]
    assert problems(codes, table) == ["reads tensors 2 before it is written"]
    factors = verify(assemble(PRODUCT), LOSS_SMALL, inputs=[Span(RegionId.WIDE, 10, 2), register])
    assert "reads wide 20, 21 before it is written" in [problem.message for problem in factors]


@pytest.mark.parametrize(
    "program, trap, pc",
    [
        (LOOKUP, Trap.BAD_OPCODE, 0),
        (LOOKUP.replace("t_look 2", "fence"), Trap.BAD_FIELD, 3),
        (PRODUCT, Trap.BAD_OPCODE, 4),
        (PRODUCT.replace("mul=1", "binades=1"), Trap.BAD_OPCODE, 4),
    ],
)
def test_other_configurations_refuse_them(program, trap, pc):
    for machine in MACHINES:
        run = machine(contents(program, TRAIN_SMALL)).run()
        assert (run.trap, run.pc) == (trap, pc)

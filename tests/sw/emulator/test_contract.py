"""The sentences of the pages that decide the corners, each on the reference machine and on the emulator.

The same programs run on the RTL in ``tests/rtl/test_contract_rtl.py``. Contents of memories are in
``test_contents.py``, groups of rows in ``test_engines.py``, a start behind the end in ``test_host_backends.py``.
"""

import numpy as np
import pytest

from concord.emulator import Emulator, ReferenceMachine
from concord.golden import blocks
from concord.program import trace, verify
from concord.program.assembler import assemble
from concord.spec import isa
from concord.spec.formats import NOISE_SEED, NOISE_SHIFTS
from concord.spec.isa import Op, Trap
from concord.spec.presets import TINY, UP5K
from support.contract_programs import NOISE, RESULTS, SECOND, STATE, TRAPS, contract_memories, patterns

pytestmark = pytest.mark.usefixtures("both_kernels")

MACHINES = [ReferenceMachine, Emulator]


@pytest.fixture(params=MACHINES)
def machine(request):
    return request.param


@pytest.mark.parametrize("config", [TINY, UP5K], ids=lambda config: config.name)
@pytest.mark.parametrize("name", RESULTS)
def test_what_programs_leave(machine, config, name):
    text, want = RESULTS[name]
    memories = contract_memories(config, text)
    assert machine(memories).run().trap is Trap.NONE
    assert memories.wide[8 : 8 + len(want)].tolist() == want


@pytest.mark.parametrize("name", TRAPS)
def test_how_programs_trap(name):
    words, trap, pc = TRAPS[name]
    run = trace(words, TINY)
    assert (run.trap, run.pc, run.chains) == (trap, pc, ())


def test_the_exponent_of_set_quant_is_checked_in_both_modes():
    for exp, want in ((-15, Trap.NONE), (-16, Trap.BAD_FIELD), (9, Trap.NONE), (10, Trap.BAD_FIELD)):
        for mode in (0, 1):
            words = [isa.encode(Op.SET_QUANT, mode=mode, exp=exp), isa.encode(Op.HALT)]
            assert trace(words, TINY).trap is want


def test_every_start_begins_with_the_initial_state(machine):
    memories = contract_memories(TINY, STATE)
    device = machine(memories)
    device.run()
    device.run(SECOND)
    assert memories.wide[8].tolist() == patterns(1, 2, 3, 4) and not memories.wide[9:].any()
    assert memories.narrow_exp[8] == -4 and not memories.narrow_mant[9:].any()


def test_every_start_begins_with_the_same_noise(machine):
    memories = contract_memories(TINY, NOISE.format(8, 9) + NOISE.format(10, 11))
    device = machine(memories)
    device.run()
    device.run(6)
    first, second, again, other = memories.narrow_mant[8:12].tolist()
    assert first == again and second == other and first != second


def test_noise_starts_at_multiples_of_the_seed_modulo_two_to_32():
    states = [NOISE_SEED * (lane + 1) % 2**32 for lane in range(64)]
    a, b, c = NOISE_SHIFTS
    want = []
    for state in states:
        state ^= state << a & 2**32 - 1
        state ^= state >> b
        state ^= state << c & 2**32 - 1
        want.append(state & 0xFFFF)
    assert blocks.Noise(64).state.tolist() == states
    assert blocks.Noise(64).take(1).ravel().tolist() == want


# What is not defined is refused --------------------------------------------------------------------

BEYOND = {
    "v_rd narrow, 64\nv_wr wide, 8\nhalt": ("source reads narrow 64", "addresses of narrow must be below 64"),
    "v_rd wide, 16383\nv_wr wide, 8\nhalt": ("source reads wide 16383", "addresses of wide must be below 64"),
    "v_rd wide, 0\nvv_add 64\nv_wr wide, 8\nhalt": ("vv_add reads wide 64", "addresses of wide must be below 64"),
    "v_rd wide, 0\nv_wr narrow, 64\nhalt": ("writes narrow 64", "addresses of narrow must be below 64"),
    "v_rd narrow, 0\nmv_mul 256\nv_wr wide, 8\nhalt": ("reads matrix 256", "matrix addresses must be below 256"),
}


@pytest.mark.parametrize("text", BEYOND)
def test_addresses_beyond_a_memory_are_refused(text):
    found, error = BEYOND[text]
    assert any(found in str(problem) and "beyond" in str(problem) for problem in verify(assemble(text), TINY))
    for machine in MACHINES:
        with pytest.raises(ValueError, match=error):
            machine(contract_memories(TINY, text)).run()


@pytest.mark.parametrize(
    ("state", "mode", "terms"),
    [
        ("set_shape cols=8\nset_window kh=3 kw=3", "dense", 72),
        ("set_window kh=9 kw=8", "depthwise", 72),
        ("set_shape cols=8\nset_window kh=4 kw=2", "dense", 0),
        ("set_shape cols=9\nset_window kh=8 kw=8", "depthwise", 0),
    ],
)
def test_no_more_products_than_max_terms(state, mode, terms):
    text = f"{state}\nv_rd narrow, 0\nmv_mul 0, mode={mode}\nv_wr wide, 8\nhalt"
    found = [str(problem) for problem in verify(assemble(text), TINY) if "max_terms" in str(problem)]
    assert found == ([found[0]] if terms else []) and all(f"adds up {terms} native products" in text for text in found)


def test_maxima_without_a_tap_are_refused_by_the_verifier_all_the_same():
    text, _ = RESULTS["a maximum without a tap inside is -inf, a product +0"]
    found = [str(problem) for problem in verify(assemble(text), TINY) if "outside the image" in str(problem)]
    assert len(found) == 2


def test_the_programs_are_sound_but_for_what_they_show():
    """No accident is part of them: nothing traps, no address lies beyond a memory."""
    for text, _ in RESULTS.values():
        problems = [str(problem) for problem in verify(assemble(text), TINY)]
        assert not [problem for problem in problems if "beyond" in problem or "traps" in problem]
    assert np.array_equal(contract_memories(TINY, "halt").narrow_mant[0], [1, 2, 3, 4])

"""The counters of the compiled RTL against the model of cycles: random programs, and networks."""

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from concord.compiler.model import compile_graph
from concord.cycles import count, counts_of
from concord.examples import softmax
from concord.examples.recurrent import gru, lstm
from concord.host import TrapError, connect
from concord.program import trace
from concord.spec import timing
from concord.spec.isa import Op, encode
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY, UP5K
from support.back_door import connected
from support.compiled_nets import gru as gru_net
from support.compiled_nets import perceptron, recurrent, residual
from support.device_runs import COUNTED
from support.program_gen import random_program
from support.row_tiled_nets import separable
from support.rtl_configs import EIGHT, FED, FOUR_ENGINES

pytestmark = pytest.mark.slow

CONFIGS = {config.name: config for config in (TINY, FOUR_ENGINES, EIGHT, UP5K)}
SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module", params=CONFIGS.values(), ids=CONFIGS)
def device(request):
    with connected(request.param) as device:
        yield device


def run(device, words):
    """What the device counts, and what the model does."""
    device.write(RegionId.PROGRAM, 0, [*words, *[0] * (device.config.program_depth - len(words))])
    device.start(0)
    try:
        device.wait(timeout=60)
    except TrapError:
        assert trace(words, device.config).trap
    counters = device.counters()
    model = count(words, device.config)
    return {name: counters[name] for name in COUNTED}, {name: getattr(model, name.lower()) for name in COUNTED}


def test_random_programs(device):
    """Hypothesis makes the program of a counterexample small."""

    @SETTINGS
    @given(st.randoms(use_true_random=False), st.integers(1, 10))
    def check(rng, size):
        words, _ = random_program(device.config, rng, size)
        counted, expected = run(device, words)
        assert counted == expected

    check()


def test_programs_that_trap(device):
    """Illegal words at any place, those that would wait for all chains among them, and a program without an end."""
    rng = random.Random(3)
    reserved = 1 << 63
    for number in range(20):
        words, _ = random_program(device.config, random.Random(number), 3)
        at = rng.randrange(len(words))
        words[at] = rng.choice([0, encode(Op.END_LOOP), encode(Op.HALT) | reserved, encode(Op.FENCE) | reserved])
        try:
            found = trace(words, device.config, limit=2000)
        except ValueError:
            continue
        assert found.trap
        counted, expected = run(device, words)
        assert counted == expected
    for first in (Op.NOP, Op.HALT):
        words = [encode(first), *[encode(Op.NOP)] * (device.config.program_depth - 1)]
        device.write(RegionId.PROGRAM, 0, words)
        device.start(1)
        with pytest.raises(TrapError):
            device.wait()
        assert device.counters()["CYCLES"] == count(words, device.config, 1).cycles


#: Latencies and depths that cycles of random programs depend on.
LATENCIES = (
    "BUFFERED_QUEUE QUEUE REGISTER_SLICE LOOP_JUMP ALIGN MULTIPLIER RESULT_QUEUE MFU MFU_EARLY VECTOR_READ MATRIX_DELAY"
    " ACC_TO_BINARY16 CONVERT JOBS TAPS source_places result_places max_tree"
).split()


@pytest.mark.parametrize("name", LATENCIES)
def test_every_latency_counts(name, monkeypatch):
    """A model with one wrong number differs from the RTL in some program."""
    with connected(TINY) as device:
        programs = [random_program(TINY, random.Random(seed), 8)[0] for seed in range(60)]
        value = getattr(timing, name)
        for words in programs:
            counted, expected = run(device, words)
            assert counted == expected
            with monkeypatch.context() as patch:
                wrong = value - 1 if isinstance(value, int) else lambda config: value(config) - 1
                patch.setattr(timing, name, wrong)
                if count(words, TINY).cycles != counted["CYCLES"]:
                    return
    pytest.fail(f"nothing depends on {name}")


NETWORKS = {
    "residual": residual,
    "gru": gru_net,
    "perceptron": lambda: perceptron(32, 16, 16, 4),
    "lstm": lambda: recurrent("LSTM", 5, 3, 6),
    "row tiles": lambda: separable(24),
}


@pytest.mark.parametrize("config", [TINY, UP5K, FED], ids=lambda config: config.name)
def test_networks(config):
    """Every phase of compiled networks, one of them fed by the host byte for byte."""
    with connect("rtl", config) as device:
        for make in NETWORKS.values():
            image = compile_graph(make(), config).image
            device.load(image)
            device.run({port.name: np.ones((1, *port.shape)) for port in image.inputs})
            phases = [counts_of(trace(image.program, config, phase.pc), config) for phase in image.schedule()]
            counters = device.counters()
            for name in ("CYCLES", "DENSE_STEPS", "DEPTHWISE_STEPS", "VECTORS", "HAZARD_STALLS"):
                assert counters[name] == sum(getattr(phase, name.lower()) for phase in phases), name


@pytest.mark.parametrize("config", [TINY, FOUR_ENGINES, EIGHT, FED], ids=lambda config: config.name)
def test_cells_whose_weights_do_not_matter(config):
    """The programs that give cycles of cells which are larger than every device."""
    with connect("rtl", config) as device:
        for words in (
            cell(config, hidden=h, inputs=h, steps=4, seed=None).words() for cell, h in ((gru, 9), (lstm, 5))
        ):
            counted, expected = run(device, words)
            assert counted == expected


def test_an_example_program():
    with connect("rtl", TINY) as device:
        image = softmax(TINY).image()
        device.load(image)
        device.run({port.name: np.ones((1, *port.shape)) for port in image.inputs})
        assert device.counters()["CYCLES"] == count(image.program, TINY).cycles

"""Registers of few bits in derived software: sums that end are those of the emulator, and so are flags."""

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.derive import evaluate
from concord.derive.model import derive_image, derive_package
from concord.host import connect
from concord.overflow import analyse_machine
from concord.spec.presets import TINY, with_accumulator
from support.compiled_nets import perceptron, residual
from support.derived_backends import emulated_flags, with_c
from support.derived_modules import emulated, image_of_memories, program_rng, random_inputs, same
from support.expressions import ROOMY
from support.program_gen import random_program

CONFIGS = {
    "20 bits": TINY.replace(acc_width=20, acc_register=20),
    "30 bits, 24 kept": TINY.replace(acc_width=24, acc_register=30, engines=2, lanes=4),
    "44 bits": TINY.replace(act_mant=12, wgt_mant=12, wgt_exp_max=4, acc_width=44, acc_register=44),
}


@pytest.mark.slow
@with_c
@pytest.mark.parametrize("config", CONFIGS)
def test_random_programs(config, backend, tmp_path):
    words, memories = random_program(CONFIGS[config], program_rng(f"register {config}"), 8)
    image = image_of_memories(words, memories)
    model = derive_image(image)
    inputs = random_inputs(image, 2, 1)
    found, _ = backend(model, tmp_path, inputs)
    want = emulated(image, inputs)
    same(found, want)
    same(evaluate.run(model, inputs), want)


@pytest.mark.slow
@with_c
@pytest.mark.parametrize("net", [perceptron, residual])
def test_networks_whose_sums_end(net, backend, tmp_path):
    """Three bits less than the samples need: results are those of the emulator, not those of a wide register."""
    graph = net(9, 6, 3) if net is perceptron else net()
    rng = np.random.default_rng(2)
    inputs = {name: rng.normal(0, 1, (5, *graph.sample_shape(name))) for name in graph.inputs}
    wide = compile_graph(graph, ROOMY)
    bits = analyse_machine(wide.package, inputs).needed("intermediate") - 3
    weights = (ROOMY.wgt_exp_min, ROOMY.wgt_exp_max)
    compiled = compile_graph(graph, with_accumulator(ROOMY, bits, weights=weights))
    found, flags = backend(derive_package(compiled.package, flags=True), tmp_path, inputs)
    results = []
    for one in (compiled, wide):
        with connect("emulator", one.image.config) as device:
            device.load(one.image)
            results.append(one.run(device, inputs))
    same(found, results[0])
    assert any(not np.array_equal(results[0][name], results[1][name]) for name in found)
    assert flags == emulated_flags(compiled.image, compiled.package.arrangement.pack(inputs))
    assert any("ACC_OVERFLOW" in names for names in flags.values())

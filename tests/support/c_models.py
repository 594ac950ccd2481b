"""Models in C as programs, compared with the golden model and the emulator."""

import numpy as np

from concord.derive import evaluate
from concord.derive.c.program import CProgram
from concord.derive.c.source import write_c
from concord.derive.flags import by_layer
from concord.derive.model import derive_package
from support.c_compilers import words
from support.derived_backends import emulated_flags, on_c
from support.derived_modules import emulated, same


def program(model, folder, command=None, options=("-O1",)):
    write_c(model, folder / "net.c")
    return CProgram(folder / "net.c", model, words(command), options)


def compare(model, inputs, folder, command=None, options=("-O1",)):
    """Bits and flags of the golden model."""
    words = {}
    with np.errstate(all="ignore"):
        want = evaluate.run(model, inputs, words)
    outputs, raised = program(model, folder, command, options).run(inputs)
    same(outputs, want)
    assert by_layer(raised) == by_layer(words)


def finite(inputs):
    return {name: np.nan_to_num(x, posinf=65504.0, neginf=-65504.0) for name, x in inputs.items()}


def compare_package(package, folder, count=3):
    """Beside the emulator."""
    model = derive_package(package, flags=True).npu_part
    rng = np.random.default_rng(8)
    inputs = {name: rng.normal(size=(count, *shape)) for name, shape in model.sources.items()}
    ports = package.arrangement.pack(inputs)
    want = package.arrangement.unpack(emulated(package.image, ports), count)
    outputs, flags = on_c(model, folder, inputs)
    same(outputs, {name: want[name] for name in outputs})
    assert flags == emulated_flags(package.image, ports)

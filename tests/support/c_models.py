"""Models in C as programs, compared with the golden model and the emulator."""

import numpy as np

from concord.derive import evaluate
from concord.derive.c.program import CProgram
from concord.derive.c.source import write_c
from concord.derive.flags import by_layer
from concord.derive.model import derive_package
from support.c_compilers import words
from support.derived_backends import emulated_flags
from support.derived_modules import emulated, random_inputs, same


def program(model, folder, command=None, options=("-O0",)):
    write_c(model, folder / "net.c")
    return CProgram(folder / "net.c", model, words(command), options)


def compare(model, inputs, folder, command=None, options=("-O0",)):
    """Bits and flags of the golden model."""
    compare_program(program(model, folder, command, options), inputs)


def compare_program(made, inputs):
    """The same of a program."""
    words = {}
    with np.errstate(all="ignore"):
        want = evaluate.run(made.model, inputs, words)
    outputs, raised = made.run(inputs)
    same(outputs, want)
    assert by_layer(raised) == by_layer(words)


def finite(inputs):
    return {name: np.nan_to_num(x, posinf=65504.0, neginf=-65504.0) for name, x in inputs.items()}


def model_of(package):
    """With flags, and without what the host computes."""
    return derive_package(package, flags=True).npu_part


def compare_package(package, made, count=3):
    """A program of a compiled network beside the emulator."""
    rng = np.random.default_rng(8)
    inputs = {name: rng.normal(size=(count, *shape)) for name, shape in made.model.sources.items()}
    ports = package.arrangement.pack(inputs)
    want = package.arrangement.unpack(emulated(package.image, ports), count)
    outputs, flags = made.run_with_flags(inputs)
    same(outputs, {name: want[name] for name in outputs})
    assert flags == emulated_flags(package.image, ports)


def compare_image(image, made, seed):
    """A program of an image beside the emulator."""
    inputs = random_inputs(image, 3, seed)
    outputs, flags = made.run_with_flags(inputs)
    same(outputs, emulated(image, inputs))
    assert flags == emulated_flags(image, inputs)

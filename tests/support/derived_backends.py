"""Derived models on every backend: outputs, and sticky flags of models that have them."""

import json

import numpy as np
import onnxruntime
import pytest

from concord.derive.backends.onnx_file import write_onnx
from concord.derive.backends.python_file import write_numpy, write_torch
from concord.derive.c.program import CProgram, compiler
from concord.derive.c.source import write_c
from concord.derive.flags import by_layer
from concord.derive.model import derive_package
from concord.host import connect
from concord.program.flags import diagnose_flags
from concord.spec.presets import TINY
from support.derived_modules import load_derived, same
from support.frameworks import needs

#: Several tile engines, too; and wide mantissas, for which float64 is too short.
CONFIGS = {
    "tiny": TINY,
    "two engines": TINY.replace(engines=2),
    "wide": TINY.replace(act_mant=12, wgt_mant=12, wgt_exp_max=4, acc_width=68),
}
needs_c = pytest.mark.skipif(compiler() is None, reason="needs a C compiler")
needs_torch = needs("torch")


def on_numpy(model, folder, inputs):
    """Outputs of the NumPy file, and by layer and flag the samples that raised it."""
    return _of_python(load_derived(model, folder, write_numpy), model, inputs)


def on_torch(model, folder, inputs):
    """The same of the PyTorch module."""
    return _of_python(load_derived(model, folder, write_torch), model, inputs)


def _of_python(module, model, inputs):
    return (module.run(inputs), {}) if model.flags is None else module.run(inputs, flags=True)


def on_onnxruntime(model, folder, inputs):
    """The same of the ONNX graph."""
    write_onnx(model, folder / "model.onnx")
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    given = {name: np.asarray(values, np.float64) for name, values in inputs.items()}
    found = dict(zip([output.name for output in session.get_outputs()], session.run(None, given), strict=True))
    if model.flags is None or not model.flags.places:
        return found, {}
    facts = json.loads(session.get_modelmeta().custom_metadata_map["flags"])
    words = found.pop(facts["output"])
    assert words.dtype == np.uint8 and words.shape == (len(next(iter(given.values()))), len(facts["layers"]))
    return found, by_layer(dict(zip(facts["layers"], words.T, strict=True)))


def on_c(model, folder, inputs):
    """The same of the C text, without what the host computes."""
    write_c(model.npu_part, folder / "model.c")
    return CProgram(folder / "model.c", model.npu_part, [compiler()], ["-O0"]).run_with_flags(inputs)


def networks(package, backend, folder, samples):
    """Compare a compiled network with the emulator: outputs of the NPU, and what the host computes from them."""
    rng = np.random.default_rng(5)
    arrangement = package.arrangement
    x = {name: rng.normal(size=(samples, *arrangement.shapes[name])) for name in arrangement.inputs}
    with connect("emulator", package.config) as device:
        device.load(package.image)
        want = arrangement.unpack(device.run(arrangement.pack(x)), samples)
    found, _ = backend(derive_package(package), folder, x)
    want |= package.host_outputs(x, want)
    same({name: found[name] for name in want if name in found}, {name: want[name] for name in want if name in found})
    assert set(package.host_graph.outputs if package.host_graph is not None else want) <= set(found)


def emulated_flags(image, inputs, group=1):
    """By layer and flag the samples that raise it on the emulator, each run by itself."""
    found = {}
    with connect("emulator", image.config) as device:
        for k in range(len(next(iter(inputs.values())))):
            device.load(image)  # clears the flags, and what the sample before has left
            with np.errstate(all="ignore"):
                device.run({name: values[k : k + 1] for name, values in inputs.items()})
            for one in diagnose_flags(image, device.flags()):
                mine = found.setdefault(one.where, {}).setdefault(one.flag, set())  # several chains of one layer
                mine |= set(range(group * k, group * (k + 1)))
    return {where: {flag: sorted(mine) for flag, mine in names.items()} for where, names in found.items()}


_TORCH, _C = pytest.param(on_torch, marks=needs_torch), pytest.param(on_c, marks=needs_c)
compiled = pytest.mark.parametrize("backend", [on_onnxruntime, _TORCH, _C])
#: Those that have what the host computes; and all of them.
every = pytest.mark.parametrize("backend", [on_numpy, on_onnxruntime, _TORCH])
with_c = pytest.mark.parametrize("backend", [on_numpy, on_onnxruntime, _TORCH, _C])

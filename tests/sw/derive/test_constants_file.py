"""A derived file of Python and its constants belong together: neither runs with those of another model."""

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.derive.backends.registry import BACKENDS
from concord.derive.model import derive_package
from concord.derive.modules import module_of
from support.compiled_nets import perceptron
from support.derived_backends import needs_torch
from support.expressions import ROOMY

PYTHON = [name for name, backend in BACKENDS.items() if backend.suffix == ".py"]
python = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs_torch if name == "torch" else ()) for name in PYTHON]
)


def derived(name, folder, seed):
    """The file of a network with weights of this seed."""
    folder.mkdir()
    model = derive_package(compile_graph(perceptron(6, 9, 3, seed=seed), ROOMY).package)
    BACKENDS[name].write(model, folder / "model.py")
    return folder / "model.py"


@python
@pytest.mark.parametrize("swapped", ["model.py", "model.npz"])
def test_files_of_two_networks(swapped, name, tmp_path):
    """As after a stop between the writing of both, or if one of them is copied."""
    first, second = derived(name, tmp_path / "a", 1), derived(name, tmp_path / "b", 2)
    x = {"x": np.ones((1, 6))}
    assert not np.array_equal(*(module_of(file).run(x)["fc1.out"] for file in (first, second)))
    (first.parent / swapped).write_bytes((second.parent / swapped).read_bytes())
    with pytest.raises(ValueError, match=r"model\.npz must be the file that was written together with this one"):
        module_of(first).run(x)


@python
def test_a_changed_bit(name, tmp_path):
    file = derived(name, tmp_path / "a", 1)
    data = bytearray(file.with_suffix(".npz").read_bytes())
    data[len(data) // 2] ^= 1
    file.with_suffix(".npz").write_bytes(data)
    with pytest.raises(ValueError, match="derive both again"):
        module_of(file).run({"x": np.ones((1, 6))})

"""Files of TensorFlow's converter, which are no part of the project: they compile, and have the codes of kernels."""

import os
from pathlib import Path

import numpy as np
import pytest

import concord
from support.frameworks import missing, needs

if missing("tflite"):
    pytest.skip(missing("tflite"), allow_module_level=True)

from concord.frontend.tflite_rewrites import read_network
from support.tflite_models import compared_codes

#: ``NAME.tflite``, and ``NAME.npz`` with inputs ``x``, outputs ``y`` and other inputs ``cal``, all as floats.
FILES = sorted(Path(os.environ.get("CONCORD_TFLITE", "no such folder")).glob("*.tflite"))
pytestmark = [
    needs("tflite"),
    pytest.mark.slow,
    pytest.mark.skipif(
        not FILES,
        reason="needs files of TensorFlow's converter, which are not part of the project: "
        "the environment variable CONCORD_TFLITE must name their folder",
    ),
]
#: Greatest difference of a result that the formats of the NPU make, of the greatest result.
TOLERANCE = 0.1
QUANTISED = [path for path in FILES if "float" not in path.stem]


def samples(path, count):
    arrays = np.load(path.with_suffix(".npz"))
    return arrays["x"][:count], arrays["y"][:count]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_compiles_in_block_floating_point(path):
    """With samples, as codes that suit synthetic inputs badly are computed, each by an instruction."""
    x, want = samples(path, 8)
    network = concord.compile(path, preset="ecp5-85f", calibrate=np.load(path.with_suffix(".npz"))["cal"])
    got = network(x)
    print(f"{path.stem}: {np.abs(got - want).max() / np.abs(want).max():.2%} of the greatest result")
    assert got.shape == want.shape and np.abs(got - want).max() < TOLERANCE * np.abs(want).max()


@pytest.mark.parametrize("path", QUANTISED, ids=lambda path: path.stem)
def test_codes_are_those_of_the_reference_kernels(path):
    x, _ = samples(path, 8)
    tensor = (model := read_network(path.read_bytes())).tensors[model.inputs[0]]
    if tensor.coded:
        ends = np.iinfo(tensor.kind.lower())
        codes = np.rint(x / tensor.scales[0]) + tensor.zeros[0]
        x = np.clip(codes, ends.min, ends.max).astype(tensor.kind.lower())
    count, different = compared_codes(path.read_bytes(), x)
    print(f"{path.stem}: {count} codes compared, {different} different")
    assert count > 100 and different == 0

"""Networks of TensorFlow Lite in files for NumPy, PyTorch and ONNX Runtime: fixed point in operations on arrays."""

import numpy as np
import pytest

from concord.frontend.codes import load
from support.exact_files import LIBRARIES, different
from support.frameworks import missing, needs
from support.integer_nets import stored
from support.trained import DATA, needs_data

if missing("tflite"):
    pytest.skip(missing("tflite"), allow_module_level=True)

from support.tflite_draws import every_operation, lowered_operators

pytestmark = needs("tflite")


@pytest.fixture(params=LIBRARIES)
def library(request):
    return request.param


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
@pytest.mark.parametrize("seed", range(3))
def test_every_operation(seed, dtype, library, tmp_path):
    data, codes = every_operation(seed, dtype)
    network = load(data, rounding="tflite-single" if seed == 2 else "tflite")
    (name,) = network.graph.inputs
    assert different(network, library, tmp_path, {name: codes}) == 0
    less, mean, flat, dense, *_ = network.run({name: codes}).values()
    assert min(len(np.unique(values)) for values in (less, mean, flat, dense)) > 8  # not all of them are saturated


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_operators_that_become_several(dtype, library, tmp_path):
    data, codes = lowered_operators(1, dtype)
    network = stored(load(data), tmp_path / "net")
    (name,) = network.graph.inputs
    assert different(network, library, tmp_path, {name: codes}) == 0


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize("name, file", [("ic_resnet8", "ic_cifar10"), ("kws_dscnn", "kws_mfcc_int8"),
                                        ("vww_mobilenetv1_025", "vww_coco")])  # fmt: skip
def test_official_files(name, file, library, tmp_path):
    network = load(DATA / "models" / "tflite_int8" / f"{name}_int8.tflite")
    (tensor,) = network.graph.inputs
    shape = network.graph.shapes[tensor][1:]
    codes = np.random.default_rng(0).integers(-128, 128, (2, *shape)).astype(np.int8)
    assert different(network, library, tmp_path, {tensor: codes}) == 0

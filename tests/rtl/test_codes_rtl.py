"""Networks on codes on the compiled RTL: every code is that of the definition."""

import dataclasses

import numpy as np
import pytest
from onnxruntime.quantization import QuantFormat, QuantType

from concord.compiler.codes.package import compile_codes
from concord.compiler.memory.row_tiling import layer_spans
from concord.frontend.codes import load
from concord.host import connect
from support.code_networks import residual_network
from support.integer_nets import SHAPE, quantised, small_network
from support.row_tiled_nets import image_in_row_tiles
from support.rtl_configs import FED_AHEAD

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def device():
    with connect("rtl", FED_AHEAD) as device:
        yield device


@pytest.mark.parametrize("kind", [QuantType.QInt8, QuantType.QUInt8], ids=lambda kind: kind.name)
def test_every_code_is_that_of_the_definition(kind, device, tmp_path):
    rng = np.random.default_rng(3)
    samples = rng.normal(size=(3, *SHAPE)).astype(np.float32)
    options = {"quant_format": QuantFormat.QDQ, "activation_type": kind, "weight_type": QuantType.QInt8}
    network = load(quantised(tmp_path, small_network(), samples, **options))
    codes = compile_codes(network, FED_AHEAD)
    scheme = network.graph.schemes[network.graph.inputs["x"]]
    ends = rng.choice([scheme.low, scheme.zero, scheme.high], (3, *SHAPE))
    device.load(codes.image)
    for x in (samples, ends, samples[:1]):
        found = codes.run(device, {"x": x})
        assert np.array_equal(found["y"], codes.package.expected({"x": x})["y"])
        assert not device.flags()


def test_a_sum_in_row_tiles(device):
    proto, inputs = residual_network(8)
    codes = compile_codes(load(proto, pairs=False), FED_AHEAD)
    lowered, formats = codes.lowered, codes.package.formats
    prefix = [part for part in layer_spans(lowered) if part.layers[-1].second is not None][-1]
    wanted = codes.package.expected(inputs)
    for rows in (1, 4):
        image, _ = image_in_row_tiles(lowered, prefix, rows, FED_AHEAD, formats)
        device.load(image)
        found = dataclasses.replace(codes.package, image=image).run(device, inputs)
        assert all(np.array_equal(found[name], wanted[name]) for name in wanted) and not device.flags()

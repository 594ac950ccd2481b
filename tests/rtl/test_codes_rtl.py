"""Networks on codes on the compiled RTL: every code is that of the definition."""

import numpy as np
import pytest
from onnxruntime.quantization import QuantFormat, QuantType

from concord import integer
from concord.host import connect
from concord.integer.npu import compile_codes
from support.integer_nets import SHAPE, quantised, small_network
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
    network = integer.load(quantised(tmp_path, small_network(), samples, **options))
    codes = compile_codes(network, FED_AHEAD)
    scheme = network.graph.schemes[network.graph.inputs["x"]]
    ends = rng.choice([scheme.low, scheme.zero, scheme.high], (3, *SHAPE))
    device.load(codes.image)
    for x in (samples, ends, samples[:1]):
        found = codes.run(device, {"x": x})
        assert np.array_equal(found["y"], codes.expected({"x": x})["y"])
        assert not device.flags()

"""The official int8 TensorFlow Lite files of MLPerf Tiny: codes of the reference kernels, and of the default ones.

The default interpreter has the kernels of XNNPACK for products, which round them in binary32.
"""

import numpy as np
import pytest

from concord.frontend.codes import load
from support.frameworks import missing, needs
from support.trained import DATA, needs_data

if missing("tflite"):
    pytest.skip(missing("tflite"), allow_module_level=True)

from support.tflite_models import compared_codes

pytestmark = [needs("tflite"), needs_data, pytest.mark.slow]

#: Data, samples whose tensors are compared, samples whose outputs are, and codes of these that are others by default.
NETWORKS = {
    "ad_fc_autoencoder": ("ad_toycar", 196, 0, 0),
    "ic_resnet8": ("ic_cifar10", 12, 100, 154),
    "kws_dscnn": ("kws_mfcc_int8", 40, 500, 480),
    "sww_dscnn1d": ("sww_logmel", 180, 180, 12),
    "vww_mobilenetv1_025": ("vww_coco", 8, 120, 124),
}
WITH_OUTPUTS = [name for name, (_, _, count, _) in NETWORKS.items() if count]
#: Largest part of the samples that is run at once.
PART = 20


def contents(name):
    return (DATA / "models" / "tflite_int8" / f"{name}_int8.tflite").read_bytes()


def samples(name, count):
    """Codes as the file reads them, and the recorded outputs if there are some."""
    data = np.load(DATA / "data" / f"{NETWORKS[name][0]}.npz")
    x = data["x"]
    if name == "ad_fc_autoencoder":  # all windows of five frames of the first recording
        x = np.stack([x[0, k : k + 5].ravel() for k in range(196)])
    elif name == "sww_dscnn1d":  # bands of frames
        x = x[:, None, :, :, 0].transpose(0, 3, 1, 2)
    else:
        x = x.transpose(0, 2, 3, 1)
    if x.dtype == np.uint8:
        x = (x.astype(np.int16) - 128).astype(np.int8)
    if x.dtype == np.float32:
        network = load(contents(name))
        (scheme,) = (network.scheme(key) for key in network.graph.inputs)
        x = scheme.codes_of(np.float32(x)).astype(np.int8)
    recorded = data["ref_int8_tflite"][:count] if "ref_int8_tflite" in data else None
    return x[:count], recorded


def outputs(network, x):
    (name,) = network.graph.inputs
    parts = [network.run({name: x[k : k + PART]}) for k in range(0, len(x), PART)]
    return np.concatenate([codes for part in parts for codes in part.values()])


@pytest.mark.parametrize("name", NETWORKS)
def test_all_codes_are_those_of_the_reference_kernels(name):
    x, _ = samples(name, NETWORKS[name][1])
    data = contents(name)
    count, different = compared_codes(data, x)
    sharing = load(data).tables.report()
    print(f"{name}: {count} codes compared, {different} different; {sharing.sites} sites, {sharing.tables} tables")
    assert count > 50000 and different == 0


@pytest.mark.parametrize("name", WITH_OUTPUTS)
def test_outputs_of_the_default_kernels(name):
    """What they have recorded differs by products that are rounded in binary32, and by nothing else."""
    x, recorded = samples(name, NETWORKS[name][2])
    own, explained = (outputs(load(contents(name), rounding=rounding), x) for rounding in ("tflite", "tflite-single"))
    different, unexplained = int(np.sum(own != recorded)), int(np.sum(explained != recorded))
    print(
        f"{name}: {own.size} outputs, {different} unlike the default kernels, {unexplained} with products of binary32"
    )
    assert own.shape == recorded.shape and (different, unexplained) == (NETWORKS[name][3], 0)

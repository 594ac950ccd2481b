"""Trainings for an accumulator of few bits: bounds of their weights, and their bits on the NPU."""

import numpy as np

from concord.frontend import import_model
from concord.host import connect
from concord.overflow.required import CountedWidths
from concord.overflow.trained import compile_trained
from concord.sums.reach import radius
from concord.train import export_onnx
from concord.train.bound import row_norms
from concord.train.layers.base import PassContext


def within_bound(trainer):
    """For ``fit``, after every step: assert that no sum of any input can leave the accumulator; training goes on."""
    for scale in trainer.monitor.scales:
        limit = radius(trainer.monitor.bits, trainer.monitor._limits(scale)[1])
        assert all(row_norms(site.weight, site.positive).max() <= limit for site in scale.sites)
        assert len({int(site.weight.exp[0]) for site in scale.sites}) == 1, "sites of a scale share an exponent"
    return False


def same_bits_on_the_npu(got, before):
    """Compile what was trained, and compare its results; returns the evidence, and the configuration that it has."""
    network = export_onnx(got.trained())
    graph, evidence = import_model(network), got.evidence(network)
    inputs = {graph.inputs[0]: got.samples.inputs(slice(None))}
    found = compile_trained(graph, before, evidence, CountedWidths(inputs))
    config = found.compiled.image.config
    assert config.acc_register == evidence.register == config.acc_width
    with connect("emulator", config) as device:
        device.load(found.compiled.image)
        (results,) = found.compiled.run(device, inputs).values()
        assert "ACC_OVERFLOW" not in {record.flag for record in found.compiled.package.flags(device.flags())}
    outputs, _ = got._forward(got.samples, slice(None), PassContext(got.settings.formats, training=False))
    (output,) = outputs.values()
    assert np.array_equal(results.ravel(), output.values.ravel())
    bits = got.monitor.bits
    assert got.settings.overflow.method != "bound" or all(layer.bound <= bits for layer in evidence.layers)
    return evidence, config

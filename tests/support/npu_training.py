"""Training on the NPU beside training on the host: networks, data, and a comparison after every step."""

from dataclasses import replace
from fractions import Fraction

import numpy as np

from concord.graph.ir import Graph
from concord.graph.ops import operator_of
from concord.host.emulated import EmulatedDevice
from concord.program import Span
from concord.program.access import REGIONS
from concord.spec.memmap import RegionId
from concord.spec.training import AccumulatorFormat, TrainingFormats
from concord.train import Samples, Settings, Trainer, described
from concord.train.npu import NpuTrainer, training_config
from concord_bench.npu_training import NETWORKS
from support.train_digits import digits

#: Three products; images: convolution, pooling, convolution, pooling, classes; and depthwise convolutions.
MLP, CNN, SEPARABLE = (list(NETWORKS[name]) for name in ("dense", "convolutions", "separable"))
SHAPE = (1, 8, 8)
#: Memories for images.
LARGE = training_config().replace(narrow_depth=16384, wide_depth=16384, matrix_depth=8192, program_depth=4096)


def network_of(nodes, shape):
    """The graph of nodes, one behind the other, that reads samples of a shape."""
    graph, last = Graph("windows", [], ["x"], [], {"x": shape}, {"x"}), nodes[-1].name
    for node in nodes:
        (graph.shapes[node.name],) = operator_of(node).shape(node, [graph.shapes[name] for name in node.inputs])
        graph.nodes.append(node)
    graph.outputs, graph.batched = [last], {"x", last}
    graph.check()
    return graph


class LoggedDevice(EmulatedDevice):
    """Notes what travels."""

    def __init__(self, config):
        super().__init__(config)
        self.log = []

    def read(self, region, addr, count=1):
        self.log.append(("read", RegionId(region).name, addr, count))
        return super().read(region, addr, count)

    def write(self, region, addr, words):
        self.log.append(("write", RegionId(region).name, addr, len(words)))
        super().write(region, addr, words)

    def start(self, pc=0, *, adds=False):
        self.log.append(("start", pc))
        super().start(pc, adds=adds)


def some_digits(count):
    """So many digits to learn from, and 40 to judge by."""
    train, test = digits()
    return Samples(train.x[:count], train.y[:count], train.scale), Samples(test.x[:40], test.y[:40], test.scale)


def pair(settings, layers=MLP, shape=SHAPE, samples=None, test=None, config=None, device=None):
    """A trainer on the host and one on the emulator."""
    samples = samples if samples is not None else some_digits(104)[0]
    device = device or EmulatedDevice(config or training_config())
    return (
        Trainer(described(layers, shape), samples, settings, test, random=True),
        NpuTrainer(device, described(layers, shape), samples, settings, test, random=True),
    )


def numbers(trainer):
    """Everything that a step changes, by parameter."""
    return {
        name: (
            p.weight.tobytes(), p.acc.tobytes(), p.exp.tobytes(), None if p.velocity is None else p.velocity.tobytes(),
            p.velocity_exp, p.weight.dtype, p.acc.dtype, p.exp.dtype, p.weight.shape,
            None if p.velocity is None else (p.velocity.shape, p.velocity.dtype),
        )
        for name, p in trainer.network.parameters.items()
    }  # fmt: skip


def assert_same_steps(host, npu, steps=None):
    """Take steps on both, and compare all numbers after each."""
    while not host.finished and steps != 0:
        host.step()
        npu.step()
        npu.synchronise()
        assert numbers(npu) == numbers(host), f"epoch {host.epoch}, step {host.done}"
        assert npu._counts == host._counts and npu._sums == host._sums
        steps = None if steps is None else steps - 1
    assert npu.history == host.history


def digits_case(name):
    """One of the networks for digits, its data and settings."""
    return list(NETWORKS[name]), SHAPE, some_digits(72)[0], Settings(1, 32)


def random_case(seed):
    """A network, its data and settings, from a seed."""
    rng = np.random.default_rng(seed)
    layers, shape = [], (int(rng.integers(1, 50)),)
    depth = int(rng.integers(1, 5))
    for k in range(depth):
        layers.append({"op": "dense", "outputs": int(rng.integers(1 if k + 1 < depth else 2, 50))})
        if k + 1 < depth and rng.random() < 0.6:
            layers.append({"op": "relu"})
    outputs, batch = layers[-1]["outputs"], int(rng.integers(7, 97))
    count = int(rng.integers(batch, 3 * batch))
    x = rng.normal(size=(count, *shape)) * 2.0 ** rng.integers(-8, 4)
    loss = ("mse", "cross_entropy")[int(rng.integers(2))]
    y = rng.normal(size=(count, outputs)) if loss == "mse" else rng.integers(0, outputs, count)
    chosen = {"rate": ["1/16", "0.3", "1/128"], "momentum": ["0", "0.9", "1/2"], "decay": ["0", "0.01"]}
    factors = {name: str(rng.choice(values)) for name, values in chosen.items()}
    values = {"epochs": 2, "batch": batch, "loss": loss, "seed": int(rng.integers(100)), **factors}
    return layers, shape, Samples(x, y), with_point(settings_of(values), rng)


def with_point(settings, rng):
    """The settings with a point of accumulators that the NPU has, half of the time the default."""
    point = [None, int(rng.integers(10, 16))][int(rng.integers(2))]
    return replace(settings, formats=pointed(point))


def pointed(point, bits=16):
    """Formats whose accumulators have their point so many bits below that of weights."""
    return TrainingFormats(accumulator=AccumulatorFormat(bits, point))


def random_images(seed):
    """A convolutional network, its data and settings, from a seed."""
    rng = np.random.default_rng([seed, 7])
    shape = int(rng.integers(1, 20)), int(rng.integers(4, 9)), int(rng.integers(4, 9))
    layers, size, named = [], shape[1:], None
    if rng.random() < 0.2:
        layers.append({"op": "relu"})
    for k in range(int(rng.integers(1, 4))):
        kernel, stride = int(rng.integers(1, 4)), int(rng.integers(1, 3))
        pad = int(rng.integers(0, kernel + 1))
        if min(size) + 2 * pad < kernel:
            break
        channels = int(rng.choice([1, 3, 8, 16, 17, 33]))
        layers.append({"op": "conv", "channels": channels, "kernel": kernel, "stride": stride, "pad": pad})
        size = tuple((n + 2 * pad - kernel) // stride + 1 for n in size)
        if rng.random() < 0.7:
            layers.append({"op": "relu"})
        layers[-1]["name"] = named = f"layer{k}"
        if rng.random() < 0.4:
            kernel = int(rng.choice([1, 3]))
            layers.append({"op": "conv", "channels": channels, "kernel": kernel, "pad": kernel // 2})
            layers += [{"op": "relu"}] if rng.random() < 0.5 else []
            layers.append({"op": "add", "to": named})
        if min(size) >= 2 and rng.random() < 0.6:
            kernel = int(rng.integers(1, min(*size, 3) + 1))
            stride = kernel + int(rng.integers(0, 2))
            layers.append({"op": str(rng.choice(["max_pool", "average_pool"])), "kernel": kernel, "stride": stride})
            size = tuple((n - kernel) // stride + 1 for n in size)
            layers += [{"op": "relu"}] if rng.random() < 0.3 else []
    layers += [{"op": "global_average"} if rng.random() < 0.4 else {"op": "flatten"}]
    layers += [{"op": "dense", "outputs": 5}] if rng.random() < 0.9 or layers[-1] == {"op": "flatten"} else []
    batch = int(rng.integers(3, 18))
    count = int(rng.integers(batch, 3 * batch))
    x = rng.normal(size=(count, *shape)) * 2.0 ** rng.integers(-8, 4)
    loss = ("mse", "cross_entropy")[int(rng.integers(2))]
    outputs = 5 if layers[-1]["op"] == "dense" else channels
    y = rng.normal(size=(count, outputs)) if loss == "mse" else rng.integers(0, outputs, count)
    chosen = {"rate": ["1/16", "0.3", "1/128"], "momentum": ["0", "0.9"], "decay": ["0", "0.01"]}
    factors = {name: str(rng.choice(values)) for name, values in chosen.items()}
    values = {"epochs": 2, "batch": batch, "loss": loss, "seed": int(rng.integers(100)), **factors}
    return layers, shape, Samples(x, y), with_point(settings_of(values), rng)


def random_depthwise(seed):
    """A network with depthwise convolutions, its data and settings, from a seed."""
    rng = np.random.default_rng([seed, 11])
    batch = int(rng.choice([1, 3, 7, 16, 33]))
    shape = (int(rng.choice([2, 3, 8, 16, 17, 33])), *(int(rng.integers(2, 7 if batch > 8 else 9)) for _ in range(2)))
    layers, size, channels = [], shape[1:], shape[0]
    for k in range(int(rng.integers(1, 4))):
        kernel, stride = int(rng.integers(1, 5)), int(rng.integers(1, 4))
        pad = int(rng.integers(0, kernel + 2))
        if min(size) + 2 * pad < kernel:
            break
        layers.append({"op": "depthwise", "kernel": kernel, "stride": stride, "pad": pad})
        size = tuple((n + 2 * pad - kernel) // stride + 1 for n in size)
        layers += [{"op": "relu"}] if rng.random() < 0.5 else []
        layers[-1]["name"] = named = f"layer{k}"
        if rng.random() < 0.3:
            layers += [{"op": "depthwise", "kernel": 3, "pad": 1}, {"op": "add", "to": named}]
        if rng.random() < 0.5:
            channels = int(rng.choice([2, 5, 16, 18]))
            layers.append({"op": "conv", "channels": channels, "kernel": 1})
            layers += [{"op": "relu"}] if rng.random() < 0.5 else []
    layers += [{"op": "global_average"} if rng.random() < 0.5 else {"op": "flatten"}, {"op": "dense", "outputs": 5}]
    count = int(rng.integers(batch, 3 * batch + 3))
    x = rng.normal(size=(count, *shape)) * 2.0 ** rng.integers(-8, 4)
    loss = ("mse", "cross_entropy")[int(rng.integers(2))]
    y = rng.normal(size=(count, 5)) if loss == "mse" else rng.integers(0, 5, count)
    chosen = {"rate": ["1/16", "0.3", "1/128"], "momentum": ["0", "0.9"], "decay": ["0", "0.01"]}
    factors = {name: str(rng.choice(values)) for name, values in chosen.items()}
    values = {"epochs": 2, "batch": batch, "loss": loss, "seed": int(rng.integers(100)), **factors}
    return layers, shape, Samples(x, y), settings_of(values)


def settings_of(values):
    """Settings, with fractions for texts."""
    exact = {key: Fraction(values[key]) for key in ("rate", "momentum", "decay")}
    return Settings(**(values | exact))


def tensor_spans(held):
    """Words of a tensor, and its register."""
    words = held.word * held.samples * held.features.vectors
    return [Span(REGIONS[held.mem], held.first, words), Span(RegionId.TENSORS, held.register)]


def phases_of(npu):
    """Constants, and starts with what the host writes before each."""
    memory = npu.memory
    constants = list(memory.constants.values())
    state = [Span(RegionId.MATRIX, 0, memory.used(RegionId.MATRIX)), Span(RegionId.FACTORS, 0, 8)]
    for own in memory.parameters:
        held = (own.value, own.accumulators, own.velocity)
        state += [span for each in held if each is not None for span in tensor_spans(each)]
    phases = [(npu.program.load, state, ())]
    for batch in npu.program.batches.values():
        x, y = tensor_spans(batch.source), tensor_spans(batch.output)
        phases += [(batch.forward, x, y), (batch.backward, y, state)]
    return constants, phases

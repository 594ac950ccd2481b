"""Modules of PyTorch that are trained in integers: the bits are those of the trainer, and no float weight is left."""

import gc
from copy import deepcopy
from fractions import Fraction

import numpy as np
import pytest

from concord.frontend import import_model
from concord.graph import execute
from concord.spec.training import TrainingFormats
from concord.train import Settings, Trainer, described
from concord.train.layers.base import PassContext
from concord.train.network import TrainableNetwork, batch
from concord.train.noise import permutation
from support.frameworks import missing, needs
from support.train_digits import FORMATS, bits, few

if missing("torch"):
    pytest.skip(missing("torch"), allow_module_level=True)

import torch

pytestmark = needs("torch")

nn, F = torch.nn, torch.nn.functional


class Digits(nn.Module):
    """A network for digits with everything its description below has."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.Tanh())
        self.deep = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.tail = nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 10))

    def forward(self, x):
        x = F.relu(self.norm(self.first(x)))
        x = self.second(x) + x
        return self.tail(F.avg_pool2d(self.deep(x), 2))


LAYERS = [
    {"op": "conv", "channels": 4, "pad": 1, "name": "first"}, {"op": "batch_norm", "name": "norm"},
    {"op": "relu", "name": "a"}, {"op": "conv", "channels": 4, "pad": 1, "name": "second.0"}, {"op": "tanh"},
    {"op": "add", "to": "a"}, {"op": "depthwise", "pad": 1, "name": "deep"}, {"op": "average_pool"}, {"op": "max_pool"},
    {"op": "flatten"}, {"op": "dense", "outputs": 10, "name": "tail.2"},
]  # fmt: skip


def digits_net():
    """A module with weights of its own, and the graph of the same network with them."""
    torch.manual_seed(3)
    model = Digits()
    model.tail[2] = nn.Linear(16, 10)
    with torch.no_grad():
        model.norm.weight.uniform_(0.5, 2)
        model.norm.running_mean.normal_()
    graph = described(LAYERS, (1, 8, 8))
    modules = dict(model.named_modules())
    for node in graph.nodes:
        if node.name in modules and node.op != "Add":
            module = modules[node.name]
            node.attrs["weight" if node.op != "BatchNorm" else "scale"] = module.weight.detach().numpy().astype(float)
            node.attrs["bias"] = module.bias.detach().numpy().astype(float)
            if node.op == "BatchNorm":
                node.attrs["mean"] = module.running_mean.numpy().astype(float)
    return model, graph


def learn(model, optimiser, samples, settings, epochs, scheduler=None):
    """The user's loop, in the order of the trainer; the loss of every epoch."""
    from concord.train.torch import BlockTensor

    criterion, losses = nn.CrossEntropyLoss(), []
    for epoch in epochs:
        order, total = permutation(settings.seed, (2, epoch), len(samples)), 0.0
        for start in range(0, len(samples), settings.batch):
            rows = order[start : start + settings.batch]
            optimiser.zero_grad()
            out = model(torch.tensor(samples.inputs(rows), dtype=torch.float32))
            assert isinstance(out, BlockTensor) and out.shape == (len(rows), 10)
            loss = criterion(out, torch.tensor(samples.y[rows]))
            loss.backward()
            optimiser.step()
            total += loss.item() * len(rows)
        losses.append(total / len(samples))
        if scheduler is not None:
            scheduler.step()
    return losses


def parameters(model):
    """Every integer of a converted module by the name of its parameter."""
    from concord.train.torch.modules import Integers

    found = {}
    for module in model.modules():
        if isinstance(module, Integers) and hasattr(module.holder, "velocity"):
            p = module.holder
            found[p.name] = [p.weight.tobytes(), p.acc.tobytes(), p.exp.tobytes()]
    return found


def converted(formats=None, **options):
    from concord.train.torch import SGD, convert

    model, graph = digits_net()
    model = convert(model, formats)
    return model, SGD(model, lr=options.pop("lr", 0.0625), momentum=0.9, **options), graph


@pytest.mark.slow
@pytest.mark.parametrize("formats", FORMATS)
def test_bits_are_those_of_the_trainer(formats):
    """Convolutions, normalisation, sums, pooling, noise, momentum, decay and schedule."""
    formats = FORMATS[formats]
    settings = Settings(epochs=2, batch=40, formats=formats, decay=Fraction(1, 1000), schedule=((1, Fraction(1, 2)),))
    model, optimiser, graph = converted(formats, weight_decay=0.001)
    samples = few()
    trainer = Trainer(graph, samples, settings, few(40))
    history = trainer.fit()
    scheduler = torch.optim.lr_scheduler.StepLR(optimiser, 1, 0.5)
    losses = learn(model, optimiser, samples, settings, range(2), scheduler)
    assert losses == pytest.approx([figures.loss for figures in history], rel=1e-12)
    own, theirs = bits(trainer.network), parameters(model)
    assert {name: theirs[name] for name in own} == own and set(theirs) - set(own) == {"first.bias"}
    assert optimiser.counts.elements == sum(figures.counts.elements for figures in history)
    for key, array in trainer.network.norms["norm"].state.items():
        name = {"mean": "mean.mant", "variance": "variance.mant"}.get(key, key.replace("_", "."))
        assert np.array_equal(model.norm.state_dict()[name].numpy(), array)
    model.eval()
    with torch.no_grad():
        out = model(torch.tensor(few(40).inputs(slice(None)), dtype=torch.float32))
    judged, _ = trainer.network.forward(
        batch(few(40).inputs(slice(None)), graph, formats), PassContext(formats, training=False)
    )
    assert np.array_equal(out.tensor.mant, judged.mant) and out.tensor.exp == judged.exp


class Recurrent(nn.Module):
    """Two layers both ways, then one, and its last state."""

    def __init__(self, kind):
        super().__init__()
        self.both = kind(8, 5, num_layers=2, bidirectional=True, batch_first=True)
        self.one = kind(10, 6, batch_first=True)
        self.out = nn.Linear(12, 10)
        self.twice = nn.Linear(10, 10)

    def forward(self, x):
        y, _ = self.both(x[:, 0])
        z, states = self.one(y)
        last = (states[0] if isinstance(states, tuple) else states)[-1]
        return self.twice(self.out(z[:, -2:].reshape(len(last), -1)) + self.out(z[:, :2].flatten(1)))


def whole_bits(model):
    """Weights of at most 7 bits, so that integers hold them and an ONNX file has all there is."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_((p * 40).round().clamp(-63, 63) / 64)
            if "bias_hh" in name:  # the other one has all there is, as no sum of both may be a power of two
                p.zero_()
                continue
            p.view(-1)[0] = 63 / 64
    return model


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layers_have_the_bits_of_the_trainer(kind):
    """A layer that is called twice has the gradients of both calls; a file has it twice."""
    from concord.train.torch import SGD, convert, export_onnx, graph_of

    torch.manual_seed(1)
    float_model = whole_bits(Recurrent(getattr(nn, kind)))
    model = convert(float_model)
    example = torch.tensor(few(4).inputs(slice(None)), dtype=torch.float32)
    graph = import_model(export_onnx(model, example))
    want = float_model(example).detach().numpy()
    found = execute.run(graph_of(model, example), {"x": example.numpy().astype(float)})
    assert np.abs(next(iter(found.values())).reshape(want.shape) - want).max() < 1e-5
    net = TrainableNetwork(graph, TrainingFormats())
    x = batch(few(20).inputs(slice(None)), graph, TrainingFormats())
    labels = few(20).y
    out, memories = net.forward(x, PassContext(TrainingFormats()))
    mine = model(torch.tensor(few(20).inputs(slice(None)), dtype=torch.float32))
    assert np.array_equal(mine.tensor.values.reshape(-1), out.values.reshape(-1))
    from concord.train.losses import LOSSES

    gradient = LOSSES["cross_entropy"](out, labels, TrainingFormats()).gradient
    changes = net.backward(gradient, memories, PassContext(TrainingFormats()))
    F.cross_entropy(mine, torch.tensor(labels)).backward()
    session = model.concord_session
    gathered = {p.name: g.parts for p, g in session.gradients.values()}
    compared = 0
    for name, parts in gathered.items():
        stem = name.rpartition(".")[0]
        if stem == "out":
            assert len(parts) == 2
            continue
        assert len(parts) == 1 and np.array_equal(parts[0].values, changes[name].values)
        compared += 1
    assert compared >= 11
    SGD(model, lr=0.1).step()


def everything(model):
    """Objects that can be reached from some, but for modules, types and code."""
    seen, queue = {}, list(model)
    while queue:
        item = queue.pop()
        if id(item) in seen or isinstance(item, type | type(gc) | type(everything)):
            continue
        seen[id(item)] = item
        queue += list(vars(item).values()) if hasattr(item, "__dict__") else []
        queue += item.values() if isinstance(item, dict) else item if isinstance(item, list | tuple | set) else []
        queue += [item.__self__] if hasattr(item, "__self__") else []
    return list(seen.values())


@pytest.mark.slow
def test_no_float_weight_is_left():
    from concord.train.torch import SGD, convert

    torch.manual_seed(0)
    for original in (digits_net()[0], Recurrent(nn.GRU)):
        shapes = {tuple(p.shape) for p in original.parameters() if p.dim() > 1}
        shapes |= {(1, *shape) for shape in shapes}
        weights = [id(p) for p in original.parameters()]
        model = convert(original)
        optimiser = SGD(model, lr=0.125, momentum=0.5)
        assert any(tuple(getattr(a, "shape", ())) in shapes for a in everything([original]))  # the search finds them
        loss = F.cross_entropy(model(torch.rand(4, 1, 8, 8)), torch.tensor([0, 1, 2, 3]))
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        assert not list(model.parameters()) and all(not b.is_floating_point() for b in model.buffers())
        del loss
        gc.collect()
        for item in everything([model, optimiser, optimiser.state_dict(), model.state_dict()]):
            if isinstance(item, torch.Tensor | np.ndarray) and tuple(item.shape) in shapes:
                number = item.is_floating_point() if isinstance(item, torch.Tensor) else item.dtype.kind == "f"
                assert not number or (isinstance(item, np.ndarray) and not any(item.strides)), (
                    "one number has no weights"
                )
        alive = [t for t in gc.get_objects() if issubclass(type(t), torch.Tensor) and t.is_floating_point()]
        alive = [t for t in alive if all(isinstance(n, int) for n in t.shape)]  # others are left by export
        assert not [t.shape for t in alive if tuple(t.shape) in shapes and id(t) not in weights]


@pytest.mark.parametrize("formats", ["default", "stochastic"])
def test_a_saved_state_goes_on_with_the_same_bits(formats, tmp_path):
    formats = FORMATS[formats]
    settings, samples = Settings(epochs=2, batch=40, formats=formats), few()
    whole, optimiser, _ = converted(formats)
    learn(whole, optimiser, samples, settings, range(2))
    first, optimiser, _ = converted(formats)
    learn(first, optimiser, samples, settings, range(1))
    torch.save([first.state_dict(), optimiser.state_dict()], tmp_path / "state.pt")
    copied = deepcopy(first)
    before = parameters(first)
    second, optimiser, _ = converted(formats)
    states = torch.load(tmp_path / "state.pt")
    assert all(not t.is_floating_point() for t in states[0].values())
    second.load_state_dict(states[0])
    optimiser.load_state_dict(states[1])
    learn(second, optimiser, samples, settings, range(1, 2))
    assert parameters(second) == parameters(whole)
    assert all(torch.equal(t, whole.state_dict()[name]) for name, t in second.state_dict().items())
    assert parameters(copied) == before != parameters(second)
    with torch.no_grad():
        x = torch.rand(3, 1, 8, 8)
        assert np.array_equal(copied.eval()(x).tensor.mant, first.eval()(x).tensor.mant)


def test_states_that_do_not_fit_are_refused():
    model, optimiser, _ = converted()
    state = model.state_dict()
    state["tail.2.weight.weight"] = state["tail.2.weight.weight"].float()
    with pytest.raises(RuntimeError, match=r"tail\.2\.weight\.weight must be torch.int8 \[1, 160\], not torch.float32"):
        model.load_state_dict(state)
    F.cross_entropy(model(torch.rand(2, 1, 8, 8)), torch.tensor([0, 1])).backward()
    optimiser.step()
    state = optimiser.state_dict()
    state["state"][0]["velocity"] = state["state"][0]["velocity"][:1]
    with pytest.raises(ValueError, match=r"velocity of first.weight must be int32 \[4, 1, 3, 3\]"):
        optimiser.load_state_dict(state)


def test_what_is_evaluated_is_what_is_exported():
    """The weights of the file are those that evaluation has read, and its graph computes the same."""
    from concord.train.torch import export_onnx

    model, optimiser, _ = converted()
    settings = Settings(batch=40)
    learn(model, optimiser, few(), settings, range(1))
    example = torch.tensor(few(8).inputs(slice(None)), dtype=torch.float32)
    graph = import_model(export_onnx(model, example))
    assert model.training and [node.op for node in graph.nodes].count("Conv") == 3
    model.eval()
    out = model(example)
    values = out.detach().numpy()
    layers = {record.node.name: record.layer for record in out.tape.records}
    for node in graph.nodes:
        if node.op in ("Conv", "Dense"):
            for key, values in layers[node.name].attributes.items():
                assert np.array_equal(node.attrs[key], values)
    run = next(iter(execute.run(graph, {"x": example.numpy().astype(float)}).values()))
    assert np.abs(run - values).max() < 0.2


def test_gradients_add_up_until_they_are_forgotten():
    from concord.train.torch import SGD, convert

    model = convert(nn.Linear(6, 4))
    optimiser, x, y = SGD(model, lr=0.1), torch.rand(8, 6), torch.arange(8) % 4
    for _ in range(2):
        F.cross_entropy(model(x), y).backward()
    ((_, found), *_) = model.concord_session.gradients.values()
    assert len(found.parts) == 2 and found.samples == 8
    with pytest.raises(ValueError, match="must be of as many samples each"):
        F.cross_entropy(model(x[:4]), y[:4]).backward()
    optimiser.zero_grad()
    once = deepcopy(model)
    F.cross_entropy(once(x), y).backward()
    F.cross_entropy(model(x), y).backward()
    F.cross_entropy(model(x), y).backward()
    optimiser.step()
    SGD(once, lr=0.2).step()  # twice the rate, which shares its mantissa
    assert parameters(once) == parameters(model)
    optimiser.zero_grad()
    F.cross_entropy(model(x[:4]), y[:4], reduction="sum").backward()
    assert next(iter(model.concord_session.gradients.values()))[1].samples == 1
    model.eval()
    with pytest.raises(RuntimeError, match="training mode"):
        F.cross_entropy(model(x), y).backward()


def test_a_module_learns():
    """The example of the documentation."""
    from concord.train.torch import SGD, convert

    model = convert(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
    optimiser = SGD(model, lr=0.0625, momentum=0.9)
    samples = few(200)
    losses = learn(model, optimiser, samples, Settings(), range(12))
    assert losses[-1] < losses[0] * 0.6

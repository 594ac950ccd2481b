"""Converted modules: functions and losses compute what PyTorch does, and what cannot be is refused by name."""

import warnings

import numpy as np
import pytest

from concord.frontend import import_model
from concord.graph import execute
from concord.spec.training import TrainingFormat, TrainingFormats
from support.frameworks import missing, needs

if missing("torch"):
    pytest.skip(missing("torch"), allow_module_level=True)

import torch

pytestmark = needs("torch")

nn, F = torch.nn, torch.nn.functional

FINE = TrainingFormats(
    weight=TrainingFormat(14), bias=TrainingFormat(14), activation=TrainingFormat(14), gradient=TrainingFormat(20)
)


class Odds(nn.Module):
    """Whatever else there is."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(8, 6, 3, stride=2, padding=1, dilation=1, bias=False)
        self.norm = nn.BatchNorm1d(6)
        self.pools = nn.ModuleList([nn.MaxPool1d(2), nn.AvgPool1d(2, padding=1), nn.AdaptiveAvgPool1d(1)])
        self.drop = nn.Dropout(0.5)
        self.line = nn.Linear(5, 3)
        self.last = nn.Linear(7, 5, bias=False)
        self.lastnorm = nn.BatchNorm1d(5)

    def forward(self, x):
        x = x.squeeze(1)
        a = self.norm(self.conv(x))
        b = torch.sigmoid(self.pools[0](a)).mean(2)
        c = self.pools[1](a).transpose(1, 2).unsqueeze(1)[..., 0].squeeze(1)
        d = self.pools[2](a).view(x.size(0), -1).tanh()
        e = self.line(torch.flatten((b + d)[:, :5], 1))
        f = torch.permute(x[:, 1:8, 2:5:2], (0, 2, 1))[:, 1, :]
        g = self.lastnorm(self.last(self.drop(f)))
        return g[:, 1:4] + e + c[..., :3]


@pytest.mark.slow
def test_every_function_computes_what_pytorch_computes():
    from concord.train.torch import convert

    torch.manual_seed(4)
    original = Odds()
    x = torch.rand(40, 1, 8, 8)
    original.drop.p = 0.0
    model = convert(original, FINE)
    want = original(x).detach()
    out = model(x)
    assert torch.allclose(out.detach(), want.double(), atol=5e-3)
    original.eval()
    model.eval()
    assert torch.allclose(model(x).detach(), original(x).detach().double(), atol=2e-2)
    assert torch.equal(out.argmax(1), out.detach().argmax(1)) and len(out) == 40 and "BlockTensor([40, 3]" in repr(out)


class Attends(nn.Module):
    """Two heads of attention, with what they have read added."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(6, 6) for _ in range(4))
        self.last = nn.Linear(6, 3)

    def forward(self, x):
        q, k, v = (layer(x).view(x.size(0), 4, 2, 3).transpose(1, 2) for layer in (self.q, self.k, self.v))
        shares = F.softmax(q @ k.transpose(-2, -1) / 3**0.5, dim=-1)
        y = torch.matmul(shares, v * 0.5).transpose(1, 2).reshape(x.size(0), 4, 6)
        return self.last((self.out(y) + self.v(x)).mean(1))


def volumes():
    return nn.Sequential(
        nn.Conv3d(1, 3, (2, 3, 3), padding=1), nn.BatchNorm3d(3), nn.ReLU(), nn.MaxPool3d((1, 2, 2)),
        nn.Conv3d(3, 4, 2, stride=(1, 2, 2)), nn.AvgPool3d((2, 1, 1)), nn.AdaptiveAvgPool3d(1), nn.Flatten(),
        nn.Linear(4, 3),
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("make", "shape"), [(Attends, (4, 6)), (volumes, (1, 4, 8, 8))], ids=["attention", "volumes"])
def test_attention_and_volumes_are_learned_and_written(make, shape):
    from concord.train.torch import SGD, convert, export_onnx

    torch.manual_seed(8)
    labels = torch.arange(24) % 3
    original, x = make(), torch.rand(24, *shape) * (1 + labels).reshape(-1, *[1] * len(shape)) / 3
    assert torch.allclose(convert(original, FINE)(x).detach(), original(x).detach().double(), atol=5e-3)
    model = convert(original)
    optimiser, losses = SGD(model, lr=0.125, momentum=0.9), []
    for _ in range(16):
        optimiser.zero_grad()
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.95 * losses[0]
    out = model.eval()(x)
    graph = import_model(export_onnx(model, x))
    (got,) = execute.run(graph, {graph.inputs[0]: x.double().numpy().reshape(24, *graph.sample_shape(graph.inputs[0]))}
                         ).values()  # fmt: skip
    assert np.abs(got.reshape(24, 3) - out.detach().numpy()).max() < 1e-2 * np.abs(got).max()


def test_losses_and_gradients_of_ones_own():
    """``mse_loss`` in integers, and the same through floats, whose gradient is rounded to 32 bits."""
    from concord.train.torch import SGD, convert

    torch.manual_seed(5)
    x, target = torch.rand(16, 6), torch.rand(16, 4)
    found = []
    for own in (False, True):
        torch.manual_seed(6)
        model = convert(nn.Linear(6, 4))
        out = model(x)
        loss = ((out.plain() - target) ** 2).mean() if own else F.mse_loss(out, target)
        (3 * loss).backward()
        gradients = {p.name: (g.parts[0].values, g.samples) for p, g in model.concord_session.gradients.values()}
        found.append((loss.item(), {name: values / samples for name, (values, samples) in gradients.items()}))
        SGD(model, lr=0.1).step()
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-3)
    assert set(found[0][1]) == {"layer.weight", "layer.bias"}
    for name, values in found[0][1].items():
        assert np.allclose(values, found[1][1][name], atol=1e-3) and np.abs(values).max() > 0.05


class Own(nn.Module):
    def __init__(self, forward, **modules):
        super().__init__()
        self.how = forward
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x):
        return self.how(self, x)


def own_parameter():
    model = nn.Sequential(nn.Linear(6, 4))
    model.register_parameter("gain", nn.Parameter(torch.ones(1)))
    return model


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.GELU()), r"not so: 1 \(LayerNorm\); 2 \(GELU\)"),
        (lambda: nn.Conv2d(1, 2, 3, padding_mode="reflect"), "padding must be numbers, with zeros"),
        (lambda: nn.Conv2d(1, 2, 3, padding="same"), "padding must be numbers"),
        (lambda: nn.BatchNorm2d(3, affine=False), "affine and track_running_stats"),
        (lambda: nn.LSTM(3, 4), "batch_first must be True"),
        (lambda: nn.Embedding(3, 4), r"the module \(Embedding\)"),
        (own_parameter, "parameters gain of modules of your own"),
        (lambda: nn.Sequential(nn.ReLU()), "must have weights to train"),
    ],
)
def test_modules_that_cannot_be_converted(make, message):
    from concord.train.torch import CannotConvert, convert

    with pytest.raises(CannotConvert, match=message):
        convert(make())


@pytest.mark.parametrize(
    "how, message",
    [
        (lambda m, x: torch.exp(m.a(x)), "must be among .*adaptive_avg_pool2d.*; not exp"),
        (lambda m, x: m.a(x).exp(), "not exp"),
        (lambda m, x: m.a(x) + 1, "operands of add must be blocks"),
        (lambda m, x: m.a(x) + torch.ones(4), "operands of add must be blocks"),
        (lambda m, x: m.a(x) * m.b(x), "factors must be numbers in a converted module, not BlockTensor"),
        (lambda m, x: m.a(x) / 0, "divisors must not be 0"),
        (lambda m, x: m.a(x) @ m.b(x), r"blocks with as many axes, three at least, not \[\[5, 4\], \[5, 4\]\]"),
        (lambda m, x: m.a(x) @ 3, r"blocks with as many axes, three at least, not \[\[5, 4\], 3\]"),
        (lambda m, x: torch.softmax(m.a(x), 0), "dim of softmax must be an axis behind that of the samples, not 0"),
        (lambda m, x: F.softmax(m.a(x), 1, dtype=torch.float64), "dtype of softmax must be None"),
        (lambda m, x: F.dropout(m.a(x)), "dropout must be in evaluation mode"),
        (lambda m, x: m.a(x).view(-1), "must keep the axis of 5 samples"),
        (lambda m, x: m.a(x).mean(0), "must leave the axis of the samples"),
        (lambda m, x: m.a(x)[0], "must leave the axis of the samples"),
        (lambda m, x: m.n(x), "must be behind a convolution or Linear"),
        (lambda m, x: m.n(m.a(x).relu()), "must be behind a convolution or Linear"),
        (lambda m, x: (lambda a: m.n(a) + a)(m.a(x)), "read by nothing else"),
        (lambda m, x: m.n(m.a(x)) + m.n(m.a(x)), "must be called once in a pass"),
        (lambda m, x: m.n(m.a(x)) + m.n(m.b(x)), "must be behind one layer"),
        (lambda m, x: m.a(torch.ones(5, 6)), "a must be called by the module that was converted"),
        (lambda m, x: F.max_pool1d(m.a(x).unsqueeze(1), 2, ceil_mode=True), "ceil_mode of max_pool must be False"),
        (lambda m, x: F.cross_entropy(m.a(x), torch.full((5,), 4)), r"classes must be in 0\.\.3, not 4\.\.4"),
        (lambda m, x: F.cross_entropy(m.a(x), torch.ones(5)), "a class for each sample"),
        (lambda m, x: F.cross_entropy(m.a(x), torch.ones(5).long(), label_smoothing=0.1), "label_smoothing"),
        (lambda m, x: F.mse_loss(m.a(x), torch.ones(5)), r"targets must have the shape \[5, 4\]"),
    ],
)
def test_passes_that_cannot_be_taken(how, message):
    from concord.train.torch import convert

    model = convert(Own(how, a=nn.Linear(6, 4), b=nn.Linear(6, 4), n=nn.BatchNorm1d(4)))
    with pytest.raises((TypeError, ValueError), match=message):
        assert model(torch.rand(5, 6)).made


def test_rates_that_cannot_be():
    from concord.train.torch import SGD, convert

    with pytest.raises(ValueError, match="lr must be above 0"):
        SGD(convert(nn.Linear(2, 2)), lr=0)
    with pytest.raises(TypeError, match="must be what convert returned, not Linear"):
        SGD(nn.Linear(2, 2), lr=0.1)
    with pytest.raises(ValueError, match="at least one sample"):
        convert(nn.Linear(2, 2))(torch.rand(0, 2))


def test_numbers_beyond_the_greatest_exponent_are_told():
    from concord.train.torch import SGD, convert

    def large():
        torch.manual_seed(0)
        layers = nn.Linear(6, 5, bias=False), nn.ReLU(), nn.Linear(5, 3, bias=False)
        with torch.no_grad():
            for layer in layers[::2]:
                layer.weight.uniform_(0.5, 1).mul_(2.0**33)
        return convert(nn.Sequential(*layers))

    x, y = torch.rand(8, 6) + 0.5, torch.arange(8) % 3
    for scale, wrong in ((1.0, False), (2.0**100, True)):
        model = large()
        optimiser = SGD(model, lr=0.0625)
        F.cross_entropy(model(scale * x), y).backward()
        assert (optimiser.counts.saturated >= 5 * 8) == wrong
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            optimiser.step()
            optimiser.step()
        texts = [str(one.message) for one in told if one.category is RuntimeWarning]
        assert len(texts) == wrong
        assert all("numbers needed an exponent above 127 and were cut off (saturated)" in text for text in texts)

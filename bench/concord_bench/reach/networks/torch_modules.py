"""Modules of PyTorch as its two exporters write them; they are left out where PyTorch is not installed.

The legacy exporter (``dynamo=False``) traces, the other one, which is the default now, needs onnxscript.
"""

from __future__ import annotations

import io
import logging
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from concord_bench.reach.networks.builder import Family, Model, Network, Values, normal, uniform, whole

TORCH = Family("exported by PyTorch")
_EXPORTS = threading.Lock()


def _exported(
    make: Callable[[Any], Any], examples: Callable[[Any], tuple[Any, ...]], dynamo: bool, values: Values
) -> Model:
    """The ONNX of a module with weights of a fixed seed; one at a time, for the exporters have global state."""
    import torch

    with _EXPORTS, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        torch.backends.mha.set_fastpath_enabled(False)  # a fused operator that the legacy exporter does not know
        module, arguments, file = make(torch).eval(), examples(torch), io.BytesIO()
        names = [f"input_{k}" for k in range(len(arguments))]
        disabled = logging.root.manager.disable
        logging.disable(logging.WARNING)
        try:
            if dynamo:
                proto = torch.onnx.export(module, arguments, input_names=names, dynamo=True, verbose=False).model_proto
            else:
                torch.onnx.export(module, arguments, file, input_names=names, dynamo=False)
                proto = onnx.load_from_string(file.getvalue())
        finally:
            logging.disable(disabled)
    return Model(proto, dict.fromkeys(names, values))


def _both(source: str, examples: Callable[[Any], tuple[Any, ...]], values: Values = normal) -> Callable[..., Any]:
    """Decorate a function that makes a module: a network for each of the exporters."""

    def add(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        for form, dynamo in (("legacy", False), ("dynamo", True)):

            def build(dynamo: bool = dynamo) -> Model:
                return _exported(make, examples, dynamo, values)

            needs = ("torch", "onnxscript") if dynamo else ("torch",)
            TORCH.networks.append(
                Network(f"torch_{make.__name__}_{form}", f"{source}, {form} exporter", TORCH.title, build, needs)
            )
        return make

    return add


def _image(channels: int, size: int) -> Callable[[Any], tuple[Any, ...]]:
    return lambda torch: (torch.randn(1, channels, size, size),)


@_both("quick start: Flatten and three Linear", _image(1, 16), uniform(0, 1))
def mlp(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


@_both("Conv2d, BatchNorm2d, MaxPool2d, AdaptiveAvgPool2d, Dropout", _image(3, 32))
def cnn(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1),
        nn.BatchNorm2d(16), nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(), nn.Linear(16, 10),
    )  # fmt: skip


@_both("nn.LSTM, batch first, last step", lambda torch: (torch.randn(1, 12, 6),))
def lstm(torch: Any) -> Any:
    class Last(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = torch.nn.LSTM(6, 16, batch_first=True), torch.nn.Linear(16, 3)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(x)[0][:, -1])

    return Last()


@_both("nn.Embedding and a bidirectional nn.GRU", lambda torch: (torch.randint(0, 40, (1, 10)),), whole(0, 40))
def gru_text(torch: Any) -> Any:
    class Text(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(40, 12)
            self.gru, self.head = torch.nn.GRU(12, 16, batch_first=True, bidirectional=True), torch.nn.Linear(32, 3)

        def forward(self, ids: Any) -> Any:
            return self.head(self.gru(self.embedding(ids))[0].mean(1))

    return Text()


@_both("nn.TransformerEncoderLayer", lambda torch: (torch.randn(1, 8, 16),))
def transformer(torch: Any) -> Any:
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.Linear(16, 4))


@_both("scaled_dot_product_attention, causal, as small language models have it", lambda torch: (torch.randn(1, 8, 16),))
def causal_attention(torch: Any) -> Any:
    class Attention(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.all, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)

        def forward(self, x: Any) -> Any:
            q, k, v = (part.view(1, 8, 2, 8).transpose(1, 2) for part in self.all(x).chunk(3, -1))
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(y.transpose(1, 2).reshape(1, 8, 16))

    return Attention()


@_both("U-Net with F.interpolate and torch.cat", _image(1, 16))
def unet(torch: Any) -> Any:
    nn = torch.nn

    class UNet(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.down, self.low = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
            self.up, self.last = nn.Conv2d(24, 8, 3, padding=1), nn.Conv2d(8, 1, 1)

        def forward(self, x: Any) -> Any:
            first = self.down(x).relu()
            low = self.low(nn.functional.max_pool2d(first, 2)).relu()
            wide = nn.functional.interpolate(low, scale_factor=2, mode="bilinear", align_corners=False)
            return self.last(self.up(torch.cat([first, wide], 1)).relu()).sigmoid()

    return UNet()


@_both("ConvTranspose2d, PixelShuffle and Tanh", lambda torch: (torch.randn(1, 16, 4, 4),))
def generator(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.ConvTranspose2d(16, 16, 4, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 12, 3, padding=1),
        nn.PixelShuffle(2), nn.Tanh(),
    )  # fmt: skip


@_both("GroupNorm, SiLU, ReflectionPad2d, InstanceNorm2d, Upsample", _image(3, 16))
def norms(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.ReflectionPad2d(1), nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 8, 3, 2, 1),
        nn.InstanceNorm2d(8, affine=True), nn.GELU(), nn.Upsample(scale_factor=2), nn.Conv2d(8, 3, 3, padding=1),
    )  # fmt: skip


@_both("F.normalize and a product with normalised weights", lambda torch: (torch.randn(1, 24),))
def cosine(torch: Any) -> Any:
    class Cosine(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.classes = torch.nn.Linear(24, 16), torch.nn.Parameter(torch.randn(5, 16))

        def forward(self, x: Any) -> Any:
            unit = torch.nn.functional.normalize
            return 10 * torch.nn.functional.linear(unit(self.encoder(x)), unit(self.classes))

    return Cosine()


@_both("uint8 image, normalised inside, softmax and argmax as results",
       lambda torch: (torch.randint(0, 256, (1, 3, 16, 16), dtype=torch.uint8),), whole(0, 256, np.uint8))  # fmt: skip
def uint8_classifier(torch: Any) -> Any:
    nn = torch.nn

    class Classifier(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(3, 8, 3, 2, 1), nn.Linear(8, 4)
            self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1))

        def forward(self, x: Any) -> Any:
            y = self.conv((x.float() / 255 - self.mean) / 0.226).relu()
            y = self.head(y.mean((2, 3)))
            return y.softmax(1), y.argmax(1)

    return Classifier()

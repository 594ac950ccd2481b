"""The example programs in sizes that fit into the preset ``tiny``, by name."""

from concord.examples import conv1x1, conv3x3, depthwise3x3, gru, lstm, maxpool3x3, residual, softmax
from concord.spec.presets import TINY

SMALL = {
    "lstm": lambda: lstm(TINY, hidden=8, inputs=4, steps=3),
    "lstm-square": lambda: lstm(TINY, hidden=4, inputs=4, steps=1),
    "gru": lambda: gru(TINY, hidden=8, inputs=4, steps=3),
    "gru-square": lambda: gru(TINY, hidden=4, inputs=4, steps=1),
    "conv1x1": lambda: conv1x1(TINY, side=3, inputs=8, outputs=8),
    "conv3x3": lambda: conv3x3(TINY, side=3, inputs=4, outputs=4),
    "conv3x3-even": lambda: conv3x3(TINY, side=4, inputs=4, outputs=4),
    "depthwise3x3": lambda: depthwise3x3(TINY, side=3, channels=8),
    "maxpool3x3": lambda: maxpool3x3(TINY, side=3, channels=8),
    "residual": lambda: residual(TINY, side=3, channels=4),
    "softmax": lambda: softmax(TINY),
}

"""Images for tests of the driver."""

from __future__ import annotations

import numpy as np

from concord.image import Image, MemorySegment, Port, pack_matrix, pack_vectors
from concord.program.assembler import assemble
from concord.spec.memmap import RegionId

INPUTS, OUTPUTS = 7, 6
LAYER = """
    set_shape rows=2
    v_rd wide, 0, row=1
      v_wr narrow, 0, row=1
    set_shape rows=2 cols=2
    v_rd narrow, 0
      mv_mul 0
      vv_add 4, row=1
      v_relu
      v_wr wide, 8, row=1
      v_wr narrow, 8, row=1
    halt
"""


def layer_image(config, *, weight_scale=1.0):
    """``y = relu(w x + b)`` of 7 inputs and 6 outputs; with N = 4."""
    rng = np.random.default_rng(1)
    weights = weight_scale * rng.normal(size=(OUTPUTS, INPUTS)) / 4
    bias = rng.normal(size=OUTPUTS)
    return Image(
        config=config,
        program=tuple(assemble(LAYER)),
        segments=(
            MemorySegment.from_words(RegionId.MATRIX, 0, pack_matrix(weights, config), config),
            MemorySegment.from_words(RegionId.WIDE, 4, pack_vectors(bias, config), config),
        ),
        inputs=(Port("x", RegionId.WIDE, 0, (INPUTS,)),),
        outputs=(Port("y", RegionId.WIDE, 8, (OUTPUTS,)), Port("z", RegionId.NARROW, 8, (OUTPUTS,), "float64")),
        metadata={"weights": weights.tolist(), "bias": bias.tolist()},
    )


def layer_reference(image, x):
    """The same in double precision."""
    weights, bias = np.array(image.metadata["weights"]), np.array(image.metadata["bias"])
    return np.maximum(np.asarray(x) @ weights.T + bias, 0)

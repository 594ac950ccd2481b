"""Small programs whose cycle counts say how well the pipe is fed."""

from __future__ import annotations

import numpy as np

from concord.image import Image
from concord.program.allocator import Sheet
from concord.program.assembler import assemble
from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId


def products(config: NpuConfig, outputs: int, inputs: int, repeats: int) -> Image:
    """``repeats`` independent products of one ``outputs`` by ``inputs`` matrix with one vector."""
    sheet = Sheet(config)
    sheet.input("x", (inputs,), region=RegionId.NARROW)
    sheet.output("y", (outputs,))
    sheet.matrix("w", np.random.default_rng(1).normal(0, 1 / np.sqrt(inputs), (outputs, inputs)))
    text = f"""
        set_shape {sheet.tiles(outputs)}, {sheet.tiles(inputs)}
        loop {repeats}
        v_rd narrow, {sheet["x"]}
        mv_mul {sheet["w"]}
        v_wr wide, {sheet["y"]}, row=1
        end_loop
        halt
    """
    return sheet.image(assemble(text), {"name": f"{outputs}x{inputs}", "macs": repeats * outputs * inputs})


def elementwise(config: NpuConfig, vectors: int, repeats: int) -> Image:
    """``repeats`` chains over ``vectors`` wide vectors with every block of both multifunction units in use."""
    sheet = Sheet(config)
    shape = (vectors * config.native,)
    sheet.input("x", shape)
    sheet.output("y", shape)
    sheet.constant("a", np.full(config.native, 0.5))
    sheet.constant("b", np.full(config.native, 0.25))
    text = f"""
        set_shape {vectors}, 1
        loop {repeats}
        v_rd wide, {sheet["x"]}, row=1
        vv_mul {sheet["a"]}
        vv_add {sheet["b"]}
        v_relu
        vv_mul {sheet["b"]}
        v_relu
        v_wr wide, {sheet["y"]}, row=1
        end_loop
        halt
    """
    return sheet.image(assemble(text), {"name": "elementwise", "macs": 0})

"""Small programs whose cycle counts say how well the pipe is fed."""

from __future__ import annotations

import numpy as np

from concord.image import Image
from concord.program.allocator import Allocator
from concord.program.assembler import assemble
from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId


def products(config: NpuConfig, outputs: int, inputs: int, repeats: int) -> Image:
    """``repeats`` independent products of one ``outputs`` by ``inputs`` matrix with one vector."""
    allocator = Allocator(config)
    allocator.input("x", (inputs,), region=RegionId.NARROW)
    allocator.output("y", (outputs,))
    allocator.matrix("w", np.random.default_rng(1).normal(0, 1 / np.sqrt(inputs), (outputs, inputs)))
    text = f"""
        set_shape {allocator.tiles(outputs)}, {allocator.tiles(inputs)}
        loop {repeats}
        v_rd narrow, {allocator["x"]}
        mv_mul {allocator["w"]}
        v_wr wide, {allocator["y"]}, row=1
        end_loop
        halt
    """
    return allocator.image(assemble(text), {"name": f"{outputs}x{inputs}", "macs": repeats * outputs * inputs})


def elementwise(config: NpuConfig, vectors: int, repeats: int) -> Image:
    """``repeats`` chains over ``vectors`` wide vectors with every block of both multifunction units in use."""
    allocator = Allocator(config)
    shape = (vectors * config.native,)
    allocator.input("x", shape)
    allocator.output("y", shape)
    allocator.constant("a", np.full(config.native, 0.5))
    allocator.constant("b", np.full(config.native, 0.25))
    text = f"""
        set_shape {vectors}, 1
        loop {repeats}
        v_rd wide, {allocator["x"]}, row=1
        vv_mul {allocator["a"]}
        vv_add {allocator["b"]}
        v_relu
        vv_mul {allocator["b"]}
        v_relu
        v_wr wide, {allocator["y"]}, row=1
        end_loop
        halt
    """
    return allocator.image(assemble(text), {"name": "elementwise", "macs": 0})

"""Programs that write rows of the matrix memory, and what the reference machine computes with them."""

import random

import numpy as np

from concord.derive import ir
from concord.derive.flags import every
from concord.emulator.reference import ReferenceMachine
from concord.image import Image, Memories, Port
from concord.program.assembler import assemble
from concord.program.flags import diagnose_flags
from concord.spec.formats import Flag
from concord.spec.memmap import RegionId
from support.derived_modules import image_of_memories
from support.program_gen import random_program
from support.rtl_configs import WRITABLE, WRITABLE_ENGINES, WRITABLE_WINDOWS

#: The last one has products of more bits than float64.
CONFIGS = {
    "tiny": WRITABLE,
    "two engines": WRITABLE_ENGINES,
    "windows": WRITABLE_WINDOWS,
    "wide": WRITABLE.replace(name="tiny-writable-wide", act_mant=12, wgt_mant=12, wgt_exp_max=4, acc_width=68),
}

#: Three times: rows of a matrix, their product with the state, and the state that follows, as halves and as blocks.
OVERWRITTEN = """
set_addr 1, 8
set_addr 2, 40
loop 3
set_iters inner=4
set_quant mode=dynamic
v_rd wide, 0, reg=1, inner=1
m_wr 8, inner=1
set_iters
v_rd narrow, 0
mv_mul 8
vv_add 0, reg=1
v_wr wide, 0, reg=2
v_wr narrow, 0
inc_addr 1, 4
inc_addr 2, 1
end_loop
halt
"""

#: A row more in every iteration, and its product with the rows so far.
GROWING = """
set_addr 1, 8
set_addr 2, 0
set_addr 3, 40
loop 4
v_rd wide, 0, reg=1
m_wr 8, reg=2
v_rd narrow, 0
mv_mul 8
v_wr wide, 0, reg=3
inc_addr 1, 1
inc_addr 2, 1
inc_addr 3, 1
end_loop
halt
"""


def image_of(text, config=WRITABLE, rows=12):
    """An image of a program in an otherwise empty memory, with a state, rows, and results."""
    n = config.native
    return Image(
        config,
        tuple(assemble(text)),
        (),
        (Port("state", RegionId.NARROW, 0, (n,)), Port("rows", RegionId.WIDE, 8, (rows, n))),
        (Port("results", RegionId.WIDE, 40, (4, n)), Port("last", RegionId.NARROW, 0, (n,))),
    )


def on_reference(image, inputs):
    """Outputs of the reference machine, every sample from the memories of the image; flags by place and sample."""
    outputs = {port.name: [] for port in image.outputs}
    flags = {}
    for sample in range(len(next(iter(inputs.values())))):
        memories = Memories.of(image)
        for port in image.inputs:
            memories.write(port.region, port.address, port.encode(inputs[port.name][sample], image.config))
        with np.errstate(all="ignore"):  # infinities and NaNs
            ReferenceMachine(memories).run()
            for port in image.outputs:
                words = memories.read(port.region, port.address, port.vectors(image.config))
                outputs[port.name].append(port.decode(words, image.config))
        raised = {pc: [flag for flag in Flag if word >> flag & 1] for pc, word in enumerate(memories.flags.tolist())}
        for one in diagnose_flags(image, {pc: found for pc, found in raised.items() if found}):
            samples = flags.setdefault(one.where, {}).setdefault(one.flag, [])
            samples += [sample] * (sample not in samples)
    return {name: np.stack(values) for name, values in outputs.items()}, flags


def products_of(model):
    """Products of two values."""
    return [node for node in every(model.body) if isinstance(node, ir.ProductOf)]


def random_image(config, seed):
    """An image of a random program of products that read whole tiles."""
    return image_of_memories(*random_program(config, random.Random(seed), 8, whole_tiles=True))

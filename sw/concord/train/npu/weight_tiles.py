"""Tiles of the weights of products, written from their narrow words."""

from __future__ import annotations

from concord.program.chains import Address, ChainLoops
from concord.spec.isa import Mem
from concord.train.npu.chains import ChainWriter, VectorPlace
from concord.train.npu.plan import ProductMemory, TrainingMemory


def write_weight_tiles(writer: ChainWriter, memory: TrainingMemory, own: ProductMemory) -> None:
    """Write all tiles of a product; of a diagonal tile column n is the vector of its weights, where only n is left.

    Parameters
    ----------
    writer : ChainWriter
        Where to.
    memory : TrainingMemory
        Of the network.
    own : ProductMemory
        Of the product.
    """
    if not own.diagonal:
        weights = VectorPlace(Mem.NARROW, own.words(own.weight, 1))
        writer.chain(own.loops, weights, columns=own.columns, tile_rows=own.tile_rows)
        return
    writer.chain(
        ChainLoops(own.lanes, own.weight_words),
        VectorPlace(Mem.NARROW, Address(own.weight, 0, 1)),
        operand=VectorPlace(Mem.NARROW, Address(memory.units, 1)),
        columns=Address(own.tiles * own.native, 1, own.native),
        mask=1,
    )

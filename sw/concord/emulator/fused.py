"""Chains prepared for the compiled kernels, and which chains these can compute."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from types import ModuleType

import numpy as np

from concord.emulator import kernels
from concord.emulator.lanes import Lanes
from concord.program import Chain, Quant
from concord.spec.config import NpuConfig
from concord.spec.formats import ExponentMode, Rounding
from concord.spec.isa import Mem
from concord.utils.arrays import Float32s, Ids
from concord.utils.extras import install_command

#: Values of batches after which the kernels are loaded: NumPy takes a second or two for so many.
_WORTH_LOADING = 1 << 27
#: Smaller batches do not count: whoever runs samples one by one waits for each of them.
_LEAST_BATCH = 16
_NOWHERE = np.zeros(0, dtype=np.int64)
_NO_TABLE: Float32s = np.zeros(0, dtype=np.float32)


@cache
def installed() -> bool:
    """True if Numba is installed."""
    return find_spec("numba") is not None


@cache
def compiled() -> ModuleType:
    """The kernels. Loading them takes half a second; compiling them, once on a computer, four seconds more."""
    from concord.emulator import compiled

    return compiled


def ready() -> bool:
    """True if the kernels are loaded."""
    return bool(compiled.cache_info().currsize)


class LoadRule:
    """Decides whether an emulator uses the kernels.

    Parameters
    ----------
    wanted : bool or None
        As ``compiled`` of :class:`Emulator`.
    """

    def __init__(self, wanted: bool | None):
        if wanted and not installed():
            raise ModuleNotFoundError(
                f"compiled kernels need Numba: {install_command('fast')}, or leave compiled out", name="numba"
            )
        self._wanted, self._computed = wanted, 0

    def fast(self, batch: int, values: int) -> bool:
        """True if the kernels are used for a batch of runs with ``values`` values each, which is counted."""
        if self._wanted is not None:
            return self._wanted
        if batch >= _LEAST_BATCH:
            self._computed += batch * values
        return installed() and (ready() or self._computed >= _WORTH_LOADING)


def possible(chain: Chain) -> bool:
    """True if the kernels have all operations of a chain after its source."""
    return not chain.converts or chain.quant.rounding is Rounding.NEAREST_EVEN


class FusedPass:
    """Multifunction units and destinations for some vectors of a chain, in one call.

    Parameters
    ----------
    config : NpuConfig
    rows : Index
        Numbers of the rows with the first elements of the vectors; any shape.
    targets : dict of Ids
        Addresses to write, by memory.
    quant : Quant
        How vectors become narrow; nearest even.
    chain : Chain or None
        Whose operations are executed; none if left out.
    operands : sequence of Ids or None
        Addresses, one array per operation.
    matrix : Index or None
        Places of rows of tiles to write, if there are any.
    """

    def __init__(
        self,
        config: NpuConfig,
        rows: Ids,
        targets: dict[Mem, Ids],
        quant: Quant,
        chain: Chain | None = None,
        operands: Sequence[Ids | None] = (),
        matrix: Ids | None = None,
    ):
        self.shape, self.rows = rows.shape, rows.ravel()
        self._mfu_ops = () if chain is None else chain.mfu_ops
        self._ops = np.array([mfu_op.op for mfu_op in self._mfu_ops], dtype=np.int64)
        none = np.zeros(len(self.rows), dtype=np.int64)
        places = [none if index is None else index.ravel() * config.native for index in operands]
        self._operands = np.array(places, dtype=np.int64).reshape(len(operands), len(self.rows))
        self._into_matrix = matrix is not None
        blocks, fmt = (targets.get(Mem.NARROW), config.act) if matrix is None else (matrix, config.wgt)
        self._wide, self._blocks = (
            _NOWHERE if index is None else np.ascontiguousarray(index).ravel()
            for index in (targets.get(Mem.WIDE), blocks)
        )
        fixed = 2.0 ** quant.within(fmt).exp if quant.mode is ExponentMode.STATIC else 0.0
        ends = (fixed, 2.0**-fmt.headroom, 2.0**fmt.exp_min, 2.0**fmt.exp_max, fmt.q_max)
        self._quant = np.array(ends, dtype=np.float32)
        self._descriptors: Float32s | None = None

    def run(
        self,
        first: int,
        lanes: Lanes,
        x: Float32s,
        sums: bool,
        slots: Sequence[dict[str, int]] = (),
        table: Float32s = _NO_TABLE,
        stop: int | None = None,
    ) -> tuple[int, int]:
        """Compute vectors from number ``first`` on, up to ``stop`` if it is given.

        ``x`` has the values as rows of lanes. They are rounded to binary16; if they are exact ``sums``, zeros are +0.

        Returns
        -------
        vector, flags : int
            Number of the first vector that is left alone, because it has values that are not finite or because all are
            done; flags of those before.
        """
        if self._descriptors is None:
            self._descriptors = self._described(slots, table)
        flags = lanes.pool.take("flags", (1,), np.int64)
        flags[0] = 0
        blocks, _ = lanes.blocks(self._into_matrix)
        in_numba = compiled()
        vector = in_numba.finish(
            first,
            len(self.rows) if stop is None else stop,
            in_numba.ChainVectors(x, self.rows, np.float32(0.0 if sums else -0.0)),
            in_numba.MfuSteps(self._ops, self._operands, self._descriptors, table),
            in_numba.VectorMemories(lanes.wide_rows, blocks.rows, blocks.scale, blocks.grain),
            in_numba.VectorPlaces(self._wide, self._blocks, self._quant),
            lanes.pool.take("tile", (lanes.config.native, lanes.batch)),
            flags,
        )
        return vector, int(flags[0])

    def _described(self, slots: Sequence[dict[str, int]], table: Float32s) -> Float32s:
        """Descriptors of the tables, as the kernels have them; exact, their fields have few bits."""
        descriptors: Float32s = np.zeros((len(self._mfu_ops), 6), dtype=np.float32)
        for k, mfu_op in enumerate(self._mfu_ops):
            if mfu_op.table is not None:
                slot = slots[mfu_op.table]
                kernels.check_slot(slot, table)
                ends = (slot["low"], slot["high"], slot["offset"], slot["settled_low"], slot["settled_high"])
                descriptors[k] = (2.0 ** slot["scale"], *ends)
        return descriptors

"""Tables of activation functions, the hardware's and composed ones alike [transfer-lut]."""

from __future__ import annotations

from concord.compiler.layers import Functions
from concord.spec.config import NpuConfig
from concord.tables import Table, standard_range
from concord.transfer import Binary16, TableIndex, transfer_table


def activation_table(functions: Functions, config: NpuConfig, entries: int) -> Table:
    """A table of functions applied one after the other, over the domain of the first one.

    Parameters
    ----------
    functions : Functions
        In the order of application; only the last result is rounded.
    config : NpuConfig
        Its table memory limits the codes.
    entries : int
        Greatest number of entries.
    """
    source = TableIndex(*standard_range(functions[0][0], config, entries))
    operators = [(name, dict(parameters)) for name, parameters in functions]
    return transfer_table(source, operators, Binary16()).npu_table()

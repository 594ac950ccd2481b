"""The functions between layers as integer tables, computed once and looked up [transfer-lut]; see docs/tables.md.

scheme
    What the two sides of a table are, and binary16 entries.
schemes
    Uniform affine, asymmetric, symmetric and fixed-point codes, and the index of the NPU's tables.
operators
    Functions by name or given by the caller, composed.
table
    Tables, and how they are computed.
store
    The tables of a network, equal ones once, and their file.
"""

from concord.transfer.operators import PointwiseOperator as PointwiseOperator
from concord.transfer.scheme import Binary16 as Binary16
from concord.transfer.scheme import CodeRange as CodeRange
from concord.transfer.scheme import Scheme as Scheme
from concord.transfer.scheme import TableTarget as TableTarget
from concord.transfer.schemes import FixedPoint as FixedPoint
from concord.transfer.schemes import MinMax as MinMax
from concord.transfer.schemes import Symmetric as Symmetric
from concord.transfer.schemes import TableIndex as TableIndex
from concord.transfer.schemes import UniformAffine as UniformAffine
from concord.transfer.store import TransferError as TransferError
from concord.transfer.store import TransferSet as TransferSet
from concord.transfer.table import TransferTable as TransferTable
from concord.transfer.table import transfer_table as transfer_table

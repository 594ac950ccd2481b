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

from .operators import Operator as Operator
from .scheme import Binary16 as Binary16
from .scheme import CodeRange as CodeRange
from .scheme import Scheme as Scheme
from .scheme import Target as Target
from .schemes import FixedPoint as FixedPoint
from .schemes import MinMax as MinMax
from .schemes import Symmetric as Symmetric
from .schemes import TableIndex as TableIndex
from .schemes import UniformAffine as UniformAffine
from .store import TransferError as TransferError
from .store import TransferSet as TransferSet
from .table import TransferTable as TransferTable
from .table import transfer_table as transfer_table

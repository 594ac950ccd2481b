"""The functions between layers as integer tables, computed once and looked up [transfer-lut]; see docs/tables.md.

targets
    The two sides of a table: codes, and binary16 entries.
operators
    Functions by name or given by the caller, composed.
table
    Tables, and how they are computed.
store
    The tables of a network, equal ones once, and their file.
"""

from concord.golden.codes import CodeRange as CodeRange
from concord.golden.codes import Codes as Codes
from concord.transfer.operators import PointwiseOperator as PointwiseOperator
from concord.transfer.store import TransferError as TransferError
from concord.transfer.store import TransferSet as TransferSet
from concord.transfer.table import TransferTable as TransferTable
from concord.transfer.table import transfer_table as transfer_table
from concord.transfer.targets import Binary16 as Binary16
from concord.transfer.targets import TableTarget as TableTarget
from concord.transfer.targets import table_index as table_index

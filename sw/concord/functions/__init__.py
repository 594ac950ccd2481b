"""Functions of one element: what is known of each, bounds on it, and its tables.

record, catalogue
    What is known of a function, and the records of all there are: everything else reads them.
exact, float64, interval_bounds
    What records are made of: values as fractions or decimals of 60 digits, values in double precision, and bounds.
intervals
    Interval arithmetic in float64.
tables
    Tables of binary16 entries, correctly rounded.
table_ends
    Whether the entry of an end stands for all numbers beyond it.
segmented
    Functions that several tables divide among them.
"""

from concord.functions.catalogue import FUNCTIONS as FUNCTIONS
from concord.functions.catalogue import by_onnx_name as by_onnx_name
from concord.functions.catalogue import by_recurrent_name as by_recurrent_name
from concord.functions.catalogue import evaluate as evaluate
from concord.functions.catalogue import function as function
from concord.functions.catalogue import trainable as trainable
from concord.functions.exact import ExactFunction as ExactFunction
from concord.functions.exact import Number as Number
from concord.functions.interval_bounds import IntervalBounds as IntervalBounds
from concord.functions.record import Function as Function
from concord.functions.segmented import TableSegment as TableSegment
from concord.functions.tables import Table as Table
from concord.functions.tables import TableSet as TableSet
from concord.functions.tables import build_table as build_table
from concord.functions.tables import standard_table as standard_table

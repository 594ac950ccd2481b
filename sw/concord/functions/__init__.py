"""Functions of one element: what they are, bounds on them, and their tables.

exact
    Values as fractions, or as decimals of 60 digits.
float64
    Values in double precision, for arrays: the reference in floating point.
intervals, interval_bounds
    Interval arithmetic in float64, and bounds on the functions made with it.
tables
    Tables of binary16 entries, correctly rounded.
table_ends
    Whether the entry of an end stands for all numbers beyond it.
segmented
    Functions that several tables divide among them.
"""

from concord.functions.exact import FUNCTIONS as FUNCTIONS
from concord.functions.exact import Function as Function
from concord.functions.exact import Number as Number
from concord.functions.exact import function as function
from concord.functions.float64 import FLOAT_FUNCTIONS as FLOAT_FUNCTIONS
from concord.functions.float64 import evaluate as evaluate
from concord.functions.interval_bounds import ENCLOSURES as ENCLOSURES
from concord.functions.interval_bounds import Enclosure as Enclosure
from concord.functions.interval_bounds import enclosure as enclosure
from concord.functions.segmented import Part as Part
from concord.functions.tables import Table as Table
from concord.functions.tables import TableSet as TableSet
from concord.functions.tables import build_table as build_table
from concord.functions.tables import standard_table as standard_table

"""Operations of the multifunction units on every element: what is known of each, in one place.

record, catalogue
    What is known of an operation, and the records of all there are: everything else reads them. Tables are
    :mod:`concord.golden.table`.
float32
    The operations on float32 arrays, as the emulator executes them.
numpy_text, torch_text, onnx_text
    The operations in derived software: texts that become parts of files.
"""

from concord.operations.catalogue import OPERATIONS as OPERATIONS
from concord.operations.record import ElementwiseOperation as ElementwiseOperation
from concord.operations.record import Ends as Ends

"""Software that executes a quantised network on its codes, as :mod:`concord.integer` does.

arrays, library
    The operations on arrays that a writer must have, and those that it needs only of a library.
requantise
    Codes of accumulators by every rule, made of these.
lowering, fixed_point, npu_codes
    Operations of an integer graph, made of both.
numpy_functions, torch_functions, python_file
    Files of Python for NumPy and PyTorch.
onnx_writer, onnx_file
    ONNX graphs.
"""

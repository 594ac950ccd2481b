"""Software that executes a quantised network on its codes, as :mod:`concord.integer` does.

arrays
    The operations on arrays that a library must have.
lowering
    Operations of an integer graph, made of these.
numpy_functions, torch_functions, python_file
    Files of Python for NumPy and PyTorch.
onnx_writer, onnx_file
    ONNX graphs.
"""

"""A survey of reach: networks such as people bring, compiled, run and compared with ONNX Runtime (docs/reach.md)."""

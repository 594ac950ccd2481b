"""Speed of a derived ONNX graph in ONNX Runtime: ``python tests/derive_speed.py model.onnx [BATCH [THREADS]]``."""

from __future__ import annotations

import sys
import time

import numpy as np
import onnxruntime


def main(path, batch=8, threads=1):
    """Print the best of ten runs on random samples."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(threads)
    session = onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    inputs = {given.name: rng.normal(size=(int(batch), *given.shape[1:])) for given in session.get_inputs()}
    best = busy = np.inf
    for _ in range(10):
        begin, before = time.perf_counter(), time.process_time()
        session.run(None, inputs)
        best, busy = min(best, time.perf_counter() - begin), min(busy, time.process_time() - before)
    rates = f"{int(batch) / best:.1f} samples per second, {int(batch) / busy:.1f} per second of processor time"
    print(f"{path}: {rates}, batches of {batch}, {threads} threads")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Common steps of exporters: ONNX without what is about the machine of the user, and with where it comes from."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Key of the metadata that say where a model comes from.
SOURCE = "concord.source"


def finished(proto: Any, source: str) -> bytes:
    """The contents of the file of a ``ModelProto``, which says where it comes from.

    What exporters write about the sources that a node is from, with names of folders, is left out.
    """
    for node in proto.graph.node:
        del node.metadata_props[:]
        node.ClearField("doc_string")
    for value in (*proto.graph.value_info, *proto.graph.input, *proto.graph.output, *proto.graph.initializer):
        del value.metadata_props[:]
    del proto.graph.metadata_props[:]
    del proto.metadata_props[:]
    proto.metadata_props.add(key=SOURCE, value=source)
    return bytes(proto.SerializeToString())


@contextmanager
def quiet() -> Iterator[None]:
    """While an exporter works, neither warnings nor notes in the log: they are about what it does itself."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


def first_line(error: BaseException) -> str:
    """First line that an error of an exporter says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__

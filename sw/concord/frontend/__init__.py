"""Networks from ONNX files."""

from concord.frontend.errors import UnsupportedModel
from concord.frontend.importer import import_model, reference_graph

__all__ = ["UnsupportedModel", "import_model", "reference_graph"]

"""Conformance: operators × devices, and the node suite of the ``onnx`` package."""

"""ONNX files: bytes by range, the protobuf wire format, model records and the importer."""

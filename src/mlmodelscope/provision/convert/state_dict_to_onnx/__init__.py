"""A torch state dict, read without torch, to an ONNX model of a known architecture."""

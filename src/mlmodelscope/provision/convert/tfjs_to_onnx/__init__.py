"""A TensorFlow.js layers model (Keras) to an ONNX model with the same names, layout and answers."""

"""The name of a Keras layer to the function that adds it to the graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mlmodelscope.provision.convert.tfjs_to_onnx import activations, dense, spatial
from mlmodelscope.provision.convert.tfjs_to_onnx.layer import Layer, Value

__all__ = ["LAYERS", "MERGES", "Emit"]

Emit = Callable[[Layer, Sequence[Value]], Value]

LAYERS: dict[str, Emit] = {
    "Activation": activations.activation,
    "ActivityRegularization": dense.identity,
    "Add": dense.add,
    "AlphaDropout": dense.identity,
    "Average": dense.average,
    "AveragePooling2D": spatial.average_pooling,
    "BatchNormalization": dense.batch_normalization,
    "BatchNormalizationV1": dense.batch_normalization,
    "Concatenate": dense.concatenate,
    "Conv2D": spatial.conv,
    "Cropping2D": spatial.cropping,
    "Dense": dense.dense,
    "DepthwiseConv2D": spatial.depthwise_conv,
    "Dropout": dense.identity,
    "ELU": activations.elu,
    "Flatten": dense.flatten,
    "GaussianDropout": dense.identity,
    "GaussianNoise": dense.identity,
    "GlobalAveragePooling2D": spatial.global_average_pooling,
    "GlobalMaxPooling2D": spatial.global_max_pooling,
    "LeakyReLU": activations.leaky_relu,
    "MaxPooling2D": spatial.max_pooling,
    "Maximum": dense.maximum,
    "Minimum": dense.minimum,
    "Multiply": dense.multiply,
    "PReLU": activations.prelu,
    "ReLU": activations.relu,
    "Rescaling": dense.rescaling,
    "Reshape": dense.reshape,
    "SeparableConv2D": spatial.separable_conv,
    "Softmax": activations.softmax,
    "SpatialDropout2D": dense.identity,
    "Subtract": dense.subtract,
    "ZeroPadding2D": spatial.zero_padding,
}

# The layers that take several inputs; every other takes one.
MERGES = frozenset(("Add", "Average", "Concatenate", "Maximum", "Minimum", "Multiply", "Subtract"))

"""The messages of inference.proto as classes; the .pyi file beside this one is generated, and says which there are."""

from mlmodelscope.rpc.descriptors import load_messages

globals().update(load_messages("inference"))

"""The converter `tfjs-to-onnx`: a model.json with its shards to an ONNX file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mlmodelscope.provision.convert.source import check_options, code_digest, reading, write_target

__all__ = ["CONVERTER", "TfjsToOnnx"]


class TfjsToOnnx:
    """Inputs and outputs keep Keras' names and layout (channels last); the batch dimension is free."""

    name = "tfjs-to-onnx"
    extension = ".onnx"

    def companions(self, source: Path) -> list[str]:
        """The shards that the model names; a path that leaves the model's folder is a ConvertError."""
        from mlmodelscope.provision.convert.tfjs_to_onnx.manifest import read_model_file

        with reading(source):
            return read_model_file(source).shard_paths()

    def convert(self, source: Path, target: Path, options: Mapping[str, str]) -> None:
        """Takes no options."""
        from mlmodelscope.provision.convert.graph import GraphBuilder
        from mlmodelscope.provision.convert.tfjs_to_onnx.layer import WeightStore
        from mlmodelscope.provision.convert.tfjs_to_onnx.manifest import read_model_file, read_weights
        from mlmodelscope.provision.convert.tfjs_to_onnx.model import build_model

        check_options(options, ())
        graph = GraphBuilder("keras")
        with reading(source):
            file = read_model_file(source)
            weights = WeightStore(read_weights(source.parent, file.groups))
            outputs = build_model(file.model, graph, weights)
        write_target(target, graph.finish(outputs))

    def digest(self) -> str:
        return code_digest(Path(__file__).parent)


CONVERTER = TfjsToOnnx()

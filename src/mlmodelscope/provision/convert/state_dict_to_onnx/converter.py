"""The converter `state-dict-to-onnx`: a .pt or .pth file and an architecture's name to an ONNX file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mlmodelscope.core.errors import ConvertError, UnknownNameError
from mlmodelscope.provision.convert.source import check_options, code_digest, reading, write_target

__all__ = ["CONVERTER", "StateDictToOnnx"]


class StateDictToOnnx:
    """Input `input` is NCHW float32, output `logits`; the batch dimension is free."""

    name = "state-dict-to-onnx"
    extension = ".onnx"

    def companions(self, source: Path) -> list[str]:
        return []

    def convert(self, source: Path, target: Path, options: Mapping[str, str]) -> None:
        """Option `architecture` (required): a name in ARCHITECTURES."""
        from mlmodelscope.provision.convert.graph import GraphBuilder
        from mlmodelscope.provision.convert.state_dict_to_onnx.architectures import ARCHITECTURES
        from mlmodelscope.provision.convert.state_dict_to_onnx.torch_file import read_state_dict
        from mlmodelscope.provision.convert.state_dict_to_onnx.weights import Weights

        check_options(options, ("architecture",))
        architecture = options.get("architecture")
        if architecture is None:
            known = ", ".join(ARCHITECTURES)
            raise ConvertError(f"{self.name} needs the option 'architecture'", hint=f"one of {known}")
        if architecture not in ARCHITECTURES:
            raise UnknownNameError("architecture", architecture, ARCHITECTURES)
        graph = GraphBuilder(architecture)
        with reading(source):
            weights = Weights(read_state_dict(source))
            output = ARCHITECTURES[architecture](graph, weights)
            weights.check(architecture)
        write_target(target, graph.finish([output]))

    def digest(self) -> str:
        return code_digest(Path(__file__).parent)


CONVERTER = StateDictToOnnx()

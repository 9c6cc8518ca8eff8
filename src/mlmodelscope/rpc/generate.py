"""Turns the .proto files into what the package keeps of them: `python -m mlmodelscope.rpc.generate`.

Needs grpcio-tools. For each file its description (`.binpb`), from which the classes are made when they are first used,
and a stub (`.pyi`) that tells type checkers and people what is in them.
"""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path

from mlmodelscope.rpc.descriptors import HERE

__all__ = ["generated"]


def generated() -> dict[Path, bytes]:
    """Every generated file and what it should hold."""
    protoc = importlib.import_module("grpc_tools.protoc")
    found: dict[Path, bytes] = {}
    for source in sorted(HERE.glob("*.proto")):
        with tempfile.TemporaryDirectory() as folder:
            description = Path(folder) / "description"
            arguments = [f"-I{HERE}", f"--descriptor_set_out={description}", f"--pyi_out={folder}", source.name]
            if protoc.main(["protoc", *arguments]) != 0:
                raise SystemExit(f"protoc refused {source}")
            found[source.with_suffix(".binpb")] = description.read_bytes()
            stub = f"{source.stem}_pb2.pyi"
            found[HERE / stub] = (Path(folder) / stub).read_bytes()
    return found


if __name__ == "__main__":
    for path, content in generated().items():
        path.write_bytes(content)

"""A network folder -> the same network for PyTorch: torch.export (model.pt2), TorchScript (model.pt), and weights.

The module returns a dictionary, so that the outputs keep their names in both formats.
"""

import sys
import warnings
from pathlib import Path
from typing import Any

from reading import arguments, read_network, write_files

# this folder holds files named after frameworks, which would hide the frameworks themselves
sys.path.pop(0)

import torch

__all__ = ["Network", "main"]


class Network(torch.nn.Module):
    """The layers of `network.json` as modules of their names."""

    def __init__(self, network: dict[str, Any], weights: dict[str, Any]) -> None:
        super().__init__()
        self._layers = network["layers"]
        self._input = network["inputs"][0]["name"]
        self._outputs = network["outputs"]
        for layer in self._layers:
            module = _module(layer, weights)
            if module is not None:
                setattr(self, layer["name"], module)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        values = {self._input: x}
        for layer in self._layers:
            name = layer["name"]
            if layer["op"] == "add":
                first, second = layer["inputs"]
                values[name] = values[first] + values[second]
            elif layer["op"] == "mean":
                values[name] = values[layer["input"]].mean(dim=(2, 3))
            else:
                values[name] = getattr(self, name)(values[layer["input"]])
        return {name: values[name] for name in self._outputs}


def _module(layer: dict[str, Any], weights: dict[str, Any]) -> torch.nn.Module | None:
    op = layer["op"]
    if op == "relu":
        return torch.nn.ReLU()
    if op == "softmax":
        return torch.nn.Softmax(dim=-1)
    if op not in ("conv", "dense"):
        return None
    weight, bias = (torch.from_numpy(weights[layer[key]].copy()) for key in ("weight", "bias"))
    if op == "conv":
        outward, inward, height, width = weight.shape
        module = torch.nn.Conv2d(inward, outward, (height, width), layer["stride"], layer["pad"])
    else:
        module = torch.nn.Linear(weight.shape[1], weight.shape[0])
    module.load_state_dict({"weight": weight, "bias": bias})
    return module


def main() -> None:
    folder, output, batch = arguments()
    path = str(Path(output) / "model")
    network, weights = read_network(folder)
    module = Network(network, weights).eval().requires_grad_(False)
    sizes = network["inputs"][0]["shape"]
    # an example of one sample would fix the batch dimension for good
    example = torch.zeros([batch or 2, *sizes])
    open_sizes = None if batch else ({0: torch.export.Dim("batch", min=1)},)
    program = torch.export.export(module, (example,), dynamic_shapes=open_sizes)
    torch.export.save(program, path + ".pt2")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.trace(module, example, strict=False).save(path + ".pt")
    torch.save(module.state_dict(), path + ".pth")
    write_files(output, "model.pt2")


if __name__ == "__main__":
    main()

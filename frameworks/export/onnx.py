"""A network folder -> network.onnx, for every engine that reads ONNX: `python onnx.py NETWORK_FOLDER OUT_FOLDER`."""

import os

from onnxfile import onnx_model
from reading import arguments, read_network, write_files


def main() -> None:
    source, folder, batch = arguments()
    network, weights = read_network(source)
    with open(os.path.join(folder, "network.onnx"), "wb") as file:
        file.write(onnx_model(network, weights, batch))
    write_files(folder, "network.onnx")


if __name__ == "__main__":
    main()

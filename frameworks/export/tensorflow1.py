"""A network folder -> a frozen graph (TensorFlow 1.15, or 2.x by its old interface)."""

from pathlib import Path

from reading import arguments, read_network, write_files
from tensorflowlayers import build, framework, input_shape, layout, ordered


def main() -> None:
    folder, output, batch = arguments()
    network, arrays = read_network(folder)
    tf = framework()
    with tf.Graph().as_default() as graph:
        inputs = {
            layer["name"]: tf.compat.v1.placeholder(tf.float32, input_shape(layer, batch), layer["name"])
            for layer in network["inputs"]
        }
        with tf.name_scope("network"):
            results = build(tf, network, ordered(network, arrays), inputs)
        for name in network["outputs"]:
            tf.identity(results[name], name)
    (Path(output) / "model.pb").write_bytes(graph.as_graph_def().SerializeToString())
    write_files(output, "model.pb", layout=layout(network))


if __name__ == "__main__":
    main()

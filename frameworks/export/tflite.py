"""A network folder -> a TensorFlow Lite model in float32, by the converter of TensorFlow 2."""

from pathlib import Path

from reading import arguments, read_network, write_files
from tensorflowlayers import build, framework, input_shape, layout, ordered


def main() -> None:
    folder, output, batch = arguments()
    network, arrays = read_network(folder)
    tf = framework()
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        inputs = {
            layer["name"]: v1.placeholder(tf.float32, input_shape(layer, batch), layer["name"])
            for layer in network["inputs"]
        }
        with tf.name_scope("network"):
            results = build(tf, network, ordered(network, arrays), inputs)
        outputs = [tf.identity(results[name], name) for name in network["outputs"]]
        # of a function the converter would keep the results, but not their names
        converted = v1.lite.TFLiteConverter.from_session(session, list(inputs.values()), outputs).convert()
    (Path(output) / "model.tflite").write_bytes(converted)
    write_files(output, "model.tflite", layout=layout(network))


if __name__ == "__main__":
    main()

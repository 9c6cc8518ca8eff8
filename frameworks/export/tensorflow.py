"""A network folder -> a SavedModel, and the same network as a .keras file (TensorFlow 2)."""

from pathlib import Path
from typing import Any, Dict, Optional

from reading import arguments, read_network, write_files
from tensorflowlayers import build, framework, input_shape, layout, ordered

__all__ = ["keras_model", "saved_model"]


def saved_model(tf: Any, network: Dict[str, Any], arrays: Dict[str, Any], batch: Optional[int]) -> Any:
    """A module whose one function takes the inputs and gives the outputs by their names."""
    module = tf.Module()
    module.weights = {name: tf.Variable(array, name=name) for name, array in arrays.items()}
    names = [layer["name"] for layer in network["inputs"]]
    specs = [tf.TensorSpec(input_shape(layer, batch), tf.float32, layer["name"]) for layer in network["inputs"]]

    def run(*tensors: Any) -> Dict[str, Any]:
        results = build(tf, network, module.weights, dict(zip(names, tensors)))
        return {name: results[name] for name in network["outputs"]}

    module.run = tf.function(run, input_signature=specs, autograph=False)
    return module


def keras_model(tf: Any, network: Dict[str, Any], arrays: Dict[str, Any], batch: Optional[int]) -> Any:
    """The network of Keras layers of the same names."""
    tensors: Dict[str, Any] = {}
    for layer in network["inputs"]:
        shape = input_shape(layer, batch)
        tensors[layer["name"]] = tf.keras.Input(shape=shape[1:], batch_size=shape[0], name=layer["name"])
    inputs = dict(tensors)
    for layer in network["layers"]:
        source = [tensors[name] for name in layer["inputs"]] if "inputs" in layer else tensors[layer["input"]]
        tensors[layer["name"]] = _keras_layer(tf, layer, source, arrays)
    return tf.keras.Model(list(inputs.values()), [tensors[name] for name in network["outputs"]])


def _keras_layer(tf: Any, layer: Dict[str, Any], source: Any, arrays: Dict[str, Any]) -> Any:
    kind, name, layers = layer["op"], layer["name"], tf.keras.layers
    if kind == "conv":
        weight, pad = arrays[layer["weight"]], layer["pad"]
        padded = layers.ZeroPadding2D(pad, name=name + "_pad")(source) if pad else source
        made = layers.Conv2D(weight.shape[3], weight.shape[:2], layer["stride"], name=name)
        return _filled(made, padded, weight, arrays[layer["bias"]])
    if kind == "dense":
        weight = arrays[layer["weight"]]
        return _filled(layers.Dense(weight.shape[1], name=name), source, weight, arrays[layer["bias"]])
    simple = {
        "relu": lambda: layers.ReLU(name=name),
        "add": lambda: layers.Add(name=name),
        "mean": lambda: layers.GlobalAveragePooling2D(name=name),
        "softmax": lambda: layers.Softmax(name=name),
    }
    return simple[kind]()(source)


def _filled(layer: Any, source: Any, weight: Any, bias: Any) -> Any:
    result = layer(source)
    layer.set_weights([weight, bias])
    return result


def main() -> None:
    folder, output, batch = arguments()
    network, arrays = read_network(folder)
    tf = framework()
    arrays = ordered(network, arrays)
    module = saved_model(tf, network, arrays, batch)
    tf.saved_model.save(module, str(Path(output) / "model"), signatures=module.run)
    keras_model(tf, network, arrays, batch).save(str(Path(output) / "model.keras"))
    write_files(output, "model", layout=layout(network), keras="model.keras")


if __name__ == "__main__":
    main()

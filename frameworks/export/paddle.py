"""A network folder -> a Paddle inference model: the program as JSON (network.json) and its parameters (pdiparams)."""

import os
import sys
import warnings

from reading import arguments, read_network, write_files

# this file has the framework's own name: Python must not take it for the framework
sys.path.pop(0)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about a compiler cache that nothing here needs
    import paddle


def run_layer(layer, values, weights):
    functional = paddle.nn.functional
    kind = layer["op"]
    if kind == "add":
        first, second = layer["inputs"]
        return values[first] + values[second]
    x = values[layer["input"]]
    if kind == "conv":
        weight, bias = parameter(layer["weight"], weights), parameter(layer["bias"], weights)
        return functional.conv2d(x, weight, bias, stride=layer["stride"], padding=layer["pad"])
    if kind == "dense":
        weight, bias = parameter(layer["weight"], weights), parameter(layer["bias"], weights)
        return paddle.matmul(x, weight, transpose_y=True) + bias
    return {"relu": functional.relu, "mean": lambda v: v.mean([2, 3]), "softmax": functional.softmax}[kind](x)


def parameter(name, weights):
    value = weights[name]
    initial = paddle.nn.initializer.Assign(value)
    return paddle.static.create_parameter(
        list(value.shape), "float32", name=name + "_parameter", default_initializer=initial
    )


def main():
    source, folder, batch = arguments()
    network, weights = read_network(source)
    paddle.enable_static()
    program, start = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(program, start):
        inputs = [
            paddle.static.data(given["name"], [batch or -1] + given["shape"], "float32") for given in network["inputs"]
        ]
        values = {given["name"]: value for given, value in zip(network["inputs"], inputs)}
        for layer in network["layers"]:
            values[layer["name"]] = run_layer(layer, values, weights)
        executor = paddle.static.Executor(paddle.CPUPlace())
        executor.run(start)
        prefix = os.path.join(folder, "network")
        outputs = [values[name] for name in network["outputs"]]
        paddle.static.save_inference_model(prefix, inputs, outputs, executor, program=program)
    name_outputs(prefix + ".json", network["outputs"])
    write_files(folder, "network.json", "network.pdiparams")


def name_outputs(path, names):
    """Paddle numbers the outputs and has no call to name them."""
    with open(path) as file:
        text = file.read()
    for place, name in enumerate(names):
        text = text.replace('"fetch_name_{}"'.format(place), '"{}"'.format(name))
    with open(path, "w") as file:
        file.write(text)


if __name__ == "__main__":
    main()

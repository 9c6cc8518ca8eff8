"""A network folder -> one file with a JAX function exported as StableHLO, its batch size symbolic unless fixed."""

import os
import sys

from reading import arguments, read_network, write_files

# this file has the framework's own name: Python must not take it for the framework
sys.path.pop(0)

import jax
import jax.export
import jax.numpy as jnp


def run_layer(layer, values, weights):
    kind = layer["op"]
    if kind == "add":
        first, second = layer["inputs"]
        return values[first] + values[second]
    x = values[layer["input"]]
    if kind == "conv":
        pad = layer["pad"]
        y = jax.lax.conv_general_dilated(
            x, weights[layer["weight"]], (layer["stride"],) * 2, [(pad, pad)] * 2, precision="highest"
        )
        return y + weights[layer["bias"]][None, :, None, None]
    if kind == "dense":
        return jnp.matmul(x, weights[layer["weight"]].T, precision="highest") + weights[layer["bias"]]
    return {"relu": jax.nn.relu, "mean": lambda v: v.mean((2, 3)), "softmax": jax.nn.softmax}[kind](x)


def main():
    source, folder, batch = arguments()
    network, weights = read_network(source)

    def function(inputs):
        values = dict(inputs)
        for layer in network["layers"]:
            values[layer["name"]] = run_layer(layer, values, weights)
        return {name: values[name] for name in network["outputs"]}

    first = batch or jax.export.symbolic_shape("batch")[0]
    taken = {
        given["name"]: jax.ShapeDtypeStruct((first,) + tuple(given["shape"]), jnp.float32)
        for given in network["inputs"]
    }
    exported = jax.export.export(jax.jit(function), platforms=["cpu"])(taken)
    with open(os.path.join(folder, "network.jax"), "wb") as file:
        file.write(exported.serialize())
    write_files(folder, "network.jax")


if __name__ == "__main__":
    main()

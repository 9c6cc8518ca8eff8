"""Turns an engine file or an ONNX model into a TensorRT engine, and into what it may compute in."""

import json
from typing import Any, Dict, List, Tuple

from mlmodelscope.predictors.port import PredictorFault

__all__ = ["build_engine", "logger_of", "read_engine"]

_MEGABYTE = 1 << 20


def logger_of(trt: Any) -> Any:
    return trt.Logger(trt.Logger.ERROR)


def read_engine(trt: Any, path: str) -> Tuple[Any, Dict[str, str]]:
    with open(path, "rb") as file:
        engine = trt.Runtime(logger_of(trt)).deserialize_cuda_engine(file.read())
    if engine is None:
        raise PredictorFault(
            "model_format",
            f"{path} is no engine that TensorRT {trt.__version__} can run on this GPU",
            hint="an engine runs only with the version and the kind of GPU that it was built with; or it is damaged",
            path=path,
            expected=f"an engine of TensorRT {trt.__version__}",
        )
    return engine, {"optimization": "as built", "precision": _precision(trt, engine)}


def build_engine(trt: Any, path: str, options: Dict[str, Any]) -> Tuple[Any, Dict[str, str]]:
    """Nothing is rounded unasked: TF32 is off, and a build in float32 has no other precision to choose."""
    log = logger_of(trt)
    builder = trt.Builder(log)
    network = builder.create_network(_network_flags(trt))
    parser = trt.OnnxParser(network, log)
    if not parser.parse_from_file(path):
        reasons = [str(parser.get_error(index)) for index in range(parser.num_errors)]
        raise PredictorFault(
            "model_format",
            f"TensorRT cannot read {path}: {reasons[0] if reasons else 'no reason given'}",
            hint="the file is damaged, or has an operator that TensorRT does not know",
            path=path,
            error="; ".join(reasons),
        )
    config = builder.create_builder_config()
    precision = options.get("precision", "float32")
    _set_precision(trt, config, precision, options.get("tf32", "off") == "on")
    if "workspace_mb" in options:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, int(options["workspace_mb"]) * _MEGABYTE)
    if hasattr(trt, "ProfilingVerbosity"):
        # without it the layers of the engine cannot be asked what they compute in
        config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    _open_batch(builder, config, network, int(options.get("max_batch", 32)))
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise PredictorFault(
            "predictor_failed",
            f"TensorRT cannot build an engine from {path}",
            hint="int8 needs a model with QuantizeLinear nodes; more workspace_mb may help others",
            path=path,
        )
    engine = trt.Runtime(log).deserialize_cuda_engine(plan)
    level = getattr(config, "builder_optimization_level", "default")
    return engine, {"optimization": f"level {level}", "precision": _precision(trt, engine, precision)}


def _network_flags(trt: Any) -> int:
    flag = getattr(trt.NetworkDefinitionCreationFlag, "EXPLICIT_BATCH", None)
    return 0 if flag is None else 1 << int(flag)


def _set_precision(trt: Any, config: Any, precision: str, is_tf32: bool) -> None:
    flags = trt.BuilderFlag
    (config.set_flag if is_tf32 else config.clear_flag)(flags.TF32)
    wanted = {"float16": ("FP16",), "int8": ("INT8",)}.get(precision, ())  # type: Tuple[str, ...]
    for name in wanted:
        if not hasattr(flags, name):
            raise PredictorFault(
                "predictor_failed",
                f"TensorRT {trt.__version__} takes its precision from the model: it has no switch for {precision}",
                hint="give an ONNX model whose weights have this type",
                option="precision",
                got=precision,
            )
        config.set_flag(getattr(flags, name))


def _open_batch(builder: Any, config: Any, network: Any, max_batch: int) -> None:
    """Gives each open first size the range from 1 to `max_batch`; for other open sizes there is no range to guess."""
    profile = builder.create_optimization_profile()
    is_open = False
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        shape: List[int] = [int(size) for size in tensor.shape]
        if any(size < 0 for size in shape[1:]):
            raise PredictorFault(
                "shape_mismatch",
                f"input {tensor.name!r} has open sizes beside the batch: {shape}",
                hint="build the engine with trtexec and its --minShapes and --maxShapes, and give the .plan file",
                layer=tensor.name,
                expected="fixed sizes behind the first",
                got=shape,
            )
        if shape and shape[0] < 0:
            is_open = True
            profile.set_shape(
                tensor.name, tuple([1] + shape[1:]), tuple([1] + shape[1:]), tuple([max_batch] + shape[1:])
            )
    if is_open:
        config.add_optimization_profile(profile)


def _precision(trt: Any, engine: Any, allowed: str = "unknown") -> str:
    """The types of the layers' results as the engine itself describes them; what was allowed where it does not tell."""
    try:
        described = json.loads(engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON))
        formats = [
            str(output["Format/Datatype"]).lower()
            for layer in described["Layers"]
            for output in layer.get("Outputs", [])
        ]
    except (AttributeError, KeyError, TypeError, ValueError):
        return allowed
    found = []
    for name, signs in (("int8", ("int8",)), ("float16", ("fp16", "half")), ("float32", ("fp32", "float"))):
        if any(sign in text for text in formats for sign in signs):
            found.append(name)
    return "+".join(found) or allowed

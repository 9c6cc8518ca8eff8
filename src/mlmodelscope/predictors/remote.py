"""Turns tensors into tensors with whatever program serves the predictor API at an address.

Options: `address` (HOST:PORT or unix:PATH; `--framework remote@ADDRESS` gives it), `upload` (true sends the model's
files instead of their paths), `shared_memory` (true, the default: tensors pass through memory where the program is on
this machine; false; or the folder to use), `load_seconds` and `predict_seconds` (how long to wait for an answer). All
others are the program's own, and are passed on. Runs in our own environment, never in a framework's.

`version`, `device` and so on are the program's facts; `engine` is the framework that it says it is, and stands before
the provider too. A program with a clock of its own gives the predictor the ability `now_ns` when it has loaded.
"""

from typing import Any, ClassVar, Dict, List, Tuple

from mlmodelscope.predictors.overgrpc import as_fault, calling
from mlmodelscope.predictors.port import (
    PredictorFault,
    check_threads,
    misfit,
    parse_flag,
    parse_seconds,
    unloaded,
)

__all__ = ["Predictor"]

# a query may take a minute before its worker is ended: this fault should come first, because it names the program
_PATIENCE = (("load_seconds", 600.0), ("predict_seconds", 50.0))
_OWN = ("address", "load_seconds", "predict_seconds", "shared_memory", "upload")


class Predictor(object):
    name: ClassVar[str] = "remote"
    packages: ClassVar[Tuple[str, ...]] = ()
    environment: ClassVar[Dict[str, str]] = {"GRPC_VERBOSITY": "NONE"}
    formats: ClassVar[Tuple[str, ...]] = ()
    takes_address: ClassVar[bool] = True

    def __init__(self) -> None:
        self._client: Any = None

    def load(self, model: Dict[str, Any]) -> Dict[str, Any]:
        self.unload()
        check_threads(self.name, model.get("threads", 1))
        own = dict(model.get("options") or {})
        theirs = {key: own.pop(key) for key in list(own) if key not in _OWN}
        address, uploads, folder = _address(own), _flag(own, "upload"), _folder(own)
        patience = {name: _seconds(own, name, default) for name, default in _PATIENCE}
        rpc = calling(self.name)
        try:
            client = rpc.Client(address, folder=folder, **patience)
        except rpc.RpcFault as fault:
            raise as_fault(fault) from fault
        try:
            facts: Dict[str, Any] = client.load(model, theirs, uploads=uploads)
        except BaseException as error:
            client.close()
            if isinstance(error, rpc.RpcFault):
                raise as_fault(error) from error
            raise
        self._client, self._rpc, self._inputs = client, rpc, facts["inputs"]
        if client.is_simulated:
            # the ability belongs to the program, not to this class: whoever asks the object after load sees it
            self.now_ns = lambda: client.simulated_ns
        engine = facts["framework"]
        return dict(facts, framework=self.name, engine=engine, provider=f"{engine}: {facts['provider']}")

    def predict(self, inputs: List[Any]) -> List[Any]:
        if self._client is None:
            raise unloaded(self.name)
        rpc = self._rpc
        try:
            return self._client.predict(inputs)  # type: ignore[no-any-return]
        except rpc.RpcFault as fault:
            raise as_fault(fault) from fault
        except (AttributeError, rpc.GarbledTensor) as error:
            raise misfit(self._inputs, inputs) or PredictorFault(
                "shape_mismatch", str(error), expected=[fact["element_type"] for fact in self._inputs], got=str(error)
            ) from error

    def unload(self) -> None:
        client, self._client = self._client, None
        self.__dict__.pop("now_ns", None)
        if client is not None:
            client.close()


def _address(options: Dict[str, Any]) -> str:
    address = options.get("address")
    if not isinstance(address, str) or not address:
        raise PredictorFault(
            "predictor_failed",
            "remote: no address was given",
            hint="--framework remote@HOST:PORT, or remote@unix:PATH",
            option="address",
        )
    return address


def _seconds(options: Dict[str, Any], name: str, default: float) -> float:
    value = parse_seconds(options.get(name, default))
    if value is None:
        raise _wrong(name, "a number of seconds", options[name])
    return value


def _flag(options: Dict[str, Any], name: str) -> bool:
    value = parse_flag(options.get(name, False))
    if value is None:
        raise _wrong(name, "true or false", options[name])
    return value


def _folder(options: Dict[str, Any]) -> Any:
    value = options.get("shared_memory", True)
    flag = parse_flag(value)
    if flag is None and not isinstance(value, str):
        raise _wrong("shared_memory", "true, false or a folder", value)
    return (value or None) if flag is None else "/dev/shm" if flag else None  # noqa: S108 - as rpc/shared.py


def _wrong(name: str, expected: str, got: Any) -> PredictorFault:
    return PredictorFault(
        "predictor_failed",
        f"remote: option {name} must be {expected}, not {got!r}",
        option=name,
        expected=expected,
        got=got,
    )

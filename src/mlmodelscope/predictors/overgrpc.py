"""Turns the wish to call a program by gRPC into the module that does it, and what that says of failures into faults."""

from typing import Any

from mlmodelscope.predictors.port import PredictorFault

__all__ = ["as_fault", "calling"]


def calling(framework: str) -> Any:
    """What the calls need, imported when it is needed: listing frameworks must not load gRPC."""
    try:
        import grpc  # noqa: F401
        from google.protobuf import message_factory  # noqa: F401
    except ImportError as error:
        raise PredictorFault(
            "environment_missing",
            f"{framework} needs gRPC, which is not installed: {error}",
            hint="pip install 'mlmodelscope[rpc]'",
            framework=framework,
        ) from error
    from mlmodelscope.rpc import calling

    return calling


def as_fault(fault: Any) -> PredictorFault:
    made = PredictorFault(fault.code, fault.message, hint=fault.hint)
    made.fields = fault.fields
    return made

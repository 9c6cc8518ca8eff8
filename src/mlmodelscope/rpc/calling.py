"""What predictors that drive a program by gRPC need of this package, in one import: listing must not load gRPC."""

from mlmodelscope.rpc.channel import parse_address
from mlmodelscope.rpc.client import Client
from mlmodelscope.rpc.faults import RpcFault
from mlmodelscope.rpc.inference import InferenceClient
from mlmodelscope.rpc.tensors import GarbledTensor

__all__ = ["Client", "GarbledTensor", "InferenceClient", "RpcFault", "parse_address"]

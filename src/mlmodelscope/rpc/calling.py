"""What `predictors/remote.py` needs of this package, in one import: listing frameworks must not load gRPC."""

from mlmodelscope.rpc.client import Client
from mlmodelscope.rpc.faults import RpcFault
from mlmodelscope.rpc.tensors import GarbledTensor

__all__ = ["Client", "GarbledTensor", "RpcFault"]

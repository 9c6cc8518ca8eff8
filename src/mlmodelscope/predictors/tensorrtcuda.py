"""Turns the driver and the CUDA runtime of this machine into memory, copies and streams, through ctypes alone.

What is missing is said exactly: no driver, no device, or no runtime library.
"""

import ctypes
import ctypes.util
import glob
import os
import sys
from typing import Any, List, Optional

from mlmodelscope.predictors.port import PredictorFault

__all__ = ["Cuda", "open_cuda"]

_HOST_TO_DEVICE, _DEVICE_TO_HOST = 1, 2


def open_cuda(device: int) -> "Cuda":
    driver = _load(["libcuda.so.1", "nvcuda.dll"])
    if driver is None:
        raise _missing("there is no NVIDIA driver here: libcuda.so.1 is not found", "install the driver of the GPU")
    status = driver.cuInit(0)
    if status != 0:
        raise _missing(
            f"the NVIDIA driver does not start (error {status})", "is there a GPU, and may this user use it?"
        )
    count = ctypes.c_int()
    if driver.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value < 1:
        raise _missing("the NVIDIA driver sees no device", "in a container, pass the GPU on (--gpus all)")
    if not 0 <= device < count.value:
        raise _missing(f"there is no GPU {device}: the driver sees {count.value}", "set the option device")
    runtime = _load(_runtime_names())
    if runtime is None:
        raise _missing("the CUDA runtime is not found: libcudart.so", "add nvidia-cuda-runtime-cu12 to requirements")
    return Cuda(driver, runtime, device)


def _missing(message: str, hint: str) -> PredictorFault:
    return PredictorFault("environment_missing", f"tensorrt: {message}", hint=hint, framework="tensorrt")


def _load(names: List[str]) -> Optional[Any]:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _runtime_names() -> List[str]:
    """The runtime of the packages beside TensorRT before the system's."""
    packaged = [
        path
        for folder in sys.path
        for path in sorted(glob.glob(os.path.join(folder, "nvidia", "*", "lib", "libcudart.so*")), reverse=True)
    ]
    return packaged + ["libcudart.so.13", "libcudart.so.12", "libcudart.so"]


class Cuda(object):
    """One device. Every call that CUDA refuses is a PredictorFault."""

    def __init__(self, driver: Any, runtime: Any, device: int) -> None:
        self._driver, self._runtime, self.device = driver, runtime, device
        runtime.cudaGetErrorString.restype = ctypes.c_char_p
        runtime.cudaFree.argtypes = [ctypes.c_void_p]
        runtime.cudaMalloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        runtime.cudaMemcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for name in ("cudaStreamCreate", "cudaStreamSynchronize", "cudaStreamDestroy"):
            getattr(runtime, name).argtypes = [ctypes.c_void_p]
        self._check(runtime.cudaSetDevice(device))

    def _check(self, status: int) -> None:
        if status != 0:
            text = self._runtime.cudaGetErrorString(status) or b"unknown"
            raise PredictorFault(
                "predictor_failed", f"CUDA: {text.decode('utf-8', 'replace')} (error {status})", status=status
            )

    def allocate(self, size: int) -> int:
        address = ctypes.c_void_p()
        self._check(self._runtime.cudaMalloc(ctypes.byref(address), size))
        return int(address.value or 0)

    def free(self, address: int) -> None:
        self._check(self._runtime.cudaFree(address))

    def copy_in(self, device: int, host: int, size: int) -> None:
        self._check(self._runtime.cudaMemcpy(device, host, size, _HOST_TO_DEVICE))

    def copy_out(self, host: int, device: int, size: int) -> None:
        self._check(self._runtime.cudaMemcpy(host, device, size, _DEVICE_TO_HOST))

    def make_stream(self) -> int:
        stream = ctypes.c_void_p()
        self._check(self._runtime.cudaStreamCreate(ctypes.byref(stream)))
        return int(stream.value or 0)

    def wait(self, stream: int) -> None:
        self._check(self._runtime.cudaStreamSynchronize(stream))

    def drop_stream(self, stream: Optional[int]) -> None:
        if stream:
            self._check(self._runtime.cudaStreamDestroy(stream))

    def device_name(self) -> str:
        name = ctypes.create_string_buffer(256)
        if self._driver.cuDeviceGetName(name, len(name), self.device) != 0:
            return "unknown"
        return name.value.decode("utf-8", "replace")

    def version(self) -> str:
        version = ctypes.c_int()
        self._check(self._runtime.cudaRuntimeGetVersion(ctypes.byref(version)))
        return f"{version.value // 1000}.{version.value % 1000 // 10}"

"""PyTorch's pluggable allocator: the fallback where the part for this PyTorch cannot be compiled."""

import ctypes
import functools
import os
from pathlib import Path

from . import _library
from ._error import AcceleratorError

#: What does not work, for users.
LOSSES = (
    "torch.cuda's memory functions raise errors or do not see this allocator (accelerator_alloc.memory_stats('cuda') "
    "does); CUDA graphs, MemPool, memory histories and snapshots, and queues of tensors raise errors; the allocator "
    "cannot be uninstalled"
)

_ERROR = "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
_OUT_OF_MEMORY = "N3c1016OutOfMemoryErrorE"
_SETTERS = {
    "set_reset_fn": "empty_cache",
    "set_memory_fraction_fn": "set_memory_fraction",
    "set_base_alloc_fn": "base",
    "set_record_stream_fn": "record_use",
    "set_begin_allocate_to_pool": "refuse_pool",
}


class _Exceptions(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("fail", "construct", "kind", "functions", "allocate", "throw", "new")]


def install(torch, settings):
    """Makes the library PyTorch's pluggable allocator.

    :raises AcceleratorError: if PyTorch's own allocator is in use already
    """
    library, exceptions = _library.load(), _exceptions(torch)
    start = library.accelerator_torch_pluggable_start
    start.argtypes = [ctypes.c_char_p, ctypes.POINTER(_Exceptions)]
    _library.check(start(settings, ctypes.byref(exceptions)))
    if "PYTORCH_NO_CUDA_MEMORY_CACHING" in os.environ:
        _library.check(library.accelerator_torch_set_caching(False))
    names = [f"accelerator_torch_pluggable_{name}" for name in ("allocate", "free")]
    pluggable = torch.cuda.memory.CUDAPluggableAllocator(_library.path("cuda"), *names)
    for setter, name in _SETTERS.items():
        getattr(pluggable.allocator(), setter)(_address(getattr(library, f"accelerator_torch_pluggable_{name}")))
    try:
        torch.cuda.memory.change_current_allocator(pluggable)
    except RuntimeError as error:
        raise AcceleratorError(f"PyTorch's own allocator cannot be replaced any more: {error}") from error
    _refuse_streams_of_other_devices(torch)


def _refuse_streams_of_other_devices(torch):
    """Checks streams that are recorded. The allocator gets only their handles, and the default streams of all devices
    have the same one.
    """
    record = torch.Tensor.record_stream

    @functools.wraps(record)
    def record_stream(self, s):
        if self.is_cuda and s.device != self.device:
            raise RuntimeError(
                f"accelerator: {self.device} has the tensor, and {s.device} the stream: "
                "make a stream of the tensor's device wait for it, and record that one"
            )
        return record(self, s)

    torch.Tensor.record_stream = record_stream


def _exceptions(torch):
    libraries = Path(torch.__file__).parent / "lib"
    c10, system = ctypes.CDLL(str(libraries / "libc10.so")), ctypes.CDLL("libstdc++.so.6")
    try:
        # Before PyTorch 2.13, each library that throws the error has its own description of the class.
        library = c10 if hasattr(c10, f"_ZTI{_OUT_OF_MEMORY}") else ctypes.CDLL(str(libraries / "libc10_cuda.so"))
        kind, functions = (
            ctypes.addressof(ctypes.c_char.in_dll(library, f"_ZT{part}{_OUT_OF_MEMORY}")) for part in "IV"
        )
        return _Exceptions(
            fail=_address(c10["_ZN3c106detail14torchCheckFailEPKcS2_jS2_"]),
            construct=_address(c10[_ERROR]),
            kind=kind,
            functions=functions + 2 * ctypes.sizeof(ctypes.c_void_p),  # behind what every such table begins with
            allocate=_address(system["__cxa_allocate_exception"]),
            throw=_address(system["__cxa_throw"]),
            new=_address(system["_Znwm"]),
        )
    except (AttributeError, ValueError) as error:
        raise AcceleratorError(f"PyTorch {torch.__version__} lacks a function that is needed: {error}") from error


def _address(function):
    return ctypes.cast(function, ctypes.c_void_p).value

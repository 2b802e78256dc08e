"""Statistics and the cache where PyTorch has no functions for them: the CPU, and the pluggable allocator."""

import collections
import ctypes

from . import _library
from ._install import installed_library

_POOLED = (
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
)
_COUNTERS = (
    "num_alloc_retries",
    "num_ooms",
    "num_sync_all_streams",
    "num_device_alloc",
    "num_device_free",
    "num_oom_rejections",
    "max_split_size",
)
# The numbers in the order of the library.
_NAMES = (
    *(f"{name}.{pool}" for name in _POOLED for pool in ("all", "small_pool", "large_pool")),
    "oversize_allocations",
    "oversize_segments",
)
_KEYS = (*(f"{name}.{what}" for name in _NAMES for what in ("current", "peak", "allocated", "freed")), *_COUNTERS)


def memory_stats(device="cpu"):
    """Returns statistics with the names and meanings of ``torch.cuda.memory_stats``. Sizes are in bytes.

    :param device: ``"cpu"``, or ``"cuda"`` for the current CUDA device
    :raises AcceleratorError: if the allocator is not installed there
    """
    library, numbers = installed_library(device), (ctypes.c_int64 * len(_KEYS))()
    _library.check(library.accelerator_torch_statistics(_index(device), numbers), device)
    return collections.OrderedDict(sorted(zip(_KEYS, numbers)))


def reset_peak_memory_stats(device="cpu"):
    """Lowers the peaks of :func:`memory_stats` to the current values.

    :raises AcceleratorError: as for :func:`memory_stats`
    """
    library = installed_library(device)
    _library.check(library.accelerator_torch_reset_peaks(_index(device)), device)


def empty_cache(device="cpu"):
    """Gives free memory back to the system.

    :raises AcceleratorError: as for :func:`memory_stats`
    """
    library = installed_library(device)
    library.accelerator_torch_empty_cache.argtypes = [_library.PoolNumber]
    _library.check(library.accelerator_torch_empty_cache(_library.PoolNumber()), device)


def _index(device):
    if device == "cpu":
        return 0
    import torch

    return torch.cuda.current_device()

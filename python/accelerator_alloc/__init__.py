"""The caching allocator of the Rust workspace Accelerator, inside PyTorch.

    import accelerator_alloc
    accelerator_alloc.install(conf="policy:compact")

From then on, ``torch.cuda``'s memory functions and those of ``torch.accelerator`` report this allocator. Without
``conf``, its settings are read from ``ACCELERATOR_ALLOC_CONF`` or PyTorch's own variables. With ``device="cpu"`` it
serves tensors of the CPU, which :func:`memory_stats` reports.
"""

from ._error import AcceleratorError
from ._install import configure, install, is_installed, uninstall
from ._libraries import cupy_allocator, onnx_provider_options, rmm_resource
from ._memory import empty_cache, memory_stats, reset_peak_memory_stats
from ._pool import Pool, pool
from ._tools import Advice, Report, advise, report
from ._tracker import Tracker, tracker

__all__ = [
    "AcceleratorError",
    "Advice",
    "Pool",
    "Report",
    "Tracker",
    "advise",
    "configure",
    "cupy_allocator",
    "empty_cache",
    "install",
    "is_installed",
    "memory_stats",
    "onnx_provider_options",
    "pool",
    "report",
    "reset_peak_memory_stats",
    "rmm_resource",
    "tracker",
    "uninstall",
]
__version__ = "0.1.0"

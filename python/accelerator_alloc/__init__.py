"""The caching allocator of the Rust workspace Accelerator, inside PyTorch.

    import accelerator_alloc
    accelerator_alloc.install(conf="policy:compact")

From then on, ``torch.cuda``'s memory functions and those of ``torch.accelerator`` show this allocator. An unchanged
program is switched by ``ACCELERATOR_TORCH=1`` in its environment, and its settings are read from
``ACCELERATOR_ALLOC_CONF`` or PyTorch's own variables.
"""

from ._install import AcceleratorError, configure, install, is_installed

__all__ = ["AcceleratorError", "configure", "install", "is_installed"]
__version__ = "0.1.0"


def _autoload():
    """Called by ``import torch``, which looks for the entry points of the group ``torch.backends``."""
    import os

    if os.environ.get("ACCELERATOR_TORCH", "0") not in ("", "0"):
        install()

"""Installs the allocator in programs that do not name it, if the environment asks for it."""

import os
import warnings

VARIABLE = "ACCELERATOR_TORCH"
_DEVICES = {"1": ["cuda"], "cuda": ["cuda"], "cpu": ["cpu"], "cuda,cpu": ["cuda", "cpu"]}


def switch():
    """Installs the allocator for the devices that ``ACCELERATOR_TORCH`` names. PyTorch calls this at the end of
    ``import torch``.

    An error is a warning: PyTorch then works, with its own allocator.
    """
    value = os.environ.get(VARIABLE, "")
    if value in ("", "0"):
        return
    try:
        if value not in _DEVICES:
            raise ValueError(f"{VARIABLE} is {value!r}: expected 1, cpu, or 0 for PyTorch's own allocator")
        from ._install import install

        for device in _DEVICES[value]:
            install(device=device)
    except Exception as error:
        # The program that imports PyTorch cannot catch an error of it, and may need no GPU.
        message = f"PyTorch keeps its own allocator, although {VARIABLE} is set: {error}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)

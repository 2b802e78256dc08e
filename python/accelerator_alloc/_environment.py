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
    if value not in _DEVICES:
        expected = ", ".join(map(repr, [*_DEVICES, "0"]))
        return _warn(f"PyTorch keeps its own allocator: {VARIABLE} is {value!r}, and not one of {expected}")
    for device in _DEVICES[value]:
        try:
            from ._install import install

            install(device=device)
        except Exception as error:
            _warn(f"PyTorch keeps its own allocator for {device} devices, although {VARIABLE} is set: {error}")


def _warn(message):
    # The program that imports PyTorch cannot catch an error of it, and may need no GPU.
    warnings.warn(message, RuntimeWarning, stacklevel=3)

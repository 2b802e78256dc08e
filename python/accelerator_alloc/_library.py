"""Loads the library of C functions."""

import ctypes
import functools
import os
from pathlib import Path

_HERE = Path(__file__).parent


def path():
    """Returns the file of the library: the wheel's, or that of ``ACCELERATOR_TORCH_LIBRARY``."""
    return os.environ.get("ACCELERATOR_TORCH_LIBRARY") or str(_HERE / "libaccelerator_torch.so")


@functools.cache
def load():
    """Loads the library once."""
    library = ctypes.CDLL(path())
    library.accelerator_torch_last_error.restype = ctypes.c_char_p
    library.accelerator_torch_configure.argtypes = [ctypes.c_char_p]
    return library

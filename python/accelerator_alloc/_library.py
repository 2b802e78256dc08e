"""Loads the library of C functions."""

import ctypes
import functools
import os
from pathlib import Path

from ._error import AcceleratorError

_HERE = Path(__file__).parent


def path():
    """Returns the file of the library: the wheel's, or that of ``ACCELERATOR_TORCH_LIBRARY``."""
    return os.environ.get("ACCELERATOR_TORCH_LIBRARY") or str(_HERE / "libaccelerator_torch.so")


def opened(file):
    """Loads a shared library.

    :raises AcceleratorError: if it cannot be loaded
    """
    try:
        return ctypes.CDLL(file)
    except OSError as error:
        raise AcceleratorError(f"a library cannot be loaded: {error}") from error


@functools.cache
def load():
    """Loads the library once.

    :raises AcceleratorError: if it cannot be loaded, or is another one
    """
    library = opened(path())
    try:
        library.accelerator_torch_last_error.restype = ctypes.c_char_p
        library.accelerator_torch_configure.argtypes = [ctypes.c_char_p]
    except AttributeError as error:
        raise AcceleratorError(f"{path()} is not the library of this package") from error
    return library

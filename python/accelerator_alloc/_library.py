"""Loads the library of C functions."""

import ctypes
import functools
import os
from pathlib import Path

from ._error import AcceleratorError

_HERE = Path(__file__).parent


class PoolNumber(ctypes.Structure):
    """The number of a pool; 0 for all memory outside of pools."""

    _fields_ = [("graph", ctypes.c_uint64), ("user", ctypes.c_uint64)]


# Each kind of device: the library in the wheel, and the variable that names another one.
_LIBRARIES = {
    "cuda": ("libaccelerator_torch.so", "ACCELERATOR_TORCH_LIBRARY"),
    "cpu": ("libaccelerator_torch_cpu.so", "ACCELERATOR_TORCH_CPU_LIBRARY"),
}
# The numbers of the interfaces that this package, with its parts in C++, was written for, as in boundary.rs.
_INTERFACES = {"cuda": 7 << 8 | 1, "cpu": 7 << 8}


def path(device):
    """Returns the file of the library for a kind of device."""
    name, variable = _LIBRARIES[device]
    return os.environ.get(variable) or str(_HERE / name)


def opened(file):
    """Loads a shared library.

    :raises AcceleratorError: if it cannot be loaded
    """
    try:
        return ctypes.CDLL(file)
    except OSError as error:
        raise AcceleratorError(f"a library cannot be loaded: {error}") from error


@functools.cache
def load(device="cuda"):
    """Loads the library for a kind of device once.

    :raises AcceleratorError: if it cannot be loaded, or is another one
    """
    library = opened(path(device))
    try:
        library.accelerator_torch_last_error.restype = ctypes.c_char_p
        library.accelerator_torch_configure.argtypes = [ctypes.c_char_p]
        interface = library.accelerator_torch_interface()
    except AttributeError as error:
        raise AcceleratorError(f"{path(device)} is not the library of this package") from error
    if interface != _INTERFACES[device]:
        raise AcceleratorError(f"{path(device)} is the library of another version, or of another kind of device")
    return library


def check(status, device="cuda"):
    """Looks at the status that a function of a library returned.

    :raises AcceleratorError: with the library's last error, if it is not 0
    """
    if status:
        raise AcceleratorError(load(device).accelerator_torch_last_error().decode())

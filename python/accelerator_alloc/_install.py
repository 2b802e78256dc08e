"""Puts the library's allocator in the place of PyTorch's."""

import ctypes
import os

from . import _library, _subclass


class AcceleratorError(RuntimeError):
    """The allocator could not be installed, or a setting is wrong. PyTorch is unchanged."""


_installed = False


def is_installed():
    """Returns whether tensors of CUDA devices get their memory from this allocator."""
    return _installed


def install(conf=None):
    """Puts this allocator in the place of PyTorch's own for CUDA devices.

    Memory that PyTorch's allocator has given out before stays where it is, and goes back there.

    :param conf: settings as in ``PYTORCH_ALLOC_CONF``, such as ``"policy:compact"``; those of the environment if none
        are given
    :raises AcceleratorError: if it is installed already, a setting is unknown, or this PyTorch does not fit. PyTorch
        then keeps its own allocator.
    """
    global _installed
    if _installed:
        raise AcceleratorError("the allocator is installed already; configure() changes its settings")
    import torch

    if torch.version.cuda is None:
        raise AcceleratorError(f"PyTorch {torch.__version__} was built without CUDA")
    library = _library.load()
    if conf is not None:
        configure(conf)
    subclass = ctypes.CDLL(_subclass.path(torch))
    subclass.accelerator_torch_install.restype = ctypes.c_char_p
    subclass.accelerator_torch_install.argtypes = [ctypes.c_char_p, ctypes.c_int]
    devices = torch.cuda.device_count() if torch.cuda.is_initialized() else 0
    refused = subclass.accelerator_torch_install(os.fsencode(library._name), devices)
    if refused:
        raise AcceleratorError(refused.decode())
    _installed = True


def configure(conf):
    """Changes settings, before or after the installation.

    :raises AcceleratorError: if a setting is unknown or has a wrong value. Nothing is changed then.
    """
    library = _library.load()
    if library.accelerator_torch_configure(os.fsencode(conf)):
        raise AcceleratorError(library.accelerator_torch_last_error().decode())

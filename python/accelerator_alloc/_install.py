"""Puts the library's allocator in the place of PyTorch's."""

import ctypes
import functools
import os
import threading

from . import _library, _subclass
from ._error import AcceleratorError

_OLDEST = (2, 11)  # whose allocator interface has all that is used here

_lock = threading.Lock()
_installed = None  # the part for this PyTorch


def is_installed():
    """Returns whether tensors of CUDA devices get their memory from this allocator."""
    return _installed is not None


def install(conf=None):
    """Puts this allocator in the place of PyTorch's own for CUDA devices.

    Memory that PyTorch's allocator has given out before stays where it is, and goes back there.

    :param conf: settings as in ``PYTORCH_ALLOC_CONF``, such as ``"policy:compact"``; those of the environment if none
        are given
    :raises AcceleratorError: if it is installed already, a setting is unknown, or this PyTorch does not fit. PyTorch
        then keeps its own allocator.
    """
    global _installed
    with _lock:
        if _installed:
            raise AcceleratorError("the allocator is installed already; configure() changes its settings")
        try:
            import torch
        except (ImportError, OSError) as error:
            raise AcceleratorError(f"PyTorch cannot be imported: {error}. Install torch, built for CUDA") from error
        if torch.version.cuda is None:
            raise AcceleratorError(f"PyTorch {torch.__version__} was built without CUDA")
        if _version(torch) < _OLDEST:
            raise AcceleratorError(f"PyTorch {torch.__version__} is too old: {_text(_OLDEST)} or later is needed")
        library = _library.load()
        subclass = _subclass.load(torch)
        subclass.accelerator_torch_install.restype = ctypes.c_char_p
        subclass.accelerator_torch_install.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
        subclass.accelerator_torch_uninstall.restype = ctypes.c_char_p
        settings = None if conf is None else os.fsencode(conf)
        refused = subclass.accelerator_torch_install(os.fsencode(library._name), settings)
        if refused:
            raise AcceleratorError(refused.decode())
        _installed = subclass
        _follow_settings(torch._C)


def _follow_settings(module):
    """Changes the settings of both allocators when PyTorch's are changed."""
    own = module._accelerator_setAllocatorSettings

    def set_settings(conf):
        own(conf)
        if is_installed():
            configure(conf)

    if not hasattr(own, "__wrapped__"):  # from an earlier installation
        module._accelerator_setAllocatorSettings = functools.wraps(own)(set_settings)


def _version(torch):
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


def _text(version):
    return ".".join(map(str, version))


def uninstall():
    """Puts PyTorch's own allocator back. No other thread may allocate meanwhile.

    :raises AcceleratorError: if it is not installed, or tensors, graphs or pools still use its memory. It stays
        installed then.
    """
    global _installed
    with _lock:
        if not _installed:
            raise AcceleratorError("the allocator is not installed")
        from . import _pool  # which imports this module

        if pools := _pool.open_pools():
            raise AcceleratorError(f"{', '.join(map(repr, pools))} must be closed first")
        refused = _installed.accelerator_torch_uninstall()
        if refused:
            raise AcceleratorError(refused.decode())
        _installed = None


def configure(conf):
    """Changes settings of the installed allocator. Those that are not named stay, except ``max_split_size_mb``,
    ``garbage_collection_threshold`` and ``roundup_power2_divisions``, which go back to their defaults, as in PyTorch.

    :raises AcceleratorError: if the allocator is not installed, a setting is unknown, or one has a wrong value. Nothing
        is changed then.
    """
    if not _installed:
        raise AcceleratorError("the allocator is not installed: pass the settings to install()")
    library = _library.load()
    if library.accelerator_torch_configure(os.fsencode(conf)):
        raise AcceleratorError(library.accelerator_torch_last_error().decode())

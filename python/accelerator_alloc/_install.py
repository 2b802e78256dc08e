"""Puts the library's allocator in the place of PyTorch's."""

import ctypes
import functools
import os
import threading
import warnings

from . import _library, _pluggable, _subclass
from ._error import AcceleratorError

_OLDEST = (2, 11)  # whose allocator interface has all that is used here

_lock = threading.Lock()
_installed = {}  # by kind of device: the part for this PyTorch, or None for the pluggable allocator


def is_installed(device="cuda"):
    """Returns whether new tensors of these devices get their memory from this allocator.

    :param device: ``"cuda"`` or ``"cpu"``
    """
    return kind(device) in _installed


def install(conf=None, device="cuda"):
    """Puts this allocator in the place of PyTorch's own.

    Memory that PyTorch's allocator has given out before stays where it is, and goes back there.

    Where the part for this PyTorch is missing and cannot be compiled, the allocator of CUDA devices becomes PyTorch's
    pluggable one. A warning says what does not work then.

    :param conf: settings as in ``PYTORCH_ALLOC_CONF``, such as ``"policy:compact"``; those of the environment if none
        are given
    :param device: ``"cuda"``, or ``"cpu"`` for tensors of the CPU
    :raises AcceleratorError: if it is installed already, a setting is unknown, or this PyTorch does not fit. PyTorch
        then keeps its own allocator.
    """
    device = kind(device)
    with _lock:
        if device in _installed:
            raise AcceleratorError("the allocator is installed already; configure() changes its settings")
        try:
            import torch
        except (ImportError, OSError) as error:
            wanted = "torch, built for CUDA" if device == "cuda" else "torch"
            raise AcceleratorError(f"PyTorch cannot be imported: {error}. Install {wanted}") from error
        if device == "cuda" and torch.version.cuda is None:
            raise AcceleratorError(f"PyTorch {torch.__version__} was built without CUDA")
        if _version(torch) < _OLDEST:
            raise AcceleratorError(f"PyTorch {torch.__version__} is too old: {_text(_OLDEST)} or later is needed")
        library, settings = _library.load(device), None if conf is None else os.fsencode(conf)
        warning = None
        try:
            part = _subclass.load(torch, device)
        except AcceleratorError as error:
            if device != "cuda":
                raise
            part = None
            _pluggable.install(torch, settings)
            warning = f"{error}. Until then, PyTorch's pluggable allocator is used: {_pluggable.LOSSES}"
        else:
            part.accelerator_torch_install.restype = ctypes.c_char_p
            part.accelerator_torch_install.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
            part.accelerator_torch_uninstall.restype = ctypes.c_char_p
            refused = part.accelerator_torch_install(os.fsencode(library._name), settings)
            if refused:
                raise AcceleratorError(refused.decode())
        _installed[device] = part
        if device == "cuda":
            _follow_settings(torch._C)
        else:
            _leave_forked_children()
        if warning:
            warnings.warn(warning, RuntimeWarning, stacklevel=2)


def kind(device):
    """Returns the kind of device that this names.

    :raises AcceleratorError: if there is no allocator for it
    """
    if device not in _subclass.KINDS:
        raise AcceleratorError(f"the device is {device!r}: expected one of {', '.join(map(repr, _subclass.KINDS))}")
    return device


def _follow_settings(module):
    """Changes the settings of both allocators when PyTorch's are changed."""
    own = module._accelerator_setAllocatorSettings

    def set_settings(conf):
        own(conf)
        if is_installed():
            configure(conf)

    if not hasattr(own, "__wrapped__"):  # from an earlier installation
        module._accelerator_setAllocatorSettings = functools.wraps(own)(set_settings)


@functools.cache
def _leave_forked_children():
    """A forked child has PyTorch's own allocator for its tensors of the CPU."""
    os.register_at_fork(after_in_child=lambda: _installed.pop("cpu", None))


def _version(torch):
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


def _text(version):
    return ".".join(map(str, version))


def uninstall(device="cuda"):
    """Puts PyTorch's own allocator back. No other thread may allocate meanwhile. Tensors of the CPU stay where they
    are until they are deleted.

    :param device: as for :func:`install`
    :raises AcceleratorError: if it is not installed, or tensors, graphs or pools of CUDA devices still use its memory.
        It stays installed then.
    """
    device = kind(device)
    with _lock:
        if device not in _installed:
            raise AcceleratorError("the allocator is not installed")
        from . import _pool  # which imports this module

        if device == "cuda" and (pools := _pool.open_pools()):
            raise AcceleratorError(f"{', '.join(map(repr, pools))} must be closed first")
        if _installed[device] is None:
            raise AcceleratorError("PyTorch cannot replace its pluggable allocator")
        refused = _installed[device].accelerator_torch_uninstall()
        if refused:
            raise AcceleratorError(refused.decode())
        del _installed[device]


def configure(conf, device="cuda"):
    """Changes settings of the installed allocator. Those that are not named stay, except ``max_split_size_mb``,
    ``garbage_collection_threshold`` and ``roundup_power2_divisions``, which go back to their defaults, as in PyTorch.

    :param device: as for :func:`install`
    :raises AcceleratorError: if the allocator is not installed, a setting is unknown, or one has a wrong value. Nothing
        is changed then.
    """
    library = installed_library(device, "pass the settings to install()")
    _library.check(library.accelerator_torch_configure(os.fsencode(conf)), device)


def installed_library(device, otherwise="call install() first"):
    """Returns the library of a kind of device.

    :raises AcceleratorError: if the allocator is not installed there
    """
    if not is_installed(device):
        raise AcceleratorError(f"the allocator is not installed: {otherwise}")
    return _library.load(device)

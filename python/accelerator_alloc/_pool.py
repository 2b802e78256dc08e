"""Pools of memory that can be given back to the driver for a while."""

import ctypes
import os
import threading

from . import _library
from ._error import AcceleratorError
from ._install import installed_library

_lock = threading.Lock()
_pools = {}


class _Report(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint64), ("nanoseconds", ctypes.c_uint64)]


def pool(name, device=None):
    """Returns the pool with this name, which is made at the first call. As a context manager, it serves the requests of
    the thread::

        with accelerator_alloc.pool("kv_cache"):
            cache = torch.empty(...)
        accelerator_alloc.pool("kv_cache").pause()

    It lasts until :meth:`Pool.close`.

    :param device: the number of the CUDA device; the current one if none is given
    :raises AcceleratorError: if the allocator is not installed, or the device has no virtual memory
    """
    installed_library("cuda")
    import torch

    device = torch.cuda.current_device() if device is None else int(device)
    with _lock:
        if (name, device) not in _pools:
            _pools[name, device] = Pool(name, device)
        return _pools[name, device]


def open_pools():
    """Returns the pools that are not closed."""
    with _lock:
        return list(_pools.values())


def _finish_all_work():
    """Waits for the work of all devices, since each may use the memory of another one. The library knows only the
    streams for which it has allocated memory.
    """
    import torch

    for device in range(torch.cuda.device_count()):
        if torch._C._cuda_hasPrimaryContext(device):
            torch.cuda.synchronize(device)


class Pool:
    """Memory of its own for tensors that come and go together, such as weights or a cache. See :func:`pool`."""

    def __init__(self, name, device):
        import torch

        self.name, self.device = name, device
        with torch.cuda.device(device):
            self._pool = torch.cuda.MemPool()
        self._handle = ctypes.c_void_p()
        self._guards = threading.local()
        self._lock = threading.Lock()  # of the handle
        open_pool = _library.load().accelerator_torch_pool_open
        open_pool.argtypes = [ctypes.c_int, _library.PoolNumber, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)]
        _library.check(open_pool(device, _library.PoolNumber(*self._pool.id), name.encode(), ctypes.byref(self._handle)))
        self._own_uses = self._pool.use_count()
        self._is_paused = False

    def __enter__(self):
        import torch

        guard = torch.cuda.use_mem_pool(self._open(), self.device)
        guard.__enter__()
        vars(self._guards).setdefault("entered", []).append(guard)
        return self

    def __exit__(self, *error):
        return self._guards.entered.pop().__exit__(*error)

    def close(self):
        """Ends the pool: its free memory goes back to the driver, and the rest when its tensors are deleted. The name
        is free for a new pool.

        :raises AcceleratorError: if the pool is closed or paused, serves requests, or a graph uses it
        """
        with self._lock:
            pool = self._open()
            if self._is_paused:
                raise AcceleratorError(f"{self} is paused: resume it before it is closed")
            if pool.use_count() > self._own_uses:
                raise AcceleratorError(f"{self} still serves requests, or a graph uses it")
            drop = _library.load().accelerator_torch_pool_drop
            drop.argtypes, drop.restype = [ctypes.c_void_p], None
            drop(self._handle)
            self._pool = None  # which releases it
        with _lock:
            del _pools[self.name, self.device]

    def _open(self):
        if self._pool is None:
            raise AcceleratorError(f"{self} is closed")
        return self._pool

    def __repr__(self):
        return f"<pool {self.name!r} of cuda:{self.device}>"

    @property
    def id(self):
        """The number of the pool, as in ``torch.cuda.MemPool.id``."""
        return self._open().id

    def snapshot(self):
        """Returns its segments, as ``torch.cuda.MemPool.snapshot`` does."""
        return self._open().snapshot()

    def pause(self, keep=None):
        """Gives the memory back to the driver, but not the addresses: tensors stay, and have their memory again after
        :meth:`resume`. Waits for all work of all devices first. No kernel may use the tensors until then.

        :param keep: what becomes of the contents: ``None`` discards them, ``"host"`` keeps them in pinned host memory,
            and a path keeps them in that file, which must not exist
        :returns: the number of bytes that went back
        :raises AcceleratorError: if the pool is closed or paused already, if the current stream is being captured,
            which waiting would break, or if the file cannot be written
        :raises RuntimeError: PyTorch's errors, if earlier work has failed
        """
        import torch

        if torch.cuda.is_current_stream_capturing():
            raise AcceleratorError(f"{self} cannot be paused while a graph is being captured")
        pause = _library.load().accelerator_torch_pool_pause
        pause.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_Report)]
        kind, path = {None: (0, None), "host": (1, None)}.get(keep) or (2, os.fsencode(keep))
        report = _Report()
        with self._lock:
            self._open()
            _finish_all_work()
            _library.check(pause(self._handle, kind, path, ctypes.byref(report)))
            self._is_paused = True
        return report.bytes

    def resume(self):
        """Maps memory at the addresses again, with the contents that were kept.

        :returns: the number of bytes that came from the driver
        :raises AcceleratorError: if the pool is closed or not paused, or there is not enough memory; it stays paused
            then
        """
        resume = _library.load().accelerator_torch_pool_resume
        resume.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Report)]
        report = _Report()
        with self._lock:
            self._open()
            _library.check(resume(self._handle, ctypes.byref(report)))
            self._is_paused = False
        return report.bytes

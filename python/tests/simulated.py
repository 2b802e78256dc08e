"""The controls of the simulated driver, and what it knows of this process."""

import ctypes

_driver = ctypes.CDLL(None)
_driver.cuda_sim_violations.restype = ctypes.c_uint64


def hold(stream):
    """Keeps a stream's work from running."""
    _driver.cuda_sim_hold(ctypes.c_void_p(stream.cuda_stream))


def release(stream):
    """Lets it run."""
    _driver.cuda_sim_release(ctypes.c_void_p(stream.cuda_stream))


def violations():
    """Returns how often work touched memory that was not the program's."""
    return _driver.cuda_sim_violations()


def has_context(device):
    """Returns whether this process has a context on a device."""
    flags, active = ctypes.c_uint(), ctypes.c_int()
    assert _driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active)) == 0
    return bool(active.value)

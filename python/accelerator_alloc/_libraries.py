"""The allocator in other libraries, with PyTorch or without it."""

import ctypes

from . import _library


def rmm_resource(device=0):
    """Returns a memory resource for RAPIDS, so that cuDF and others get their memory from this allocator::

        rmm.mr.set_current_device_resource(accelerator_alloc.rmm_resource())

    :param device: the number of the CUDA device
    """
    import rmm

    def allocate(size, stream):
        return _allocate(size, device, stream.__cuda_stream__()[1])

    def free(address, size, stream):
        # RMM may free on another stream than it has allocated on, whose work uses the memory still.
        free_after, handle = _library.load().accelerator_torch_raw_free_after, stream.__cuda_stream__()[1]
        free_after(ctypes.c_uint64(address), ctypes.c_void_p(handle))

    return rmm.mr.CallbackMemoryResource(allocate, free)


def cupy_allocator():
    """Returns an allocator for CuPy, which allocates for CuPy's current stream::

        cupy.cuda.set_allocator(accelerator_alloc.cupy_allocator().malloc)
    """
    import cupy

    def allocate(size, device):
        return _allocate(size, device, cupy.cuda.get_current_stream().ptr)

    def free(address, device):
        _free(address)

    return cupy.cuda.PythonFunctionAllocator(allocate, free)


def onnx_provider_options(device=0, stream=0):
    """Returns options of ONNX Runtime's CUDA provider::

        options = accelerator_alloc.onnx_provider_options(stream=torch.cuda.current_stream().cuda_stream)
        session = onnxruntime.InferenceSession(model, providers=[("CUDAExecutionProvider", options)])

    ONNX Runtime allocates without saying for which device and stream. So a process has one device for it, and one
    stream, that of the last call.

    :param device: the number of the CUDA device
    :param stream: the handle of the CUDA stream on which the sessions run
    :raises AcceleratorError: for a second device, or ``cudaStreamPerThread``
    """
    library = _library.load()
    _library.check(library.accelerator_torch_external_use(ctypes.c_int(device), ctypes.c_void_p(stream)))
    address = lambda name: str(ctypes.cast(getattr(library, f"accelerator_torch_external_{name}"), ctypes.c_void_p).value)
    return {
        "device_id": str(device),
        "has_user_compute_stream": "1",
        "user_compute_stream": str(stream),
        "gpu_external_alloc": address("alloc"),
        "gpu_external_free": address("free"),
        "gpu_external_empty_cache": address("empty_cache"),
    }


def _allocate(size, device, stream):
    library = _library.load()
    address = ctypes.c_uint64()
    arguments = ctypes.c_size_t(size), ctypes.c_int(device), ctypes.c_void_p(stream), ctypes.byref(address)
    if library.accelerator_torch_raw_allocate(*arguments):
        raise MemoryError(library.accelerator_torch_last_error().decode())
    return address.value


def _free(address):
    _library.load().accelerator_torch_raw_free(ctypes.c_uint64(address))

"""Other libraries get their memory from this allocator, in a process where PyTorch does, too."""

import unittest

import programs
from test_install import program

INSTALLED = (
    "import accelerator_alloc, torch\naccelerator_alloc.install()\ntorch.cuda.init()\n"
    "allocated = lambda: torch.cuda.memory_allocated() >> 20\n"
)
# What a call tells, and notes that a stream uses memory.
TOLD = (
    "import ctypes\n"
    "library = accelerator_alloc._library.load()\n"
    "def told(call):\n"
    " try: call()\n"
    " except (MemoryError, accelerator_alloc.AcceleratorError) as error: return error\n"
    "def record_use(address, stream):\n"
    " status = library.accelerator_torch_record_use(ctypes.c_uint64(address), ctypes.c_void_p(stream))\n"
    " accelerator_alloc._library.check(status)\n"
)


class Libraries(unittest.TestCase):
    def test_rapids_allocates_on_its_stream(self):
        text = INSTALLED + (
            "import rmm\n"
            "resource = accelerator_alloc.rmm_resource()\n"
            "counted = rmm.mr.StatisticsResourceAdaptor(resource)\n"
            "other = torch.cuda.Stream()\n"
            "stream = rmm.pylibrmm.stream.Stream(other)\n"
            "address = counted.allocate(5 << 20, stream)\n"
            "print(allocated(), counted.allocation_counts.current_bytes >> 20)\n"
            "segment = torch.cuda.memory_snapshot()[0]\n"
            "print(segment['address'] == address, segment['stream'] == other.cuda_stream)\n"
            "counted.deallocate(address, 5 << 20, stream)\n"
            "print(allocated(), counted.allocation_counts.current_bytes)\n"
            "try: resource.allocate(1 << 40)\n"
            "except MemoryError as error: print('CUDA out of memory' in str(error))\n"
        )
        out, error = program(text)
        self.assertEqual((out.split(), error), (["5", "5", "True", "True", "0", "0", "True"], ""))

    def test_rapids_frees_on_another_stream(self):
        text = INSTALLED + (
            "import rmm, simulated\n"
            "resource = accelerator_alloc.rmm_resource()\n"
            "one, other = torch.cuda.Stream(), torch.cuda.Stream()\n"
            "stream = rmm.pylibrmm.stream.Stream\n"
            "first = resource.allocate(30 << 20, stream(one))\n"
            "simulated.hold(other)\n"
            "with torch.cuda.stream(other): torch.zeros(4096, dtype=torch.uint8).cuda(non_blocking=True)\n"
            "resource.deallocate(first, 30 << 20, stream(other))\n"
            "second = resource.allocate(30 << 20, stream(one))\n"
            "simulated.release(other)\n"
            "torch.cuda.synchronize()\n"
            "third = resource.allocate(30 << 20, stream(one))\n"
            "print(first != second, first == third)\n"
        )
        self.assertEqual(program(text), ("True True", ""))

    def test_a_stream_that_is_another_one_on_each_thread_is_refused(self):
        text = INSTALLED + TOLD + (
            "import rmm, simulated\n"
            "resource, each = accelerator_alloc.rmm_resource(), rmm.pylibrmm.stream.PER_THREAD_DEFAULT_STREAM\n"
            "print(told(lambda: resource.allocate(5 << 20, each)))\n"
            "print(told(lambda: accelerator_alloc.onnx_provider_options(stream=2)))\n"
            "address = resource.allocate(30 << 20)\n"
            "print(told(lambda: record_use(address, 2)))\n"
            # RMM knows no errors when it frees, so this waits.
            "driver, to = ctypes.CDLL(None), torch.zeros(30 << 20, dtype=torch.uint8).pin_memory()\n"
            "driver.cuda_sim_hold(ctypes.c_void_p(2))\n"
            "ends, size = (ctypes.c_uint64(to.data_ptr()), ctypes.c_uint64(address)), ctypes.c_size_t(30 << 20)\n"
            "print(driver.cuMemcpyAsync(*ends, size, ctypes.c_void_p(2)), driver.cuStreamQuery(ctypes.c_void_p(2)))\n"
            "resource.deallocate(address, 30 << 20, each)\n"
            "print(driver.cuStreamQuery(ctypes.c_void_p(2)), allocated())\n"
        )
        refused = "cuda:0: a stream was refused: cudaStreamPerThread is another stream on each thread"
        out, error = program(text)
        lines = [line.removeprefix("std::bad_alloc: out_of_memory: ").split(": make")[0] for line in out.splitlines()]
        self.assertEqual((lines, error), ([*[refused] * 3, "0 600", "0 0"], ""))

    def test_a_stream_of_another_device_is_refused(self):
        text = INSTALLED + TOLD + (
            "other = torch.cuda.Stream(1).cuda_stream\n"
            "allocate, free = accelerator_alloc._libraries._allocate, accelerator_alloc._libraries._free\n"
            "print(told(lambda: allocate(5 << 20, 0, other)))\n"
            "address = allocate(5 << 20, 0, 0)\n"
            "print(told(lambda: record_use(address, other)))\n"
            "free(address)\n"
            "print(allocate(5 << 20, 0, 0) == address)\n"
        )
        refused = "cuda:0: a stream was refused: it is of another device or context"
        out, error = program(text, CUDA_SIM_DEVICES="2")
        lines = [line.split(": let")[0] for line in out.splitlines()]
        self.assertEqual((lines, error), ([refused, refused, "True"], ""))

    def test_a_stream_that_is_gone_is_refused(self):
        text = INSTALLED + TOLD + (
            "tensor = torch.empty(5 << 20, dtype=torch.uint8, device='cuda')\n"
            "stream, driver = ctypes.c_void_p(), ctypes.CDLL(None)\n"
            "print(driver.cuStreamCreate(ctypes.byref(stream), 1), driver.cuStreamDestroy_v2(stream))\n"
            "try: tensor.record_stream(torch.cuda.ExternalStream(stream.value))\n"
            "except RuntimeError as error: print('CUDA_ERROR_INVALID_HANDLE' in str(error))\n"
            "del tensor\n"
            "print(allocated(), torch.empty(5 << 20, dtype=torch.uint8, device='cuda').nbytes >> 20)\n"
        )
        self.assertEqual(program(text), ("0 0\nTrue\n0 5", ""))

    def test_a_stream_that_is_destroyed_after_its_use_loses_no_device(self):
        text = INSTALLED + TOLD + (
            "import simulated\n"
            "tensor = torch.full((5 << 20,), 7, dtype=torch.uint8).cuda()\n"
            "target = torch.empty(5 << 20, dtype=torch.uint8).pin_memory()\n"
            "stream, driver = ctypes.c_void_p(), ctypes.CDLL(None)\n"
            "assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0\n"
            "other = torch.cuda.ExternalStream(stream.value)\n"
            "simulated.hold(other)\n"
            # PyTorch would record an event for the target after the stream is gone.
            "start, source = ctypes.c_void_p(target.data_ptr()), ctypes.c_uint64(tensor.data_ptr())\n"
            "assert driver.cuMemcpyDtoHAsync_v2(start, source, ctypes.c_size_t(5 << 20), stream) == 0\n"
            "tensor.record_stream(other)\n"
            "assert driver.cuStreamDestroy_v2(stream) == 0\n"
            "del tensor\n"
            "again = torch.zeros(5 << 20, dtype=torch.uint8).cuda()\n"
            "print(target.unique().tolist(), allocated(), simulated.violations())\n"
            "del again\n"
            "torch.cuda.empty_cache()\n"
            "print(torch.cuda.memory_reserved(), torch.empty(5 << 20, dtype=torch.uint8, device='cuda').nbytes >> 20)\n"
        )
        for code in ("400", "709", "917"):
            self.assertEqual(program(text, CUDA_SIM_DESTROYED_STREAM=code), ("[7] 5 0\n0 5", ""), code)

    def test_cupy_allocates_on_its_current_stream(self):
        # CuPy's wheel does not run on the simulated driver. This is what its documentation says of these names.
        text = INSTALLED + (
            "import sys, types\n"
            "class Allocator:\n"
            " def __init__(self, malloc, free): self.malloc, self.free = malloc, free\n"
            "stream = torch.cuda.Stream()\n"
            "cuda = types.SimpleNamespace(\n"
            " PythonFunctionAllocator=Allocator, get_current_stream=lambda: types.SimpleNamespace(ptr=stream.cuda_stream)\n"
            ")\n"
            "sys.modules['cupy'] = types.SimpleNamespace(cuda=cuda)\n"
            "allocator = accelerator_alloc.cupy_allocator()\n"
            "address = allocator.malloc(5 << 20, 0)\n"
            "print(allocated(), torch.cuda.memory_snapshot()[0]['stream'] == stream.cuda_stream)\n"
            "allocator.free(address, 0)\n"
            "print(allocated())\n"
            "try: allocator.malloc(1 << 40, 0)\n"
            "except MemoryError as error: print('CUDA out of memory' in str(error))\n"
        )
        out, error = program(text)
        self.assertEqual((out.split(), error), (["5", "True", "0", "True"], ""))

    def test_onnx_runtime_gets_addresses_of_functions(self):
        # ONNX Runtime's wheel does not run on the simulated driver. It reads these options as decimal addresses.
        text = INSTALLED + (
            "import ctypes\n"
            "stream = torch.cuda.Stream().cuda_stream\n"
            "options = accelerator_alloc.onnx_provider_options(stream=stream)\n"
            "of = lambda kind, name: kind(int(options['gpu_external_' + name]))\n"
            "alloc = of(ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t), 'alloc')\n"
            "free = of(ctypes.CFUNCTYPE(None, ctypes.c_void_p), 'free')\n"
            "address = alloc(5 << 20)\n"
            "print(allocated(), alloc(1 << 40))\n"
            "free(address)\n"
            "print(allocated(), int(options['user_compute_stream']) == stream)\n"
            "of(ctypes.CFUNCTYPE(None), 'empty_cache')()\n"
            "print(torch.cuda.memory_reserved())\n"
        )
        out, error = program(text)
        self.assertEqual((out.split(), error), (["5", "None", "0", "True", "0"], ""))

    def test_onnx_runtime_has_one_device(self):
        text = INSTALLED + (
            "accelerator_alloc.onnx_provider_options(device=1)\n"
            "accelerator_alloc.onnx_provider_options(device=1, stream=torch.cuda.Stream(1).cuda_stream)\n"
            "try: accelerator_alloc.onnx_provider_options(device=0)\n"
            "except accelerator_alloc.AcceleratorError as error: print(error)\n"
        )
        told = "a device was refused: ONNX Runtime can use this allocator on one device of a process: this is another one"
        self.assertEqual(program(text, CUDA_SIM_DEVICES="2"), (f"cuda:0: {told}", ""))

    def test_they_need_no_pytorch(self):
        text = (
            "import accelerator_alloc, ctypes, sys\n"
            "options = accelerator_alloc.onnx_provider_options()\n"
            "alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(int(options['gpu_external_alloc']))\n"
            "print(alloc(5 << 20) is not None, 'torch' in sys.modules)\n"
        )
        self.assertEqual(programs.run("-c", text), ("True False", ""))


if __name__ == "__main__":
    unittest.main()

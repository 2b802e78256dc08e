"""What goes wrong when the allocator is installed, and what it says then."""

import ctypes.util
import tempfile
import unittest
from pathlib import Path

import programs


def program(text, **variables):
    """Runs a program in a process of its own. Returns its output and the last line of its errors."""
    out, error = programs.fork("-c", text, **variables)
    return out, programs.last_line(error)


INSTALL = "import accelerator_alloc\naccelerator_alloc.install(conf={conf!r})\n"
EXPANDABLE = (
    "import torch\nx = torch.empty(3 << 20, dtype=torch.uint8, device='cuda')\n"
    "print(torch.cuda.memory_snapshot()[0]['is_expandable'])\n"
)
NAME = "import torch\nprint(torch.cuda.get_allocator_backend())\n"


class Installation(unittest.TestCase):
    def test_it_is_named_afterwards(self):
        out, error = program(INSTALL.format(conf=None) + NAME)
        self.assertEqual((out, error), ("accelerator", ""))

    def test_a_second_one_is_refused(self):
        _, error = program(2 * INSTALL.format(conf=None))
        self.assertRegex(error, "AcceleratorError: the allocator is installed already; configure.. changes its")

    def test_an_unknown_setting_is_named_and_nothing_changes(self):
        for wrong, named in (("no_such_setting:1", "no_such_setting"), ("max_split_size_mb:x", "max_split_size_mb")):
            text = f"try:\n {INSTALL.format(conf=wrong).strip().replace(chr(10), chr(10) + ' ')}\n"
            text += "except RuntimeError as error:\n print(error)\n" + NAME
            out, _ = program(text)
            told, backend = out.rsplit("\n", 1)
            self.assertIn(named, told)
            self.assertEqual(backend, "native")

    def test_a_failed_one_leaves_nothing_behind(self):
        text = (
            "import accelerator_alloc\n"
            "try: accelerator_alloc.install(conf='expandable_segments:True,wrong:1')\n"
            "except RuntimeError: accelerator_alloc.install()\n" + EXPANDABLE
        )
        self.assertEqual(program(text), ("False", ""))

    def test_an_error_of_a_thread_that_ends_is_told_without_its_text(self):
        text = (
            "import accelerator_alloc, ctypes, threading\n"
            "library, system = accelerator_alloc._library.load(), ctypes.CDLL(None)\n"
            "wrong, thread = ctypes.create_string_buffer(b'no_such_setting'), ctypes.c_ulong()\n"
            "keys = []\n"
            # The system calls these when the values that the thread had of its own are gone.
            "for function in (library.accelerator_torch_configure, library.accelerator_torch_last_error):\n"
            "    keys.append(ctypes.c_uint())\n"
            "    assert system.pthread_key_create(ctypes.byref(keys[-1]), function) == 0\n"
            "@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)\n"
            "def work(_):\n"
            "    print(library.accelerator_torch_configure(wrong))\n"
            "    for key in keys: system.pthread_setspecific(key, wrong)\n"
            "assert system.pthread_create(ctypes.byref(thread), None, work, None) == 0\n"
            "assert system.pthread_join(thread, None) == 0\n"
            "print('on')\n"
        )
        self.assertEqual(program(text), ("2\non", ""))

    def test_settings_of_the_environment_count(self):
        for variable in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "ACCELERATOR_ALLOC_CONF"):
            both = {"PYTORCH_ALLOC_CONF": "expandable_segments:False", variable: "expandable_segments:True"}
            self.assertEqual(program(INSTALL.format(conf=None) + EXPANDABLE, **both), ("True", ""), variable)

    def test_given_settings_replace_those_of_the_environment(self):
        text = INSTALL.format(conf="max_split_size_mb:100") + EXPANDABLE
        self.assertEqual(program(text, ACCELERATOR_ALLOC_CONF="expandable_segments:True"), ("False", ""))

    def test_wrong_settings_of_the_environment_are_named(self):
        _, error = program(INSTALL.format(conf=None), ACCELERATOR_ALLOC_CONF="no_such_setting:1")
        self.assertRegex(error, "AcceleratorError: .*ACCELERATOR_ALLOC_CONF.*no_such_setting")

    def test_settings_change_later(self):
        text = INSTALL.format(conf=None) + "accelerator_alloc.configure('expandable_segments:True')\n" + EXPANDABLE
        self.assertEqual(program(text), ("True", ""))
        _, error = program(INSTALL.format(conf=None) + "accelerator_alloc.configure('no_such_setting:1')")
        self.assertRegex(error, "AcceleratorError: .*no_such_setting")
        _, error = program("import accelerator_alloc\naccelerator_alloc.configure('expandable_segments:True')")
        self.assertRegex(error, "AcceleratorError: the allocator is not installed: pass the settings to install")

    def test_another_allocator_is_not_replaced(self):
        # PyTorch reads this when it is imported.
        _, error = programs.run("-c", INSTALL.format(conf=None), PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync")
        self.assertRegex(error, "AcceleratorError: PyTorch uses the allocator cudaMallocAsync, not its own")

    def test_what_is_missing_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            empty = {"XDG_CACHE_HOME": folder, "CXX": "", "PATH": folder}
            for wrong, told, device in (
                ({"ACCELERATOR_TORCH_LIBRARY": "/nowhere/a.so"}, "a library cannot be loaded: /nowhere/a.so", "cuda"),
                (
                    {"ACCELERATOR_TORCH_LIBRARY": ctypes.util.find_library("c")},
                    "is not the library of this package",
                    "cuda",
                ),
                (empty, "there is no C.. compiler", "cpu"),
                ({**empty, "CXX": "no-such-compiler -O3"}, "cannot be built: .*no-such-compiler", "cpu"),
                ({"XDG_CACHE_HOME": "/dev/null"}, "cannot be built: .*/dev/null", "cpu"),
            ):
                text = (
                    f"try:\n import accelerator_alloc\n accelerator_alloc.install(device='{device}')\n"
                    "finally:\n import torch\n print(torch.cuda.get_allocator_backend())"
                )
                out, error = program(text, **wrong)
                self.assertEqual(out, "native", wrong)
                self.assertRegex(error, f"AcceleratorError: .*{told}")

    def test_an_old_pytorch_is_refused(self):
        _, error = program("import torch\ntorch.__version__ = '2.10.0+cu130'\n" + INSTALL.format(conf=None))
        self.assertRegex(error, "AcceleratorError: PyTorch 2.10.0.cu130 is too old: 2.11 or later is needed")

    def test_a_pytorch_without_cuda_is_refused(self):
        _, error = program("import torch\ntorch.version.cuda = None\n" + INSTALL.format(conf=None))
        self.assertRegex(error, "AcceleratorError: PyTorch 2.* was built without CUDA")

    def test_a_compiler_may_have_a_wrapper(self):
        with tempfile.TemporaryDirectory() as folder:
            out, error = program(INSTALL.format(conf=None) + NAME, XDG_CACHE_HOME=folder, CXX="env g++")
            self.assertEqual((out, error), ("accelerator", ""))
            self.assertEqual(len(list(Path(folder).rglob("*"))), 2)  # a folder with a library

    def test_it_can_be_taken_back_when_its_memory_is_free(self):
        text = INSTALL.format(conf="expandable_segments:True") + (
            "import torch\nx = torch.empty(1 << 20, device='cuda')\n"
            "try: accelerator_alloc.uninstall()\n"
            "except accelerator_alloc.AcceleratorError as error: print(error)\n"
            "del x\naccelerator_alloc.uninstall()\n"
            "y = torch.empty(1 << 20, device='cuda')\n"
            "print(torch.cuda.get_allocator_backend(), torch.cuda.memory_reserved() >> 20)\n"
            "del y\naccelerator_alloc.install('')\n"
            "x = torch.empty(1 << 20, device='cuda')\n"
            "print(torch.cuda.get_allocator_backend(), torch.cuda.memory_snapshot()[-1]['is_expandable'])\n"
        )
        out, error = program(text)
        told, native, ours = out.splitlines()
        self.assertRegex(told, "some of its memory is still in use: delete all tensors first")
        self.assertEqual((native, ours, error), ("native 20", "accelerator False", ""))
        _, error = program("import accelerator_alloc\naccelerator_alloc.uninstall()")
        self.assertRegex(error, "AcceleratorError: the allocator is not installed")

    def test_late_installation_leaves_earlier_memory_where_it_is(self):
        text = (
            "import torch\nx = torch.empty(50 << 20, dtype=torch.uint8, device='cuda')\n"
            + INSTALL.format(conf=None)
            + "y = torch.empty(10 << 20, dtype=torch.uint8, device='cuda')\n"
            "s = torch.cuda.Stream()\nx.record_stream(s); y.record_stream(s)\n"
            "print(torch.cuda.memory_allocated() >> 20)\n"
            "del x\nprint(torch.cuda.memory_allocated() >> 20)\n"
            "del y\ntorch.cuda.empty_cache()\nprint(torch.cuda.memory_reserved())\n"
        )
        out, error = program(text)
        self.assertEqual((out.split(), error), (["60", "10", "0"], ""))

    def test_memory_from_before_is_freed_in_a_capture(self):
        text = (
            "import torch, warnings\nfrom torch import cuda\n"
            "warnings.simplefilter('ignore')  # the simulated device runs no kernels, so the graph is empty\n"
            "x, y = (torch.empty(50 << 20, dtype=torch.uint8, device='cuda') for _ in range(2))\n"
            + INSTALL.format(conf=None)
            + "side, graph = cuda.Stream(), cuda.CUDAGraph()\n"
            "for _ in range(2):\n"
            " with cuda.graph(graph):\n"
            "  side.wait_stream(cuda.current_stream())\n"
            "  if x is not None: x.record_stream(side)\n"
            "  x = None  # no event of its use can be recorded now\n"
            "  cuda.current_stream().wait_stream(side)\n"
            "  y = None\n"
            "  cuda.empty_cache()  # which would break the capture now\n"
            " print(cuda.memory_reserved() >> 20)\n"
            " graph.reset()\n"
            " cuda.empty_cache()\n"
            " print(cuda.memory_reserved())\n"
        )
        out, error = program(text)
        self.assertEqual((out.split(), error), (["100", "0", "0", "0"], ""))

    def test_mapped_memory_of_a_graph_stays_until_its_replay_is_over(self):
        text = (
            "import ctypes, simulated, torch, warnings\nfrom torch import cuda\n"
            "warnings.simplefilter('ignore')\n"
            "empty = lambda mib: torch.empty(mib << 20, dtype=torch.uint8, device='cuda')\n"
            "side = cuda.Stream()\n"
            "for again in (cuda.empty_cache, lambda: empty(900)):\n"
            " graph, pool = cuda.CUDAGraph(), cuda.graph_pool_handle()\n"
            " with cuda.graph(graph, pool=pool): x = empty(300)\n"
            " simulated.hold(side)\n"
            # What a replay does, which the stand-in of the runtime leaves out.
            " fill = (ctypes.c_uint64(x.data_ptr()), ctypes.c_ubyte(7), ctypes.c_size_t(300 << 20))\n"
            " assert ctypes.CDLL(None).cuMemsetD8Async(*fill, ctypes.c_void_p(side.cuda_stream)) == 0\n"
            " del x\n"
            " graph.reset()\n"
            " again()\n"
            " simulated.release(side)\n"
            " cuda.synchronize()\n"
            " cuda.empty_cache()\n"
            " print(cuda.memory_reserved(), simulated.violations())\n"
            "del graph\naccelerator_alloc.uninstall()\n"
        )
        out, error = program(INSTALL.format(conf="expandable_segments:True") + text, CUDA_SIM_MEMORY="1G")
        self.assertEqual((out.splitlines(), error), (["0 0", "0 0"], ""))

    def test_graphs_and_pools_from_before_stay_with_pytorchs_own_allocator(self):
        text = (
            "import torch, warnings\nfrom torch import cuda\n"
            "warnings.simplefilter('ignore')  # the simulated device runs no kernels, so the graph is empty\n"
            "pool, other, graph = cuda.MemPool(), cuda.MemPool(), cuda.CUDAGraph()\n"
            "with cuda.graph(graph): x = torch.zeros(1 << 20, device='cuda')\n"
            "with cuda.use_mem_pool(other):\n"
            " " + INSTALL.format(conf=None).strip().replace("\n", "\n ") + "\n"
            " y = torch.empty(1 << 20, device='cuda')\n"
            "try:\n with cuda.use_mem_pool(pool): pass\n"
            "except RuntimeError as error: print(str(error).splitlines()[0])\n"
            "print(pool.use_count())\n"
            "graph.replay()\n"
            "del pool, other, graph, x\n"
            "print(cuda.memory_allocated() >> 20)\n"
        )
        out, error = program(text)
        refused, *numbers = out.splitlines()
        self.assertRegex(refused, "this pool is from before the installation: make a new one")
        self.assertEqual((numbers, error), (["1", "4"], ""))

    def test_graphs_and_pools_must_go_before_it_is_taken_back(self):
        for made in ("torch.cuda.MemPool()", "graph()"):
            text = INSTALL.format(conf=None) + (
                "import torch, warnings\n"
                "warnings.simplefilter('ignore')\n"
                "def graph():\n"
                " graph = torch.cuda.CUDAGraph()\n"
                " with torch.cuda.graph(graph): torch.zeros(1, device='cuda')\n"
                " return graph\n"
                f"x = {made}\n"
                "try: accelerator_alloc.uninstall()\n"
                "except accelerator_alloc.AcceleratorError as error: print(error)\n"
                "del x\naccelerator_alloc.uninstall()\n"
            )
            told = "graphs and pools of it still exist: delete them first"
            self.assertEqual(program(text), (told, ""), made)

    def test_named_pools_are_closed_before_it_is_taken_back(self):
        text = INSTALL.format(conf=None) + (
            "import torch\nAcceleratorError = accelerator_alloc.AcceleratorError\n"
            "pool = accelerator_alloc.pool('cache')\n"
            "with pool:\n x = torch.empty(30 << 20, dtype=torch.uint8, device='cuda')\n"
            "def refused(call):\n"
            " try: call()\n"
            " except AcceleratorError as error: print(error)\n"
            "refused(accelerator_alloc.uninstall)\n"
            "with pool: refused(pool.close)\n"
            "pool.pause(); refused(pool.close); pool.resume()\n"
            "pool.close()\n"
            "print(torch.cuda.memory_reserved() >> 20)\n"
            "refused(pool.pause); refused(pool.__enter__)\n"
            "accelerator_alloc.pool('cache').close()\n"
            "del x\naccelerator_alloc.uninstall()\n"
        )
        out, error = program(text)
        pool = "<pool 'cache' of cuda:0>"
        told = [
            f"{pool} must be closed first",
            f"{pool} still serves requests, or a graph uses it",
            f"{pool} is paused: resume it before it is closed",
            "30",
            f"{pool} is closed",
            f"{pool} is closed",
        ]
        self.assertEqual((out.splitlines(), error), (told, ""))

    def test_state_follows_from_one_allocator_to_the_other(self):
        text = (
            "import accelerator_alloc, torch\nfrom torch import cuda\n"
            "accelerator_alloc.install()\ncuda.init()\n"
            "empty = torch.empty(0, device='cuda')\n"
            "cuda.set_per_process_memory_fraction(0.25)\n"
            "cuda.memory._record_memory_history()\n"
            "accelerator_alloc.uninstall()\n"
            "print(cuda.get_per_process_memory_fraction())\n"
            "empty.resize_(1 << 20); print(cuda.memory_allocated() >> 20)\n"
            "cuda.set_per_process_memory_fraction(1.0)\n"
            "accelerator_alloc.install()\n"
            "print(cuda.get_per_process_memory_fraction(), torch._C._cuda_isHistoryEnabled())\n"
        )
        self.assertEqual(program(text), ("0.25\n4\n1.0 False", ""))

    def test_a_disabled_cache_stays_disabled(self):
        text = (
            "import torch\ntorch.empty(1, device='cuda')\n"
            "if DISABLE: torch.cuda.caching_allocator_enable(False)\n"
            + INSTALL.format(conf=None)
            + "torch.empty(100 << 20, dtype=torch.uint8, device='cuda')\nprint(torch.cuda.memory_reserved() >> 20)\n"
        )
        self.assertEqual(program(text.replace("DISABLE", "True")), ("0", ""))
        self.assertEqual(program(text.replace("DISABLE", "False"), PYTORCH_NO_CUDA_MEMORY_CACHING="1"), ("0", ""))
        self.assertEqual(program(text.replace("DISABLE", "False")), ("100", ""))

    def test_a_request_counts_as_out_of_memory_once(self):
        text = (
            "import torch\nfrom torch import cuda\n"
            "empty = lambda mib: torch.empty(mib << 20, dtype=torch.uint8, device='cuda')\n"
            "kept = empty(20_000)\n"
            + INSTALL.format(conf=None)
            + "x = empty(50_000)\n"
            "count = lambda: print(*(cuda.memory_stats()[name] for name in ('num_ooms', 'num_alloc_retries')))\n"
            "try: empty(50_000)\n"
            "except torch.OutOfMemoryError: count()\n"
            "del kept\ny = empty(20_000); count()\n"
        )
        self.assertEqual(program(text), ("1 1\n1 1", ""))

    def test_changed_settings_of_pytorch_are_followed(self):
        text = INSTALL.format(conf=None) + (
            "import torch\nempty = lambda: torch.empty(40 << 20, dtype=torch.uint8, device='cuda')\n"
            "x = empty()\n"
            "torch._C._accelerator_setAllocatorSettings('expandable_segments:True,roundup_power2_divisions:2')\n"
            "x = [x, empty()]\n"
            "print(*sorted(segment['is_expandable'] for segment in torch.cuda.memory_snapshot()))\n"
            "print(torch.cuda.memory_allocated() >> 20)\n"
        )
        self.assertEqual(program(text), ("False True\n88", ""))

    def test_late_installation_keeps_the_fraction_and_uses_the_free_cache(self):
        text = (
            "import torch\n"
            "empty = lambda mib: torch.empty(mib << 20, dtype=torch.uint8, device='cuda')\n"
            "torch.cuda.set_per_process_memory_fraction(0.75)\n"
            "empty(50_000)\n"  # free in PyTorch's cache
            + INSTALL.format(conf=None)
            + "x = empty(50_000)\nprint(torch.cuda.get_per_process_memory_fraction())\n"
        )
        self.assertEqual(program(text), ("0.75", ""))

    def test_a_look_opens_no_device(self):
        text = INSTALL.format(conf=None) + (
            "import simulated, torch\n"
            "x = torch.empty(1, device='cuda')\n"
            "torch.cuda.memory._record_memory_history(); torch.cuda.memory_snapshot(); torch.cuda.empty_cache()\n"
            "torch.cuda.memory_stats(1); torch.cuda.reset_peak_memory_stats(1)\n"
            "for device in (0, 1): print(int(simulated.has_context(device)))\n"
        )
        self.assertEqual(program(text, CUDA_SIM_DEVICES="2"), ("1\n0", ""))

    def test_the_current_device_stays(self):
        text = INSTALL.format(conf=None) + (
            "import threading, torch\n"
            "x, s = torch.empty(30 << 20, device='cuda:1'), torch.cuda.Stream(1)\n"
            "x.record_stream(s)\n"
            "def free():\n"
            " global x\n"
            " del x\n"
            " torch.cuda.empty_cache()\n"
            " print(torch.cuda.current_device())\n"
            "thread = threading.Thread(target=free)\n"
            "thread.start(); thread.join()\n"
            "print(torch.cuda.current_device(), torch.cuda.memory_allocated(1))\n"
        )
        self.assertEqual(program(text, CUDA_SIM_DEVICES="2"), ("0\n0 0", ""))

    def test_a_stream_of_another_device_is_refused(self):
        text = INSTALL.format(conf=None) + (
            "import torch\nx = torch.empty(30 << 20, device='cuda:0')\n"
            "for stream in (torch.cuda.Stream(1), torch.cuda.default_stream(1)):\n"
            " try: x.record_stream(stream)\n"
            " except RuntimeError as error: print(str(error).splitlines()[0])\n"
            "del x\ny = torch.empty(40 << 20, device='cuda:0')\n"
        )
        out, error = program(text, CUDA_SIM_DEVICES="2")
        told = "accelerator: cuda:0 has the tensor, and cuda:1 the stream: make a stream of the tensor's device wait for it"
        self.assertEqual(([line.rpartition(",")[0] for line in out.splitlines()], error), ([told] * 2, ""))

    def test_devices_copy_to_each_other(self):
        text = (
            "import torch\nx = torch.arange(1 << 20)\ny = x.to('cuda:0').to('cuda:1')\n"
            "print(torch.equal(y.cpu(), x), y.device)\n"
        )
        for conf in ("", "expandable_segments:True", "policy:compact"):
            out, error = program(INSTALL.format(conf=conf) + text, CUDA_SIM_DEVICES="2")
            self.assertEqual((out, error), ("True cuda:1", ""), conf)

    def test_devices_have_access_to_each_other_after_a_late_installation(self):
        use = (
            "x, y = (torch.ones(1000).to(f'cuda:{n}') for n in (0, 1))\n"
            "torch.cuda.synchronize()\n"
            "torch.cuda.set_device(1)\n"
            "driver, module, kernel = ctypes.CDLL(None), ctypes.c_void_p(), ctypes.c_void_p()\n"
            "text = b'.version 8.0\\n.entry scale(.param .u32 n, .param .f32 a, .param .u64 x) {}'\n"
            "assert driver.cuModuleLoadData(ctypes.byref(module), text) == 0\n"
            "assert driver.cuModuleGetFunction(ctypes.byref(kernel), module, b'scale') == 0\n"
            "given = ctypes.c_uint(1000), ctypes.c_float(7), ctypes.c_uint64(x.data_ptr())\n"
            "given = (ctypes.c_void_p * 3)(*(ctypes.addressof(one) for one in given))\n"
            "assert driver.cuLaunchKernel(kernel, 1, 1, 1, 1000, 1, 1, 0, None, given, None) == 0\n"
            "torch.cuda.synchronize(1)\n"
            "print(x.cpu().unique().tolist(), simulated.violations())\n"
            "torch.cuda.set_device(0)\n"
            "del x, y\n"
        )
        # PyTorch enables the access and remembers that.
        copy = "import ctypes, simulated, torch\ntorch.zeros(1, device='cuda:0').to('cuda:1')\n"
        late = copy + INSTALL.format(conf="expandable_segments:True") + use
        again = INSTALL.format(conf="") + "accelerator_alloc.uninstall()\n" + late
        for text in (late, again):
            out, error = program(text, CUDA_SIM_DEVICES="2")
            self.assertEqual((out, error), ("[7.0] 0", ""))

    def test_a_forked_process_can_free_and_cannot_allocate(self):
        text = INSTALL.format(conf=None) + (
            "import os, torch\nx = torch.empty(1 << 20, device='cuda')\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            " try: torch.empty(1, device='cuda')\n"
            " except RuntimeError as error: print(str(error).splitlines()[0], flush=True)\n"
            " del x\n"
            " os._exit(0)\n"
            "assert os.waitpid(child, 0)[1] == 0\n"
        )
        out, error = program(text)
        self.assertRegex(out, "Cannot re-initialize CUDA in forked subprocess")
        self.assertEqual(error, "")


if __name__ == "__main__":
    unittest.main()

"""Tensors of the CPU, with real values."""

import concurrent.futures
import os
import unittest

import torch
from torch.utils.data import DataLoader, Dataset

import accelerator_alloc
import programs
from accelerator_alloc import AcceleratorError

MIB = 1 << 20
SETTINGS = ("", "expandable_segments:True", "policy:compact")


def program(*arguments, **variables):
    """Runs Python in a process of its own. Returns its output and the last line of its errors."""
    out, error = programs.fork(*arguments, **variables)
    return out, programs.last_line(error)


def current(name="allocated_bytes"):
    return accelerator_alloc.memory_stats()[f"{name}.all.current"]


class Squares(Dataset):
    """The memory of `numbers` comes from the parent, and that of the items from the worker."""

    def __init__(self):
        self.numbers = torch.arange(5000.0)

    def __len__(self):
        return 40

    def __getitem__(self, index):
        self.numbers[index] += 1  # in the worker's copy
        return torch.full((1000,), float(index)) * self.numbers[index]


class Training(unittest.TestCase):
    def test_losses_and_weights_are_bit_equal(self):
        for model in ("transformer", "convolution", "experts"):
            expected, error = program("train_cpu.py", model)
            self.assertEqual((len(expected), error), (64, ""))
            for settings in SETTINGS:
                with self.subTest(model=model, settings=settings):
                    self.assertEqual(program("train_cpu.py", model, "--ours", "--conf", settings), (expected, ""))


class Tensors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        accelerator_alloc.install(conf=os.environ.get("CONF", ""), device="cpu")

    def test_statistics_count_tensors(self):
        before, requested = current(), current("requested_bytes")
        tensor = torch.empty(3 * MIB, dtype=torch.uint8)
        self.assertEqual(current() - before, 3 * MIB)
        self.assertEqual(tensor.data_ptr() % 512, 0)
        view = tensor[10:20]
        del tensor
        self.assertEqual(current("requested_bytes") - requested, 3 * MIB)
        del view
        self.assertEqual(current(), before)
        accelerator_alloc.empty_cache()
        accelerator_alloc.reset_peak_memory_stats()
        self.assertEqual(accelerator_alloc.memory_stats()["allocated_bytes.all.peak"], before)
        self.assertEqual(torch.empty(0).data_ptr(), 0)

    def test_memory_that_runs_out_raises_an_error(self):
        with self.assertRaisesRegex(RuntimeError, "DefaultCPUAllocator: can't allocate memory: host:0 .*tried to allocate"):
            torch.empty(1 << 50, dtype=torch.uint8)
        self.assertEqual(torch.ones(3).sum().item(), 3)

    def test_memory_keeps_its_bytes_while_other_threads_allocate(self):
        def fill(value):
            for size in range(1, 400):
                tensor = torch.full((size * 97,), value)
                if not bool((tensor == value).all()):
                    return False
            return True

        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            self.assertTrue(all(threads.map(fill, range(8))))

    def test_storages_are_resized_copied_on_write_and_shared(self):
        tensor = torch.arange(1000)
        tensor.untyped_storage().resize_(80_000)
        self.assertEqual(tensor.tolist(), list(range(1000)))
        lazy = torch._lazy_clone(tensor)
        lazy[0] = 7
        self.assertEqual((tensor[0].item(), lazy[0].item()), (0, 7))
        tensor.share_memory_()
        self.assertTrue(tensor.is_shared())
        self.assertEqual(tensor.tolist(), list(range(1000)))

    def test_tensors_from_before_the_installation_can_be_freed(self):
        text = (
            "import torch\nx, storage = torch.ones(1000), torch.ones(1000).untyped_storage()\n"
            "import accelerator_alloc\naccelerator_alloc.install('', device='cpu')\n"
            "y = x * 2\nstorage.resize_(100_000)\ndel x, storage\n"
            "print(y.sum().item())\naccelerator_alloc.uninstall('cpu')\n"
            "z = y + torch.ones(1000)\ndel y\nprint(z.sum().item(), accelerator_alloc.is_installed('cpu'))\n"
            "accelerator_alloc.install('policy:compact', 'cpu')\n"
            "print((z + 1).sum().item(), accelerator_alloc.memory_stats()['allocation.all.current'])\n"
        )
        self.assertEqual(program("-c", text), ("2000.0\n3000.0 False\n4000.0 0", ""))

    def test_memory_without_a_tensor_outlives_an_uninstallation(self):
        text = (
            "import torch, accelerator_alloc\naccelerator_alloc.install('', device='cpu')\n"
            "a = torch.empty(1000).untyped_storage()\n"
            "accelerator_alloc.uninstall('cpu')\na.resize_(5_000_000)\na.resize_(10)\ndel a\n"
            "print(accelerator_alloc.is_installed('cpu'), torch.ones(7).sum().item())\n"
        )
        self.assertEqual(program("-c", text), ("False 7.0", ""))

    def test_forks_do_not_wait_for_threads_that_children_lack(self):
        # Without the interpreter's lock, these threads free memory while others fork. All operators run once before:
        # PyTorch prepares each at its first call, and a child would wait for a thread that was just doing so.
        text = (
            "import os, threading, torch, accelerator_alloc\naccelerator_alloc.install('', device='cpu')\n"
            "torch.set_num_threads(1)\nmatrix, ended = torch.rand(8, 8), threading.Event()\n"
            "torch.linalg.svd(matrix)\ntorch.ones(100) + 1\n"
            "def work():\n    while not ended.is_set():\n        torch.linalg.svd(matrix)\n"
            "def start():\n    threads = [threading.Thread(target=work) for _ in range(3)]\n"
            "    for thread in threads:\n        thread.start()\n    return threads\n"
            "def fork(depth):\n"
            "    child = os.fork()\n"
            "    if child:\n        return os.waitpid(child, 0)[1]\n"
            "    if depth:\n        start()\n"
            "    for _ in range(200):\n        torch.ones(100) + 1\n"
            "    os._exit(any([fork(depth - 1) for _ in range(12)]) if depth else 0)\n"
            "threads = start()\nprint(any([fork(1) for _ in range(12)]))\nended.set()\n"
            "for thread in threads:\n    thread.join()\n"
        )
        self.assertEqual(program("-c", text), ("False", ""))

    def test_wrong_variables_of_the_host_are_told_at_once(self):
        text = "import accelerator_alloc\naccelerator_alloc.install('', device='cpu')"
        error = program("-c", text, ACCELERATOR_HOST_CAPACITY="abc")[1]
        self.assertRegex(error, "AcceleratorError: .*ACCELERATOR_HOST_CAPACITY")

    def test_the_profiler_sees_allocations(self):
        with torch.profiler.profile(profile_memory=True) as profile:
            tensor = torch.empty(5 * MIB, dtype=torch.uint8)
            del tensor
        self.assertIn(5 * MIB, [event.cpu_memory_usage for event in profile.key_averages()])

    def test_workers_of_data_loaders_have_copies(self):
        data = Squares()
        for _ in range(2):
            batches = list(DataLoader(data, batch_size=10, num_workers=2))
            self.assertEqual([batch[:, 0].tolist() for batch in batches][0], [i * (i + 1.0) for i in range(10)])
        self.assertEqual(data.numbers.tolist(), [float(i) for i in range(5000)])

    def test_a_forked_child_uses_its_copies_and_pytorchs_allocator(self):
        tensor, lives = torch.arange(100_000), current()
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            tensor[5] = 99
            total = torch.ones(1000).sum() + tensor[5]
            del tensor
            told = f"{total.item()} {accelerator_alloc.is_installed('cpu')}"
            try:
                accelerator_alloc.install("", "cpu")
            except AcceleratorError as error:
                told += f" {error}"
            os.write(writer, told.encode())
            os._exit(0)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertRegex(os.read(reader, 1000).decode(), "1099.0 False this process was forked from one with the alloc")
        self.assertEqual((tensor[5].item(), current()), (5, lives))


class Arguments(unittest.TestCase):
    def test_wrong_ones_are_named(self):
        for text, told in (
            ("install(device='tpu')", "the device is 'tpu': expected one of 'cuda', 'cpu'"),
            ("install('no_such_setting:1', 'cpu')", ".*no_such_setting"),
            ("memory_stats()", "the allocator is not installed: call install"),
            ("uninstall('cpu')", "the allocator is not installed"),
            ("configure('policy:compact', 'cpu')", "the allocator is not installed: pass the settings to install"),
        ):
            _, error = program("-c", f"import accelerator_alloc\naccelerator_alloc.{text}")
            self.assertRegex(error, f"AcceleratorError: {told}")
        _, error = program("-c", "import accelerator_alloc as a\na.install('', 'cpu')\na.install('', 'cpu')")
        self.assertRegex(error, "AcceleratorError: the allocator is installed already")

    def test_a_pytorch_without_cuda_will_do(self):
        text = "import torch\ntorch.version.cuda = None\nimport accelerator_alloc\naccelerator_alloc.install('', 'cpu')\n"
        self.assertEqual(program("-c", text + "print(torch.ones(5).sum().item())"), ("5.0", ""))

    def test_the_names_of_statistics_are_pytorchs(self):
        text = (
            "import accelerator_alloc, torch\naccelerator_alloc.install('', 'cpu')\n"
            "torch.empty(1, device='cuda')\n"
            "own, theirs = set(accelerator_alloc.memory_stats()), set(torch.cuda.memory_stats())\n"
            "print(sorted(own ^ theirs))\n"
        )
        self.assertEqual(program("-c", text), ("[]", ""))


class Settings(unittest.TestCase):
    def test_tensors_work_under_other_settings(self):
        for settings in SETTINGS[1:]:
            with self.subTest(settings):
                _, error = program("-m", "unittest", "test_cpu.Tensors", CONF=settings)
                self.assertEqual(error, "OK")


if __name__ == "__main__":
    unittest.main()

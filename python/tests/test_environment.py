"""The installed wheel puts the allocator in programs that do not name it, if the environment asks for it."""

import concurrent.futures
import importlib.metadata
import os
import tempfile
import unittest
from pathlib import Path

import accelerator_alloc
import programs

HERE = Path(__file__).parent
CONF = "ACCELERATOR_ALLOC_CONF"
SWITCHED = {"ACCELERATOR_TORCH": "1"}
# An unchanged program: the names of its allocator and of its modules.
NAME = "import torch\nprint(torch.cuda.get_allocator_backend())\n"
LOADED = "print('libaccelerator_torch' in open('/proc/self/maps').read())\n"
# The programs of the recorded jobs that train.
JOBS = (
    "bart_offload_train",
    "detr_train",
    "dlrm_train",
    "gan_gp_train",
    "gpt2_check",
    "llama2b_lora_ckpt",
    "lstm_seq2seq_train",
    "moe_ep_train",
    "ppo_train",
    "swin_train_eval_ckpt",
    "t5_accum_train",
    "unet_train",
    "vit_amp_train",
)
TRAIN = [str(HERE / "train.py"), "experts"]


def setUpModule():
    if not any(importlib.metadata.entry_points(group="torch.backends", name="accelerator_alloc")):
        raise unittest.SkipTest("the package is not installed: ACCELERATOR_WHEEL names no wheel")


class Environment(unittest.TestCase):
    def test_one_switches_an_unchanged_program(self):
        self.assertEqual(programs.run("-c", NAME + LOADED, **SWITCHED), ("accelerator\nTrue", ""))

    def test_zero_and_nothing_do_not(self):
        for variables in ({}, {"ACCELERATOR_TORCH": ""}, {"ACCELERATOR_TORCH": "0"}):
            out, error = programs.run("-c", NAME + LOADED, **variables)
            self.assertEqual((out, error), ("native\nFalse", ""), variables)

    def test_other_values_are_refused_and_pytorch_works(self):
        out, error = programs.run("-c", NAME, ACCELERATOR_TORCH="yes")
        self.assertEqual(out, "native")
        told = "RuntimeWarning: PyTorch keeps its own allocator: ACCELERATOR_TORCH is 'yes', and not one of '1', 'cuda', "
        self.assertIn(told, error)

    def test_one_kind_of_device_does_not_depend_on_the_other(self):
        text = "import accelerator_alloc, torch\nprint(*map(accelerator_alloc.is_installed, ('cuda', 'cpu')))\n"
        for missing, installed in (("cuda", "False True"), ("cpu", "True False")):
            library = {"cuda": "ACCELERATOR_TORCH_LIBRARY", "cpu": "ACCELERATOR_TORCH_CPU_LIBRARY"}[missing]
            out, error = programs.run("-c", text, ACCELERATOR_TORCH="cuda,cpu", **{library: "/no/such/library.so"})
            self.assertEqual(out, installed)
            self.assertIn(f"PyTorch keeps its own allocator for {missing} devices", error)

    def test_tensors_of_the_cpu_are_switched_by_name(self):
        text = "import accelerator_alloc, torch\nprint(*map(accelerator_alloc.is_installed, ('cuda', 'cpu')))\n"
        for value, installed in (("cpu", "False True"), ("cuda,cpu", "True True"), ("1", "True False")):
            self.assertEqual(programs.run("-c", text, ACCELERATOR_TORCH=value), (installed, ""))

    def test_settings_of_the_environment_count(self):
        text = "import torch\ntorch.empty(3 << 20, dtype=torch.uint8, device='cuda')\n"
        text += "print(torch.cuda.memory_snapshot()[0]['is_expandable'])\n"
        for variable in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", CONF):
            self.assertEqual(programs.run("-c", text, **SWITCHED, **{variable: "expandable_segments:True"}), ("True", ""))

    def test_the_policy_compact_reserves_less_in_an_unchanged_program(self):
        ratios = []
        for variables in ({}, {**SWITCHED, CONF: "policy:compact"}):
            out, error = programs.run(*TRAIN, **variables)
            self.assertEqual(error, "")
            ratios.append(float(out.split(": ")[1]))
        self.assertGreater(ratios[0], 1.1)
        self.assertLess(ratios[1], 1.03)

    def test_recorded_jobs_reserve_little_more_than_they_request(self):
        variables = {**SWITCHED, CONF: "policy:compact", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
            runs = threads.map(lambda job: programs.run("recorded.py", job, **variables), JOBS)
            for job, (out, error) in zip(JOBS, runs):
                with self.subTest(job):
                    self.assertRegex(out, r"^\d+ [\d.]+$", error)
                    requested, ratio = map(float, out.split())
                    print(f"{job}: {requested / (1 << 30):.1f} GiB requested, {ratio:.3f} times as much reserved")
                    self.assertGreater(requested, 4 << 30)
                    self.assertLess(ratio, 1.03)

    def test_an_unknown_setting_is_told(self):
        out, error = programs.run("-c", NAME, **SWITCHED, **{CONF: "no_such_setting:1"})
        self.assertEqual(out, "native")
        self.assertIn("RuntimeWarning", error)
        self.assertIn("no_such_setting", error)

    def test_a_program_without_a_device_works(self):
        text = "import torch\nprint(torch.cuda.is_available(), torch.zeros(3).sum().item())\n"
        out, error = programs.run("-c", text, without=["LD_PRELOAD"], **SWITCHED)
        self.assertEqual(out, "False 0.0")

    def test_children_inherit_it(self):
        text = (
            "import multiprocessing, subprocess, sys, torch\n"
            "if __name__ == '__main__':\n"
            "    spawn = multiprocessing.get_context('spawn')\n"
            "    with spawn.Pool(1) as pool:\n"
            "        print(pool.apply(torch.cuda.get_allocator_backend))\n"
            f"    print(subprocess.check_output([sys.executable, '-c', {NAME!r}], text=True))\n"
        )
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "spawning.py"
            file.write_text(text)
            out, error = programs.run(str(file), **SWITCHED)
        self.assertEqual((out.split(), error), (["accelerator", "accelerator"], ""))

    def test_a_second_installation_by_the_program_is_refused(self):
        text = "import accelerator_alloc, torch\naccelerator_alloc.install()\n"
        self.assertRegex(programs.run("-c", text, **SWITCHED)[1], "AcceleratorError: the allocator is installed already")

    def test_pytorchs_own_switch_turns_it_off(self):
        self.assertEqual(programs.run("-c", NAME, **SWITCHED, TORCH_DEVICE_BACKEND_AUTOLOAD="0"), ("native", ""))

    def test_the_wheels_part_for_this_pytorch_needs_no_compiler(self):
        prebuilt = Path(accelerator_alloc.__file__).parent / "prebuilt"
        if not any(prebuilt.glob("*.so")):
            raise unittest.SkipTest("the wheel has no part for any PyTorch")
        with tempfile.TemporaryDirectory() as folder:
            variables = {**SWITCHED, "XDG_CACHE_HOME": folder, "CXX": "/no/compiler"}
            self.assertEqual(programs.run("-c", NAME, **variables), ("accelerator", ""))
            self.assertEqual(list(Path(folder).iterdir()), [])


if __name__ == "__main__":
    unittest.main()

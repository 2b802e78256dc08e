"""The reports, the advice and the tracker, with PyTorch's allocator and with ours."""

import html
import json
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

import accelerator_alloc
import programs
from accelerator_alloc import _program

DATA = Path(__file__).parents[2] / "tests/data"
SNAPSHOT, TRACKER = (DATA / f"pytorch/tiny_transformer.{name}.pickle" for name in ("snapshot", "tracker"))
# A model, and a step of its training.
JOB = """
import sys, torch, accelerator_alloc
if sys.argv[1] == "ours": accelerator_alloc.install("")
model = torch.nn.Sequential(torch.nn.Linear(1000, 1000), torch.nn.Linear(1000, 1000)).cuda()
def step(): model(torch.zeros(500, 1000, device="cuda")).sum().backward()
def refused(what):
    try: what()
    except accelerator_alloc.AcceleratorError as error: print(error)
"""


def setUpModule():
    if not Path(_program.path()).exists():
        raise unittest.SkipTest("the package comes without the program accel: ACCELERATOR_WHEEL names no wheel")


class InAJob(unittest.TestCase):
    """What works with both allocators, in a process of its own."""

    def run_with_both(self, text):
        outputs = []
        for whose in ("native", "ours"):
            outputs.append(programs.output("-c", JOB + text, whose))
        self.assertEqual(*outputs)
        return outputs[0]

    def test_a_report_shows_the_memory_of_the_process(self):
        out = self.run_with_both("step()\nprint(accelerator_alloc.report().html)\n")
        self.assertIn("<h1>this process", out)
        # Weights, their gradients and biases: 4 MB and 4 kB of each, twice.
        self.assertRegex(out, r"15\.\d+ MiB")

    def test_advice_needs_a_history_and_names_the_settings(self):
        out = self.run_with_both(
            "step()\nrefused(accelerator_alloc.advise)\n"
            "torch.cuda.memory._record_memory_history()\n"
            "kept = []\n"
            "for i in range(1, 30):\n"
            "    kept.append(torch.empty(i << 21, dtype=torch.uint8, device='cuda'))\n"
            "    del kept[:-1]\n"
            "advice = accelerator_alloc.advise()\n"
            "print(repr(advice.conf), advice.reserved >> 20, advice.smallest_device >> 20)\n"
        )
        refused, advice = out.splitlines()
        self.assertRegex(refused, "there is no history: call torch.cuda.memory._record_memory_history")
        conf, reserved, smallest = advice.split()
        # At most two of the blocks live at once, the largest ones of 56 and 58 MiB.
        self.assertNotEqual(conf, "None")
        self.assertLess(int(reserved), 200)
        self.assertLessEqual(int(smallest), int(reserved))

    def test_a_tracker_counts_what_a_block_of_code_keeps(self):
        out = self.run_with_both(
            "old = torch.empty(3 << 20, dtype=torch.uint8, device='cuda')\n"
            "before = torch.cuda.memory_allocated()\n"
            "with accelerator_alloc.tracker(model) as tracked:\n"
            "    kept = torch.empty(30 << 20, dtype=torch.uint8, device='cuda')\n"
            "    torch.empty(50 << 20, dtype=torch.uint8, device='cuda')\n"
            "    del old\n"
            "    step()\n"
            "print(tracked.allocated_change)\n"
            "print(tracked.peak_allocated - before >> 20, tracked.reserved_change >> 20 >= 80)\n"
            "print(tracked)\n"
            "print(tracked.report().html.count('<svg') > 0)\n"
            "tracked.save('/dev/null')\n"
        )
        lines = out.splitlines()
        # The two blocks, and gradients of 1000 * 1000 and of 1000 numbers for each layer, in multiples of 512 bytes.
        self.assertEqual(lines[0], str((30 - 3 << 20) + 2 * (4_000_256 + 4096)))
        self.assertEqual(lines[1], "80 True")
        self.assertRegex(out, r"(?m)^1\.forward\.addmm\.default_1: ")
        self.assertEqual(lines[-1], "True")

    def test_a_tracker_ends_with_an_error_in_the_block(self):
        out = self.run_with_both(
            "try:\n"
            "    with accelerator_alloc.tracker() as tracked: 1 / 0\n"
            "except ZeroDivisionError: pass\n"
            "torch.empty(1 << 20, device='cuda')\n"
            "print(tracked.allocated_change, 'empty' in str(tracked))\n"
        )
        self.assertEqual(out, "0 False\n")


class OfFiles(unittest.TestCase):
    def test_a_report_is_the_programs_page(self):
        report = accelerator_alloc.report(SNAPSHOT)
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder, "made.html")
            subprocess.run([_program.path(), "report", SNAPSHOT, "-o", made], check=True, capture_output=True)
            for name in ("page.html", "picture.svg", "picture.png"):
                report.save(Path(folder) / name)
            self.assertEqual(Path(folder, "page.html").read_text(), made.read_text())
            self.assertEqual(report.html, made.read_text())
            self.assertTrue(Path(folder, "picture.svg").read_text().startswith("<svg"))
            self.assertEqual(Path(folder, "picture.png").read_bytes()[:4], b"\x89PNG")
            for path in (Path(folder, "page.txt"), "/nowhere/page.html"):
                with self.assertRaises(accelerator_alloc.AcceleratorError):
                    report.save(path)

    def test_notebooks_show_the_page_in_a_frame(self):
        report = accelerator_alloc.report(str(TRACKER))
        (inside,) = re.fullmatch(r'<iframe srcdoc="([^"]*)"[^>]*></iframe>', report._repr_html_()).groups()
        self.assertEqual(html.unescape(inside), report.html)

    def test_advice_is_the_programs(self):
        command = [_program.path(), "advise", SNAPSHOT, "--json"]
        expected = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        advice = accelerator_alloc.advise(SNAPSHOT)
        self.assertEqual(advice.conf, "policy:compact")
        (row,) = [row for row in expected["settings"] if row["name"] == "policy:compact"]
        self.assertEqual((advice.reserved, advice.smallest_device), (row["reserved"], row["smallest"]))
        self.assertTrue(str(advice).startswith("Set policy:compact: tiny_transformer"), advice)
        self.assertTrue(str(advice).endswith("accelerator_alloc.install(conf='policy:compact').\n"), advice)
        self.assertEqual(html.unescape(advice._repr_html_()), f"<pre>{advice}</pre>")

    def test_what_cannot_be_read_is_named(self):
        for source, told in (
            (None, "this process uses no CUDA device"),
            ("/nowhere", "there is no file /nowhere"),
            (__file__, "test_tools"),
            ({}, "neither a file nor a snapshot"),
            ({"segments": []}, "neither a file nor a snapshot"),
            (5, "neither a file nor a snapshot"),
        ):
            for tool in (accelerator_alloc.report, accelerator_alloc.advise):
                with self.assertRaisesRegex(accelerator_alloc.AcceleratorError, told):
                    tool(source)


if __name__ == "__main__":
    unittest.main()

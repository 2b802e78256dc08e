"""Tests of the parsers, with real output of both sides."""
import unittest

from sidebyside import outputs
from sidebyside.failure import Failure

PYTORCH = """\
# scenario threads ns_per_op  min max  cpu_ns thread_ns  device_allocs ops_per_rep  (3 reps)
lifo     1     572.7      531.5     627.3      435.9     572.7  1 94720
lifo     2     490.1      450.7     613.3      980.2     980.3  2 111104
"""
OURS = """\
# scenario threads ns_per_op  min max  cpu_ns thread_ns  device_allocs ops_per_rep  (api core, 3 reps)
stats    1      17.8       17.7      18.0       17.8      17.8  0 1127360
"""
CALLGRIND = """\
==29622== Callgrind, a call-graph generating cache profiler
==29622== For interactive control, run 'callgrind_control -h'.
==29622==
==29622== Events    : Ir
==29622== Collected : 8200033
==29622==
==29622== I   refs:      8,200,033
"""


class Bench(unittest.TestCase):
    def test_lines_of_both_sides_are_read(self):
        first, second = outputs.bench_lines(PYTORCH)
        self.assertEqual(first, ("lifo", 1, 572.7, 531.5, 627.3, 435.9, 572.7, 1, 94720))
        self.assertEqual((second.threads, second.ns, second.operations), (2, 490.1, 111104))
        self.assertAlmostEqual(second.busy_cores, 2, places=3)
        (line,) = outputs.bench_lines(OURS)
        self.assertEqual((line.scenario, line.least, line.most, line.device_allocs), ("stats", 17.7, 18.0, 0))

    def test_other_lines_are_refused(self):
        for line in ["lifo 1 572.7", PYTORCH.splitlines()[1] + " 7", PYTORCH.splitlines()[1].replace("572.7", "-")]:
            with self.assertRaisesRegex(Failure, "not a line of benchmark output"):
                outputs.bench_lines(line)


class Counts(unittest.TestCase):
    def test_operations_and_instructions_are_read(self):
        self.assertEqual(outputs.counted_operations("lifo ops 22016\n"), 22016)
        self.assertEqual(outputs.instructions(CALLGRIND), 8_200_033)

    def test_what_says_none_or_two_is_refused(self):
        for text in ["", "==1== I   refs:", CALLGRIND + CALLGRIND]:
            with self.assertRaisesRegex(Failure, "how many instructions"):
                outputs.instructions(text)
        with self.assertRaisesRegex(Failure, "how many operations"):
            outputs.counted_operations("lifo 22016")


class Replay(unittest.TestCase):
    def test_the_time_of_a_call_is_read(self):
        self.assertEqual(outputs.replay_time("a warning\ntime_ns 3000 ops 20\n", "time_ns"), (150.0, 20))
        self.assertEqual(outputs.replay_time("loop_ns 3000 ops 20\n", "loop_ns"), (150.0, 20))

    def test_no_time_and_no_calls_are_refused(self):
        with self.assertRaisesRegex(Failure, "how long"):
            outputs.replay_time("time_ns ? ops 20", "time_ns")
        with self.assertRaisesRegex(Failure, "how long"):
            outputs.replay_time("time_ns 3000 ops 20", "loop_ns")
        with self.assertRaisesRegex(Failure, "no call"):
            outputs.replay_time("time_ns 0 ops 0", "time_ns")

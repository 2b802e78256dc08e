"""Tests of the order of measurements, and of their results."""
import unittest
from unittest import mock

from sidebyside import measure, sides
from sidebyside.failure import Failure
from sidebyside.measure import Pair
from sidebyside.sides import CALLS, LOOP, Effort, Ours, PyTorch

BOTH = Pair(PyTorch("torch_bench", "torch_replay"), Ours("accel"))
EFFORT = Effort(rounds=2, repetitions=3, milliseconds=20, replays=2)


class Quiet(unittest.TestCase):
    def setUp(self):
        patch = mock.patch.object(measure, "tell")
        patch.start()
        self.addCleanup(patch.stop)

    def run_as(self, answer):
        """Replaces programs: `answer` returns the standard output and error of a command."""
        commands = []

        def run(command):
            commands.append(" ".join(map(str, command)))
            return answer(commands[-1])

        patch = mock.patch.object(sides, "run", run)
        patch.start()
        self.addCleanup(patch.stop)
        return commands


class Benches(Quiet):
    def test_sides_take_turns(self):
        def answer(command):
            ns = 400 if command.startswith("torch") else 20
            return f"# columns\nsmall 1 {ns} 1 1 1 1 0 64\nsmall 2 {2 * ns} 1 1 1 1 0 64\n", ""

        commands = self.run_as(answer)
        found = measure.benches(BOTH, {"small": [1, 2]}, EFFORT)
        turn = ["torch_bench -r 3 -m 20 -t 1,2 small", "accel bench small --threads 1,2 --reps 3 --milliseconds 20"]
        self.assertEqual(commands, turn * 2)
        self.assertEqual([line.ns for line in found["small", 1].peer], [400, 400])
        self.assertEqual([line.ns for line in found["small", 2].ours], [40, 40])


class Counts(Quiet):
    def test_constants_drop_out(self):
        def answer(command):
            operations = int(command.split()[-1]) // 64 * 64
            each, constant = (4100, 33) if "torch_bench -c small" in command else (260, 999)
            return f"small ops {operations}", f"==1== I   refs:   {operations * each + constant:,}"

        commands = self.run_as(answer)
        self.assertEqual(measure.counts(BOTH, ["small"]), {"small": (4100, 260)})
        self.assertTrue(all(command.startswith("valgrind --tool=callgrind ") for command in commands), commands)

    def test_a_count_of_nothing_is_refused(self):
        self.run_as(lambda command: (f"small ops {command.split()[-1]}", "==1== I   refs:   0"))
        with self.assertRaisesRegex(Failure, "nothing was counted"):
            measure.counts(BOTH, ["small"])


class Replays(Quiet):
    def test_each_replay_is_kept(self):
        times = iter([3000, 300, 2000, 200])
        commands = self.run_as(lambda command: ("@1 stats", f"time_ns {next(times)} ops 10"))
        self.assertEqual(measure.replays(BOTH, {"a": "a.trace"}, EFFORT, CALLS), {"a": (10, ([300, 200], [30, 20]))})
        self.assertEqual(commands, ["torch_replay -t a.trace", "accel replay a.trace --plain --time-calls"] * 2)

    def test_loops_print_no_state_to_compare(self):
        commands = self.run_as(lambda command: (command.split()[0], "loop_ns 3000 ops 10"))
        self.assertEqual(measure.replays(BOTH, {"a": "a.trace"}, EFFORT, LOOP), {"a": (10, ([300, 300], [300, 300]))})
        self.assertEqual(commands, ["torch_replay -T a.trace", "accel replay a.trace --backend sim --time"] * 2)

    def test_sides_that_did_other_work_are_refused(self):
        self.run_as(lambda command: (command.split()[0], "time_ns 3000 ops 10"))
        with self.assertRaisesRegex(Failure, "did not do the same work"):
            measure.replays(BOTH, {"a": "a.trace"}, EFFORT, CALLS)
        for clock in [LOOP, CALLS]:
            calls = iter([10, 11, 10, 11])
            self.run_as(lambda command: ("", f"{clock.unit} 3000 ops {next(calls)}"))
            with self.assertRaisesRegex(Failure, "did not do the same work"):
                measure.replays(BOTH, {"a": "a.trace"}, EFFORT, clock)

"""Tests of the tables, with made-up figures."""
import unittest

from sidebyside import tables
from sidebyside.measure import Pair
from sidebyside.outputs import Figures


def line(scenario, ns, threads=1, cpu_ns=None):
    return Figures(scenario, threads, ns, ns, ns, cpu_ns or ns, ns * threads, 0, 64)


def one_thread(pytorch, ours):
    """The same figures for every scenario."""
    return {(scenario, 1): Pair([line(scenario, ns) for ns in pytorch], [line(scenario, ns) for ns in ours])
            for scenario in tables.ROWS}


def row(part, begin):
    (found,) = [line for line in part.lines if line.startswith(f"| {begin}")]
    return [cell.strip() for cell in found.strip("|").split("|")]


class Operations(unittest.TestCase):
    counts = {scenario: Pair(4100, 260) for scenario in tables.ROWS}

    def test_the_ratio_is_of_the_least_and_the_spread_is_shown(self):
        part = tables.operations(one_thread([480, 453, 460], [40.1, 37.75, 90]), self.counts, {})
        self.assertEqual(row(part, "small ")[1:],
                         ["453–480", "37.8–90.0", "12.0×", "12×", "4100", "260", "met"])

    def test_each_limit_that_is_broken_is_named(self):
        slow = one_thread([453], [37.8])  # 11.98 times
        self.assertEqual(row(tables.operations(slow, self.counts, {}), "small ")[3:],
                         ["11.9×", "12×", "4100", "260", "**not met**: time"])
        heavy = {scenario: Pair(4100, 260.5001) for scenario in tables.ROWS}
        self.assertEqual(row(tables.operations(slow, heavy, {}), "small ")[-1], "**not met**: instructions and time")
        fast = one_thread([453], [37])
        self.assertEqual(row(tables.operations(fast, heavy, {}), "small ")[2:],
                         ["37.0", "12.2×", "12×", "4100", "260", "**not met**: instructions"])

    def test_what_was_not_measured_is_a_dash(self):
        part = tables.operations(one_thread([453], [37]), {}, {})
        self.assertEqual(row(part, "small ")[1:],
                         ["453", "37.0", "12.2×", "12×", "–", "260", "met as far as measured"])
        part = tables.operations({}, self.counts, {})
        self.assertEqual(row(part, "small ")[1:7], ["–", "–", "–", "12×", "4100", "260"])
        self.assertEqual((part.met, part.limits), (7, 7))

    def test_met_limits_are_counted(self):
        part = tables.operations(one_thread([453], [37.8]), self.counts, {})  # not small, large and random: 12 times
        self.assertEqual((part.met, part.limits), (4, 7))


class Traces(unittest.TestCase):
    replays = {"a": (1000, Pair([590, 580], [80, 90])), "b": (7, Pair([600], [50])), "c": (5, Pair([400], [100]))}

    def test_a_row_for_each_and_the_medians(self):
        calls = {name: (number, Pair([100], [50])) for name, (number, _) in self.replays.items()}
        part = tables.traces(self.replays, calls)
        self.assertEqual(row(part, "a "), ["a", "1,000", "580–590", "80.0–90.0", "7.2×", "100", "50.0", "2.0×"])
        self.assertEqual(row(part, "median"),
                         ["median of each column", "", "580", "80.0", "7.2×", "100", "50.0", "2.0×"])
        self.assertEqual(row(part, "minimum"),
                         ["minimum of each column", "", "400", "50.0", "4.0×", "100", "50.0", "2.0×"])
        self.assertEqual(part.limits, 0)
        part = tables.operations(one_thread([453], [37]), {}, self.replays)
        self.assertEqual(row(part, "traces ")[1:], ["580", "80.0", "7.2×", "10×", "–", "–", "**not met**: time"])


class Compact(unittest.TestCase):
    def test_time_and_instructions_are_relative_to_the_default(self):
        benches = one_thread([40, 42], [50.1, 60])
        counts = {scenario: Pair(600, 750) for scenario in tables.COMPACT_ROWS}
        part = tables.compact(benches, counts, {"a": (9, Pair([100, 90], [117, 130]))})
        self.assertEqual(row(part, "small ")[1:],
                         ["40.0–42.0", "50.1–60.0", "1.26×", "1.25×", "1.25×", "**not met**: time"])
        self.assertEqual(row(part, "a ")[1:], ["90.0–100", "117–130", "1.30×", "–", "1.3×", "met"])
        self.assertEqual((part.met, part.limits), (1, 6))

    def test_what_was_not_measured_is_a_dash(self):
        part = tables.compact({}, {scenario: Pair(600, 751) for scenario in tables.COMPACT_ROWS}, {})
        self.assertEqual(row(part, "lifo ")[1:], ["–", "–", "–", "1.26×", "1.25×", "**not met**: instructions"])


class Threads(unittest.TestCase):
    def part(self, two, four):
        benches = one_thread([400] * len(two), [20] * len(two))
        benches["small", 2] = Pair([line("small", 800, 2, 1600)] * len(two), two)
        benches["shared", 4] = Pair([line("shared", 800, 4, 1000)] * len(two), four * len(two))
        return tables.threads(benches)

    def results(self, *arguments):
        return [row.strip("|").split("|")[-1].strip() for row in self.part(*arguments).lines[2:]]

    def test_throughput_is_against_one_thread(self):
        part = self.part([line("small", 11.7, 2, 23.4)], [line("shared", 25, 4, 50)])
        self.assertEqual(row(part, "two threads")[1:], ["PyTorch", "400", "800", "2.00", "0.50", "–", ""])
        self.assertEqual([cell.strip() for cell in part.lines[3].strip("|").split("|")],
                         ["", "ours", "20.0", "11.7", "2.00", "1.70", "≥ 1.7", "met"])
        self.assertEqual((part.met, part.limits), (2, 2))

    def test_a_limit_that_is_broken_is_named(self):
        results = self.results([line("small", 11.8, 2, 23.4)], [line("shared", 25.1, 4, 50)])
        self.assertEqual(results, ["", "**not met**: throughput"] * 2)

    def test_threads_that_took_turns_do_not_count(self):
        turns = line("small", 10, 2, 12.4)
        self.assertEqual(self.results([turns], [line("shared", 25, 4, 50)])[1], tables.TOOK_TURNS)
        part = self.part([turns, line("small", 11, 2, 20)], [line("shared", 25, 4, 50)])
        self.assertIn("| 11.0 | 1.81 | 1.81 |", part.lines[3])

    def test_the_median_round_is_shown(self):
        part = self.part([line("small", each, 2, 2 * each) for each in (10, 20, 12.5)], [line("shared", 25, 4, 50)])
        self.assertIn("| 12.5 | 2.00 | 1.60 |", part.lines[3])

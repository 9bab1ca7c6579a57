#!/usr/bin/env python3
"""The arithmetic of marks: ratios within a round, medians, and which way is good."""
import os
import sys
import tempfile
import unittest
import unittest.mock
import xml.etree.ElementTree

import cases
import file_loads
import files
import lines
import marks
import plot
import run


class Marks(unittest.TestCase):
    def row(self, ours, figures):
        return next(r for r in marks.judge(figures) if r["ours"] == ours and r["rounds"])

    def test_ratios_are_within_a_round(self):
        # A machine that turns twice as slow between rounds changes nothing.
        self.assertEqual(marks.ratios({1: 2.0, 2: 4.0, 3: 9.0}, {1: 1.0, 2: 2.0}), [2.0, 2.0])
        self.assertEqual(marks.ratios({1: 3.2, 2: 6.4}, 6.4), [0.5, 1.0])

    def test_ratios_are_of_one_state_of_the_machine(self):
        states = {1: "near", 2: "far", 3: "mixed", 4: "far"}, {1: "near", 2: "near", 3: "mixed", 4: "far"}
        self.assertEqual(marks.ratios(dict.fromkeys(range(1, 5), 3.0), {1: 1.0, 2: 2.0, 3: 3.0, 4: 4.0}, states), [3.0, 0.75])
        self.assertEqual(marks.ratios({1: 3.0, 2: 6.0}, 6.0, (states[0], None)), [0.5, 1.0])

    def test_who_met_another_state_than_its_peer_is_measured_again(self):
        ours, theirs = "veth9000: ib_write_bw 1 MiB", "veth9000: iperf3"
        states, order = iter(["near", "far", "far", "mixed", "far", "far"]), []

        class Scripted(run.Rounds):
            def measure(self, name, number):
                order.append(name)
                self.figures[name][number], self.states[name][number] = len(order), next(states)

        rounds = Scripted([(ours,), (theirs,)], None)
        rounds.run(1)
        self.assertEqual(order, [ours, theirs] * 3)
        self.assertEqual((rounds.figures[ours], rounds.states[theirs]), ({1: 5}, {1: "far"}))

    def test_a_figure_of_an_earlier_run_keeps_its_state(self):
        states = iter(["near", "near", "far", "far", "far"])
        with unittest.mock.patch.object(lines, "state", lambda limits, cores: next(states)):
            self.assertEqual(lines.watched("", lambda: lines.Figure("2.5", "mixed")), (2.5, "mixed"))
            self.assertEqual(lines.watched("", lambda: 1.0), (1.0, "mixed"))
            self.assertEqual(lines.watched("", lambda: 1.0), (1.0, "far"))

    def side_by_side(self, states):
        """Of ones whose figures are 1, 2, 3 ... beside others of 1 each; the machine's states before and after each figure."""
        states, figures = iter(states), iter(range(1, 100))
        with unittest.mock.patch.object(lines, "state", lambda limits, cores: next(states)):
            return cases.side_by_side(lambda stage: float(next(figures)), lambda stage: 1.0, 2, cores=True)(unittest.mock.Mock())

    def test_pairs_on_whole_cores_are_preferred(self):
        shared = "near" + lines.SHARED
        self.assertEqual(self.side_by_side(["near"] * 8), 1.5)
        self.assertEqual(self.side_by_side([shared] * 4 + ["near", "far"] * 2 + ["near"] * 4 + [shared] * 4 + ["far"] * 4), 4.0)
        self.assertEqual(self.side_by_side([shared] * 4 + ["near", "near", "near", shared] * 7), 1.0)
        self.assertEqual(self.side_by_side(["near", "far"] * 16), 4.5)

    def test_a_latency_is_good_when_low(self):
        theirs = dict.fromkeys(range(5), 1.0)
        for ours, met in ((1.3, True), (1.31, False)):
            row = self.row("veth: ib_send_lat 8 B", {"veth: ib_send_lat 8 B": dict.fromkeys(range(5), ours), "veth: limit: UDP 8 B": theirs})
            self.assertIs(row["met"], met)

    def test_a_bandwidth_is_good_when_high(self):
        theirs = dict.fromkeys(range(5), 2.0)
        for ours, words in ((5.0, "met"), (4.9, "NOT MET")):
            row = self.row("veth9000: ib_write_bw 1 MiB", {"veth9000: ib_write_bw 1 MiB": dict.fromkeys(range(5), ours), "veth9000: iperf3": theirs})
            self.assertEqual(marks.verdict(row), words)

    def test_the_median_decides_and_the_spread_is_told(self):
        ours = {1: 10.0, 2: 1.0, 3: 1.0, 4: 0.1, 5: 1.0}
        row = self.row("ib_write_bw 1 MiB", {"ib_write_bw 1 MiB": ours, "UCX put_bw 1 MiB, cma": dict.fromkeys(range(1, 6), 1.0)})
        self.assertEqual((row["median"], row["least"], row["greatest"], row["met"]), (1.0, 0.1, 10.0, True))

    def test_few_rounds_decide_nothing(self):
        row = self.row("veth: ib_send_lat 8 B", {"veth: ib_send_lat 8 B": {1: 9.0}, "veth: limit: UDP 8 B": {1: 1.0}})
        self.assertIsNone(row["met"])
        self.assertIn("fewer", marks.verdict(row))

    def test_a_missing_peer_is_not_success(self):
        rows = marks.judge({"veth: ib_send_lat 8 B": {1: 1.0}})
        self.assertEqual({marks.verdict(r) for r in rows if r["ours"] == "veth: ib_send_lat 8 B"}, {"not measured"})

    def test_what_failed_is_told_and_what_was_not_asked_for_is_not(self):
        ours = "10,000 queue pairs: connect"
        self.assertEqual([marks.verdict(r) for r in marks.judge({ours: {}})], ["not measured"])
        self.assertEqual(marks.judge({"limit: cache line": {1: 1.0}}), [])

    def test_the_document_has_a_place_for_the_tables(self):
        with open(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "docs", "performance.md")) as file:
            text = file.read()
        for begin, end in ((run.BEGIN, run.END), (files.BEGIN, files.END)):
            self.assertEqual((text.count(begin), text.count(end), text.find(begin) < text.find(end)), (1, 1, True), begin)

    def test_marks_name_cases_that_there_are(self):
        names = {case[0] for case in cases.CASES}
        self.assertEqual(len(names), len(cases.CASES))
        for ours, theirs, _, _ in marks.MARKS:
            self.assertIn(ours, names)
            self.assertTrue(not isinstance(theirs, str) or theirs in names, theirs)
        units = {case[0]: case[2] for case in cases.CASES}
        links = {case[0]: case[1] for case in cases.CASES}
        for ours, theirs, *_ in marks.MARKS:
            if isinstance(theirs, str):
                self.assertEqual((units[ours], links[ours]), (units[theirs], links[theirs]), ours)


class Files(unittest.TestCase):
    def results(self, **walls):
        names = {"ours": "big, tmpfs, host: weir cp", "cp": "big, tmpfs, host: cp", "rsync": "big, tmpfs, host: rsync"}
        rounds = {names[who]: {str(n): s for n, s in enumerate(seconds)} for who, seconds in walls.items()}
        return {"about": dict.fromkeys(("time", "processor", "processors", "kernel", "commit"), "-") | {"scale": 1}, "wall": rounds,
                "cpu": rounds, "others": {}, "troubles": {}}

    def test_marks_name_cases_that_there_are(self):
        names = {name for name, _, _ in files.cases()}
        for ours, theirs, *_ in marks.FILE_MARKS:
            self.assertIn(ours, names)
            self.assertIn(theirs, names)

    def test_more_time_than_is_allowed_is_told(self):
        for seconds, words in ((1.3, "met"), (1.31, "NOT MET")):
            report = files.report(self.results(ours=[seconds] * 5, cp=[1.0] * 5, rsync=[5.0] * 5))
            line = next(line for line in report.splitlines() if line.startswith("| big, tmpfs, host: weir cp | big, tmpfs, host: cp |"))
            self.assertTrue(line.endswith(f"| at most 1.3 | {words} |"), line)

    def test_the_tables_have_medians(self):
        report = files.report(self.results(ours=[3.0, 1.0, 2.0], cp=[1.0] * 3))
        self.assertIn("| weir cp | 2.00 | 1.00 | 3.00 | 2.00 | 3 |", report)
        self.assertNotIn("disk, one host", report)

    def test_the_trees_are_as_large_as_they_should(self):
        self.assertEqual(len(file_loads.sizes("small", 1)), 100000)
        self.assertEqual(len(file_loads.sizes("tree", 1)), 20000)
        self.assertAlmostEqual(sum(file_loads.sizes("tree", 1)) / (1 << 30), 1, places=3)
        self.assertEqual(file_loads.sizes("big", 1), [4 << 30])

    def test_the_plot_is_drawn(self):
        with tempfile.NamedTemporaryFile(suffix=".svg") as file:
            plot.write(file.name, self.results(ours=[2.0], cp=[1.0]), files.groups(), files.LINKS, file_loads.LOADS, files.case_name)
            root = xml.etree.ElementTree.parse(file.name).getroot()
        bars = [float(e.get("width")) for e in root if e.tag.endswith("rect") and e.get("fill") in (plot.OURS, plot.THEIRS)]
        self.assertAlmostEqual(max(bars) / min(bars), 2, places=1)


if __name__ == "__main__":
    unittest.main()

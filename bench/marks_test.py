#!/usr/bin/env python3
"""The arithmetic of marks: ratios within a round, medians, and which way is good."""
import sys
import unittest

import cases
import files
import marks


class Marks(unittest.TestCase):
    def row(self, ours, figures):
        return next(r for r in marks.judge(figures) if r["ours"] == ours and r["rounds"])

    def test_ratios_are_within_a_round(self):
        # A machine that turns twice as slow between rounds changes nothing.
        self.assertEqual(marks.ratios({1: 2.0, 2: 4.0, 3: 9.0}, {1: 1.0, 2: 2.0}), [2.0, 2.0])
        self.assertEqual(marks.ratios({1: 3.2, 2: 6.4}, 6.4), [0.5, 1.0])

    def test_a_latency_is_good_when_low(self):
        theirs = dict.fromkeys(range(5), 1.0)
        for ours, met in ((1.25, True), (1.26, False)):
            row = self.row("ib_send_lat 8 B", {"ib_send_lat 8 B": dict.fromkeys(range(5), ours), "UCX am_lat 8 B, posix": theirs})
            self.assertIs(row["met"], met)

    def test_a_bandwidth_is_good_when_high(self):
        theirs = dict.fromkeys(range(5), 2.0)
        for ours, words in ((5.0, "met"), (4.9, "NOT MET")):
            row = self.row("veth9000: ib_write_bw 1 MiB", {"veth9000: ib_write_bw 1 MiB": dict.fromkeys(range(5), ours), "veth9000: iperf3": theirs})
            self.assertEqual(marks.verdict(row), words)

    def test_the_median_decides_and_the_spread_is_told(self):
        ours = {1: 10.0, 2: 1.0, 3: 1.0, 4: 0.1, 5: 1.0}
        row = self.row("ib_write_bw 4 KiB", {"ib_write_bw 4 KiB": ours, "UCX am_bw 4 KiB, posix": dict.fromkeys(range(1, 6), 1.0)})
        self.assertEqual((row["median"], row["least"], row["greatest"], row["met"]), (1.0, 0.1, 10.0, True))

    def test_few_rounds_decide_nothing(self):
        row = self.row("ib_send_lat 8 B", {"ib_send_lat 8 B": {1: 9.0}, "UCX am_lat 8 B, posix": {1: 1.0}})
        self.assertIsNone(row["met"])
        self.assertIn("fewer", marks.verdict(row))

    def test_a_missing_peer_is_not_success(self):
        rows = marks.judge({"ib_send_lat 8 B": {1: 1.0}})
        self.assertEqual({marks.verdict(r) for r in rows if r["ours"] == "ib_send_lat 8 B"}, {"not measured"})

    def test_what_failed_is_told_and_what_was_not_asked_for_is_not(self):
        ours = "10,000 queue pairs: connect"
        self.assertEqual([marks.verdict(r) for r in marks.judge({ours: {}})], ["not measured"])
        self.assertEqual(marks.judge({"cp": {1: 1.0}, "rsync": {}})[0]["ours"], "weir cp, push")

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


if __name__ == "__main__":
    unittest.main()

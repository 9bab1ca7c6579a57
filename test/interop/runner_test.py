#!/usr/bin/env python3
"""What the runner says and when it fails, without a guest."""
import contextlib
import io
import os
import subprocess
import sys
import types
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "compat")]

import matrix  # noqa: E402
import row as row_module  # noqa: E402
import watch  # noqa: E402
from model import Failed  # noqa: E402


def run(matrix_name, *words):
    return subprocess.run([sys.executable, os.path.join(HERE, "..", matrix_name, "run.py"), ".", *words],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Names(unittest.TestCase):
    def test_what_is_misspelt_is_refused(self):
        for name in ("interop", "compat"):
            for pattern, reason in (("nothing-like-this", "matches"), ("(", "no regular expression")):
                done = run(name, "--list", "--only", pattern)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertIn(f"{name}: --only '{pattern}': ", done.stderr)
                self.assertIn(reason, done.stderr)

    def test_the_short_form_has_its_own_names(self):
        listed = run("interop", "--list").stdout.splitlines()
        short = run("interop", "--list", "--short").stdout.splitlines()
        self.assertLess(set(short), set(listed))
        self.assertEqual(len(set(listed)), len(listed))


class Time(unittest.TestCase):
    def conclude(self, seconds):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = matrix.conclude([(None, {"status": "pass"})], "short form", seconds)
        return status, said.getvalue()

    def test_only_twice_the_bound_fails(self):
        for seconds, status, words in ((299, 0, "299 s; its bound is 300 s"), (301, 0, "WARNING"), (601, 1, "FAILED")):
            ended, said = self.conclude(seconds)
            self.assertEqual(ended, status)
            self.assertIn(words, said)
            self.assertEqual(said.splitlines()[-1], f"1 passed, {status} failed, 0 skipped")
            self.assertEqual("WARNING" in said, seconds == 301)


def frame(psn, opcode=4, qpn=17, port=4791):
    bth = bytes([opcode, 0, 255, 255, 0]) + qpn.to_bytes(3, "big") + bytes(1) + psn.to_bytes(3, "big")
    udp = bytes(2) + port.to_bytes(2, "big") + bytes(4)
    return bytes(12) + b"\x08\x00" + bytes(9) + bytes([17]) + bytes(10) + udp + bth


class Order(unittest.TestCase):
    def late(self, *frames):
        order = watch.Order()
        for one in filter(None, map(watch.base_header, frames)):
            order.see(one)
        return order.late

    def test_what_was_overtaken_is_counted(self):
        self.assertEqual(self.late(frame(5), frame(6), frame(6), frame(7)), 0)
        self.assertEqual(self.late(frame(5), frame(7), frame(6), frame(8)), 1)
        self.assertEqual(self.late(frame(0xffffff), frame(0), frame(1), frame(0xfffffe)), 1)

    def test_only_within_one_sequence(self):
        self.assertEqual(self.late(frame(9), frame(5, qpn=18), frame(5, opcode=17)), 0)
        self.assertEqual(self.late(frame(9), frame(5, port=53), frame(9)[:40]), 0)


def message(attribute, connection):
    """Of the CM."""
    mad = bytes(16) + attribute.to_bytes(2, "big") + bytes(6) + connection.to_bytes(4, "big") + bytes(228)
    return watch.base_header(frame(0, opcode=100, qpn=1) + bytes(8) + mad)


class Process:
    def __init__(self, text):
        self.said = text

    def text(self):
        return self.said

    def running(self):
        return True

    def stop(self):
        pass


def scene_of(answers, ours_serves):
    """A scene whose clients say one of `answers` each, the last one for ever, and end with 0."""
    scene = row_module.Scene.__new__(row_module.Scene)
    host, guest = types.SimpleNamespace(is_up=""), types.SimpleNamespace(is_up="")
    scene.host, scene.guest, scene.notes = host, guest, []
    scene.server, scene.client = (host, guest) if ours_serves else (guest, host)
    scene.stage = types.SimpleNamespace(settings={"slow": 0.02})
    left = list(answers)
    scene.start = lambda end, command: Process((left.pop(0) if len(left) > 1 else left[0]) if end is scene.client else "")
    scene.wait_for = lambda *words: None
    scene.wait_or_stop = lambda process: 0
    scene.cell = types.SimpleNamespace(row=types.SimpleNamespace(impairment="", unreliable=False, ready=""))
    return scene


class Guest(Process):
    """One that does not end."""

    def wait(self, until):
        raise Failed("still running after its time")


class LastAcknowledgements(unittest.TestCase):
    def status(self, repetitions, server_status=0):
        scene = scene_of([""], ours_serves=True)
        scene.cell.row = types.SimpleNamespace(impairment="loss", unreliable=False, ready="tcp", server_status=0)
        scene.lab = types.SimpleNamespace(rxe_repetitions=lambda: repetitions.pop(0))
        scene.stage.until, scene.server.name = 0, "our RNIC"
        scene.wait = lambda process: server_status
        scene.stage.wait_until = lambda holds, *words: self.assertTrue(holds())
        server = Process("")
        server.running = lambda: False
        return scene.wait_for_client(Guest(""), server)

    def test_who_repeats_to_nobody_is_ended(self):
        self.assertIsNone(self.status([5, 7]))

    def test_a_server_that_failed_is_no_such_peer(self):
        with self.assertRaisesRegex(Failed, "the server .our RNIC. ended with 134"):
            self.status([5, 7], server_status=134)

    def test_who_only_waits_is_waited_for(self):
        self.assertEqual(self.status([5, 5]), 0)


class Goodbyes(unittest.TestCase):
    def lost(self, *messages, server=Guest(""), **row):
        scene = scene_of([""], ours_serves=True)
        scene.cell.row = types.SimpleNamespace(**{"impairment": "loss", "ready": "cm", **row})
        goodbyes = watch.Goodbyes()
        for one in messages:
            goodbyes.see(one)
        scene.lab = types.SimpleNamespace(harm=types.SimpleNamespace(watch=types.SimpleNamespace(goodbyes=goodbyes)))
        scene.stage.until = 0
        return row_module.goodbye_lost(scene, server)

    def test_a_connection_that_was_not_ended_is_no_fault(self):
        self.assertTrue(self.lost(message(watch.REQ, 5)))
        self.assertTrue(self.lost(message(watch.REQ, 5), message(watch.REQ, 6), message(watch.DREQ, 6)))

    def test_who_waits_though_all_were_ended_is_at_fault(self):
        self.assertFalse(self.lost(message(watch.REQ, 5), message(watch.DREQ, 5), message(watch.DREQ, 5)))
        self.assertFalse(self.lost(message(watch.REQ, 5), message(watch.DREP, 5)))
        self.assertFalse(self.lost(message(watch.REQ, 5), impairment=""))

    def test_what_was_asked_for_before_does_not_count(self):
        goodbyes = watch.Goodbyes()
        goodbyes.see(message(watch.REQ, 5))
        goodbyes.begin()
        self.assertFalse(goodbyes.missing())
        goodbyes.see(frame(0, opcode=100, qpn=1)[:60])
        self.assertFalse(goodbyes.missing())


class Refusals(unittest.TestCase):
    REFUSED = "cma event RDMA_CM_EVENT_REJECTED, error 8"
    BY_CM = types.SimpleNamespace(ready="cm", server="", client="")
    ANEW = types.SimpleNamespace(ready="device", server="", client="")

    def test_who_is_refused_asks_again_and_it_is_counted(self):
        scene = scene_of([self.REFUSED, self.REFUSED, "done"], ours_serves=True)
        self.assertEqual(scene.run_pair(self.BY_CM)[1].text(), "done")
        self.assertEqual(scene.notes, ["refused 2 times before a server listened"])

    def test_not_for_ever_even_if_it_ends_well(self):
        for pair in (self.BY_CM, self.ANEW):
            with self.assertRaisesRegex(Failed, "was refused [0-9]+ times"):
                scene_of([self.REFUSED], ours_serves=True).run_pair(pair)

    def test_a_kernel_that_listens_does_not_refuse(self):
        with self.assertRaisesRegex(Failed, "by a server that listens"):
            scene_of([self.REFUSED], ours_serves=False).run_pair(self.BY_CM)
        scene_of(["riomap: Cannot allocate memory", "done"], ours_serves=False).run_pair(self.BY_CM)


if __name__ == "__main__":
    unittest.main()

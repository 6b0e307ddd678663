"""What a section of the suite counts, and the watchdog that ends it when a call hangs."""

import faulthandler
import json
import pathlib
import time
import traceback

HANG_SECONDS = {"cuda": 60, "cpu": 300}


class Section:
    """Counts checks; the file is rewritten now and then, so that a section that dies leaves what it saw."""

    def __init__(self, name, out, device):
        self.name, self.file = name, pathlib.Path(out) / f"{name}.section.json"
        self.limit = HANG_SECONDS[device]
        self.passed, self.failures, self.refused, self.facts = 0, [], 0, {}
        self.start = self.saved = time.perf_counter()
        self.current = "start"
        self.save()

    def check(self, what, function):
        """Runs function() -> None or a complaint, within the limit."""
        self.current = str(what)
        faulthandler.dump_traceback_later(self.limit, exit=True)
        try:
            complaint = function()
        except Exception as error:  # anything a call raises is its failure; a fault of the device fails all that follow
            complaint = "raised " + "".join(traceback.format_exception_only(error)).strip()
        faulthandler.cancel_dump_traceback_later()
        if complaint:
            self.failures.append(f"{what}: {complaint}"[:1000])
            print(f"FAILED {self.failures[-1]}", flush=True)
        else:
            self.passed += 1
        if time.perf_counter() - self.saved > 2:
            self.save()

    def progress(self, text):
        seconds = time.perf_counter() - self.start
        print(f"[{self.name} {seconds:6.1f} s] {text}: {self.passed} passed, {len(self.failures)} failed", flush=True)
        self.save()

    def save(self, finished=False):
        self.saved = time.perf_counter()
        record = {
            "name": self.name, "passed": self.passed, "failed": len(self.failures), "refused": self.refused,
            "seconds": round(self.saved - self.start, 1), "finished": finished, "in": None if finished else self.current,
            "facts": self.facts, "failures": self.failures[:50],
        }  # fmt: skip
        self.file.write_text(json.dumps(record, indent=1))

"""pytest, except that a skipped test fails the run: for suites whose requirements were installed on purpose."""

import sys

import pytest


class NoSkips:
    def __init__(self):
        self.skipped = []

    def pytest_runtest_logreport(self, report):
        if report.skipped and not hasattr(report, "wasxfail"):
            self.skipped.append(report.nodeid)

    def pytest_collectreport(self, report):
        if report.skipped:
            self.skipped.append(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        if self.skipped and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        for nodeid in self.skipped:
            terminalreporter.write_line(f"SKIPPED, which fails this run: {nodeid}", red=True)


if __name__ == "__main__":
    sys.exit(pytest.main(sys.argv[1:], plugins=[NoSkips()]))

"""Runs the program as a user would. FLASHMLA_PROGRAM says where it is (the Makefile sets it)."""

import dataclasses
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(pathlib.Path(__file__).parent))  # kv_files


@dataclasses.dataclass
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture(scope="session")
def program():
    path = os.environ.get("FLASHMLA_PROGRAM", str(ROOT / "build/cpu/bin/flashmla"))
    assert os.access(path, os.X_OK), f"{path} is no program: build it, or set FLASHMLA_PROGRAM"
    return path


@pytest.fixture(scope="session")
def flashmla(program):
    """Call it with the arguments, as separate words or as one string; a CPU run unless the test says otherwise."""

    def call(*words, env=None, timeout=300):
        if len(words) == 1:
            words = words[0].split()
        done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, timeout=timeout,
                              env={**os.environ, **(env or {})})
        return Outcome(done.returncode, done.stdout, done.stderr)

    return call

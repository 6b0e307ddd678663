"""Tests on the engines' own Python files, outside of `make test`: `make test-engines` downloads them and says where they are."""

import os
import pathlib
import sys

# Shares the cases and the oracle of the other Python tests.
TESTS = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "python_torch"), str(TESTS / "python")]

if "FLASHMLA_ENGINES" not in os.environ:
    collect_ignore_glob = ["test_*.py"]

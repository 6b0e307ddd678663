#!/usr/bin/env python3
"""Says which receipts of measurements (bench/results/**/*.json) were made from other sources than the tree's. A notice, never a failure."""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

from source_hash import source_hash  # noqa: E402


def main():
    current = source_hash()
    for receipt in sorted((ROOT / "bench/results").glob("**/*.json")):
        content = json.loads(receipt.read_text())
        facts = content.get("header", content)
        made_from = facts.get("source_hash", "unknown")
        state = "of this tree" if made_from == current else f"other sources ({made_from}, revision {facts.get('git_revision')})"
        print(f"{receipt.relative_to(ROOT)}: {state}")
    print(f"sources of the tree: {current}")


if __name__ == "__main__":
    main()

"""The hash of the sources that measurements depend on, as flashmla::build_info() reports it (cmake/git_revision.cmake).

usage: source_hash.py [RECEIPT.json ...]   prints the tree's hash and says which receipts were made from other sources
"""

import hashlib
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
ROOMS = ("include", "src/core", "src/plan", "src/device", "src/api", "src/dispatch", "src/backends", "src/combine", "src/gpu")
SUFFIXES = {".h", ".hpp", ".cpp", ".cu", ".cuh"}


def source_hash(root=ROOT):
    files = [p for room in ROOMS for p in (root / room).rglob("*") if p.suffix in SUFFIXES]
    names = sorted(p.relative_to(root).as_posix() for p in files)
    listing = "".join(f"{hashlib.sha256((root / name).read_bytes()).hexdigest()}  {name}\n" for name in names)
    return hashlib.sha256(listing.encode()).hexdigest()[:16]


def hash_of_receipt(path):
    receipt = json.loads(pathlib.Path(path).read_text())
    return receipt.get("header", receipt)["source_hash"]


def main(receipts):
    current = source_hash()
    print(current)
    stale = [r for r in receipts if hash_of_receipt(r) != current]
    for receipt in stale:
        print(f"{receipt}: measured on other sources")
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

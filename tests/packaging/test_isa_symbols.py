"""A file compiled for AVX2 or AVX-512 may define no function that the linker could give to the rest of the program.

Inline functions and template instances are weak symbols: of several copies the linker keeps one, and if that is the copy
with AVX-512 instructions, portable code crashes on an older CPU.
"""

import re
import subprocess

import pytest

# Objects whose whole body is compiled for wider instructions than the base line.
ISA_OBJECT = re.compile(r"_(avx2|avx512|avx512_bf16|vector256|vector512)\.cpp\.o$")
SYMBOL = re.compile(r"^[0-9a-f]+ <(.+)>:$")
VECTOR_INSTRUCTION = re.compile(r"^\s+[0-9a-f]+:\s+(v[a-z0-9]+|k(mov|or|and|xor)[a-z]+)\b")


def weak_symbols(path):
    listing = subprocess.run(["nm", "--defined-only", path], capture_output=True, text=True, check=True).stdout
    return {fields[-1] for fields in map(str.split, listing.splitlines()) if fields[-2] in ("W", "V")}


def symbols_with_vector_code(path):
    listing = subprocess.run(["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True)
    current, found = None, set()
    for line in listing.stdout.splitlines():
        if match := SYMBOL.match(line):
            current = match.group(1)
        elif VECTOR_INSTRUCTION.match(line):
            found.add(current)
    return found


def test_wide_instructions_stay_in_strong_symbols(build_dir):
    objects = [p for p in build_dir.rglob("*.o") if ISA_OBJECT.search(p.name)]
    if not objects:
        pytest.skip("this build has no per-ISA object")
    leaks = {p.name: found for p in objects if (found := weak_symbols(p) & symbols_with_vector_code(p))}
    assert not leaks, f"make these static or always_inline, or keep them out of the per-ISA file: {leaks}"

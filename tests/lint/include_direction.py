"""Includes go one way: core <- plan <- combine <- backends <- dispatch <- api. This reads every #include and says which breaks it.

A room (a folder below src/, or a top-level folder) may include the rooms listed for it. Two further rules: the planner sees of a
backend only the integers in its config.hpp, and CUDA or CuTe headers stay in the rooms that hold device code.
"""

import fnmatch
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Globs over the path of the included file as it is written ("core/causal.hpp").
ALLOWED = {
    "include": ["flashmla/*"],
    "src/core": ["flashmla/*", "core/*"],
    "src/gpu": ["flashmla/status.hpp", "flashmla/types.hpp", "core/host_device.hpp", "gpu/*"],
    "src/device": ["flashmla/*", "core/*", "gpu/*", "device/*"],
    "src/plan": ["flashmla/*", "core/*", "plan/*", "backends/*/config.hpp", "backends/cpu/latent_attention.hpp",
                 "backends/cpu/dense_prefill*.hpp"],
    "src/backends": ["flashmla/*", "core/*", "plan/*", "gpu/*", "combine/*", "backends/*"],
    "src/combine": ["flashmla/*", "core/*", "plan/*", "gpu/*", "combine/*"],
    "src/dispatch": ["flashmla/*", "core/*", "plan/*", "gpu/*", "device/*", "backends/*", "combine/*", "dispatch/*"],
    "src/api": ["flashmla/*", "core/*", "plan/*", "device/*", "dispatch/*", "api/*"],
    "src/simulator": ["flashmla/*", "core/*", "simulator/*"],
    "src/capi": ["flashmla/*", "capi/*"],
    "src/reference": ["flashmla/*", "core/*", "reference/*"],
    # Besides the public interface: the oracle, what random 16-bit data is made of, and the records of a cache file.
    "cli": ["flashmla/*", "cli/*", "bench/*", "reference/*", "core/random.hpp", "core/float_formats.hpp", "core/kv_record.hpp",
            "core/kv_quantize.hpp"],
    "bench": ["flashmla/*", "bench/*", "reference/*", "core/random.hpp"],
    "python": ["flashmla/*", "python/*"],
    "fuzz": ["flashmla/*", "fuzz/*", "cli/tensor_file/*", "core/random.hpp"],
    "examples": ["flashmla/*"],
}
DEVICE_ROOMS = ("cli/device_buffers_cuda.cpp", "src/gpu", "src/backends", "src/combine", "src/device", "src/dispatch", "tests")
DEVICE_HEADERS = re.compile(r"(cuda|cute|cutlass|cub|thrust|driver_types|nv)[/_.\w]*")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def room_of(path):
    return next((room for room in ALLOWED if path.startswith(room + "/")), None)


def complaint(path, bracket, target):
    """Why file `path` may not include `target`; None when it may."""
    if DEVICE_HEADERS.fullmatch(target):
        return None if path.startswith(DEVICE_ROOMS) else "CUDA headers stay in the rooms that hold device code"
    room = room_of(path)
    if room is None or (bracket == "<" and not target.startswith("flashmla/")):
        return None
    if room == "include" and target.startswith("flashmla/") and not (ROOT / "include" / target).exists():
        return "no such public header"
    # A file beside the including one, named without its folder.
    if "/" not in target and (ROOT / path).with_name(target).exists():
        return None
    if any(fnmatch.fnmatch(target, pattern) for pattern in ALLOWED[room]):
        return None
    return f"{room} may include only {', '.join(ALLOWED[room])}"


def main():
    listed = subprocess.run(["git", "ls-files", "*.hpp", "*.cpp", "*.h", "*.cu", "*.cuh"], cwd=ROOT, capture_output=True,
                            text=True, check=True)
    found = 0
    paths = listed.stdout.split()
    for path in paths:
        for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            reason = complaint(path, *match.groups()) if match else None
            if reason:
                found += 1
                print(f"{path}:{number}: includes {match.group(2)}: {reason}")
    print(f"include direction: {len(paths)} files, {found} wrong includes")
    return found > 0


if __name__ == "__main__":
    sys.exit(main())

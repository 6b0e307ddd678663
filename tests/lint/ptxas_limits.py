"""What ptxas said about each CUDA kernel, held to limits: no spills, registers as planned, no serialised WGMMA, no ignored setmaxnreg.

    ptxas_limits.py BUILD_FOLDER       reads the *.cu.o.ptxas files that the build keeps beside its objects
"""

import pathlib
import re
import sys

# Part of the kernel's name -> registers a thread at launch (65,536 registers / threads of a CTA is the ceiling).
REGISTER_LIMITS = {
    "flash_fwd_splitkv_mla_kernel": 128,  # 512 threads; setmaxnreg moves registers between the warpgroups
    "flash_fwd_mla_combine_kernel": 80,  # three CTAs of 256 threads an SM
}
# Bytes of spill stores and loads that a kernel still has. A ratchet towards no entry at all: lower their sum, never raise it.
SPILL_LIMITS = {
    # All of them in the values warpgroups, before and after a piece (its record, the epilogue). In the machine code no STL and no
    # LDL lies in a main loop (from HGMMA to the branch back), in the scores warpgroup, the producer or the merge.
    "flash_fwd_splitkv_mla_kernel": (80, 104),
}
FORBIDDEN = {
    "C7508": "setmaxnreg ignored",
    "C7510": "WGMMA serialised",
    "C7511": "WGMMA serialised",
    "C7512": "WGMMA serialised",
    "C7513": "WGMMA serialised",
    "C7514": "WGMMA serialised",
    "C7520": "WGMMA serialised",
}
ENTRY = re.compile(r"Compiling entry function '(\w+)'")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")


def limit_of(kernel, limits):
    return next((most for part, most in limits.items() if part in kernel), None)


def complaints(report):
    """Everything wrong in one report, and the number of kernels seen in it."""
    found, kernels, kernel = [], 0, "?"
    for line in report.splitlines():
        if match := ENTRY.search(line):
            kernel = match.group(1)
            kernels += 1
            limit = limit_of(kernel, REGISTER_LIMITS)
            if limit is None:
                found.append(f"{kernel}: no register limit; add one to REGISTER_LIMITS in {pathlib.Path(__file__).name}")
        if match := SPILLS.search(line):
            for what, spilled, most in zip(("stores", "loads"), match.groups(), limit_of(kernel, SPILL_LIMITS) or (0, 0)):
                if int(spilled) > most:
                    found.append(f"{kernel}: {spilled} bytes spill {what}, limit {most}")
        if (match := REGISTERS.search(line)) and kernels and limit is not None and int(match.group(1)) > limit:
            found.append(f"{kernel}: {match.group(1)} registers, limit {limit}")
        found += [f"{meaning} ({code}): {line.strip()}" for code, meaning in FORBIDDEN.items() if code in line]
    return found, kernels


def main(build):
    reports = sorted(pathlib.Path(build).rglob("*.cu.o.ptxas"))
    found, kernels = [], 0
    for path in reports:
        wrong, seen = complaints(path.read_text())
        found += [f"{path.name}: {text}" for text in wrong]
        kernels += seen
    print("\n".join(found + [f"ptxas limits: {len(reports)} reports, {kernels} kernels, {len(found)} complaints"]))
    return bool(found) or not kernels


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

"""Parts of the suite that are programs of their own, each with a time limit."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def call(command, limit, env=None, show=True):
    """(exit status or None when the limit passed, output)."""
    process = subprocess.Popen(
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **(env or {})},
        start_new_session=True,
    )  # fmt: skip
    try:
        output = process.communicate(timeout=limit)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        return None, process.communicate()[0]
    finally:
        if show and process.returncode not in (0, None):
            print(f"exit status {process.returncode}: {' '.join(map(str, command))}", flush=True)
    return process.returncode, output


def graphs(out, limit=90):
    """The CUDA tests of tests/python_torch, CUDA graphs among them. A process a file, so that a test that hangs takes only its
    own file along; torch.compile's come last, since a first compilation takes the longest."""
    files = sorted((ROOT / "tests/python_torch").glob("test_*.py"), key=lambda file: (file.name == "test_compile.py", file.name))
    passed, failures, skipped = 0, [], 0
    for file in files:
        report = pathlib.Path(out) / f"{file.stem}.xml"
        report.unlink(missing_ok=True)
        # pytest's own watchdog ends a test that hangs; its name stands above the first stack.
        status, output = call(
            [sys.executable, "-m", "pytest", "-v", "-m", "gpu", "-o", "faulthandler_timeout=60", "-o",
             "faulthandler_exit_on_timeout=true", f"--junitxml={report}", file], limit,
        )  # fmt: skip
        if status == 5:  # no test of this file is for a GPU
            continue
        if not report.exists():
            stack = output.find("Timeout")
            shown = output[max(0, stack - 1500) : stack + 1500] if stack >= 0 else output[-3000:]
            print(shown, flush=True)
            failures.append(f"{file.name}: pytest ended with {status} and left no report: {shown[-600:]}")
            continue
        print(output[-600:], flush=True)
        failed = len(failures)
        for test in ElementTree.parse(report).iter("testcase"):
            name = f"{test.get('classname')}::{test.get('name')}"
            problem = next((test.find(kind) for kind in ("failure", "error") if test.find(kind) is not None), None)
            if problem is not None:
                failures.append(f"{name}: {problem.get('message', '')[:300]}")
            elif test.find("skipped") is not None:
                skipped += 1
            else:
                passed += 1
        if status != 0 and len(failures) == failed:
            failures.append(f"{file.name}: pytest ended with {status}")
    return passed, failures, {"skipped": skipped}


def overhead(out, limit=60):
    status, output = call([sys.executable, ROOT / "bench/drop_in_overhead.py"], limit)
    print(output, flush=True)
    records = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    failures = [] if status == 0 and records else [f"bench/drop_in_overhead.py ended with {status}: {output[-500:]}"]
    return len(records), failures, {"records": records}


def sanitizer(device, racecheck=None, limit=70):
    """memcheck on the packages under test, racecheck on a build in which every lane arrives at barriers (src/gpu/barrier.cuh): it takes
    a barrier to order the accesses of the arriving thread alone, and finds races where one lane arrives for its warp. It also loses
    count of a CTA's barriers at the grid's, where one thread comes later than its warp, so it gets calls that merge in another kernel."""
    tool = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
    if tool is None:
        return 0, ["compute-sanitizer is not on PATH"], {}
    passed, failures, facts = 0, [], {}
    for name in ("memcheck", "racecheck") if racecheck else ("memcheck",):
        status, output = call(
            [tool, "--tool", name, "--error-exitcode", "9", "--target-processes", "all", sys.executable, HERE / "smoke.py", device,
             "invariant" if name == "racecheck" else "native"], limit,
            env={"PYTHONPATH": str(pathlib.Path(racecheck).resolve())} if name == "racecheck" else None,
        )  # fmt: skip
        facts[name] = output[-1500:]
        print(output[-1500:], flush=True)
        if status == 0 and "smoke: all calls" in output:
            passed += 1
        else:
            failures.append(f"{name}: exit status {status}: {output[-400:]}")
    return passed, failures, facts


def jitter(bundle, device, out, limit=200):
    """Correctness and determinism in a build whose roles sleep at random: late hand-overs must neither hang
    nor change a bit."""
    status, output = call(
        [sys.executable, HERE / "run.py", "--only", "correctness,determinism", "--repeats", "100", "--device", device, "--out",
         pathlib.Path(out) / "jitter"], limit, env={"PYTHONPATH": str(pathlib.Path(bundle).resolve())},
    )  # fmt: skip
    print(output[-1500:], flush=True)
    closing = re.search(r"^(\d+) passed, (\d+) failed$", output, re.MULTILINE)
    failures = [] if status == 0 and closing else [f"exit status {status}: {output[-600:]}"]
    return int(closing[1]) if closing else 0, failures, {}


def faults(folder, device, out, limit=90):
    """Each folder/fault<n> holds packages built with that planted fault: a short selection must give wrong results, not errors."""
    passed, failures, facts = 0, [], {}
    bundles = sorted(path for path in pathlib.Path(folder).glob("fault*") if path.is_dir())
    for bundle in bundles:
        place = pathlib.Path(out) / bundle.name
        status, output = call(
            [sys.executable, HERE / "run.py", "--only", "correctness", "--short", "--device", device, "--out", place], limit,
            env={"PYTHONPATH": str(bundle.resolve())}, show=False,
        )  # fmt: skip
        closing = re.search(r"^(\d+) passed, (\d+) failed$", output, re.MULTILINE)
        wrong = [line for line in output.splitlines() if line.startswith("FAILED ") and ": raised " not in line]
        if status == 1 and closing and wrong and "did not finish" not in output:
            passed += 1
            facts[bundle.name] = closing[0]
            print(f"{bundle.name}: red, {closing[0]}", flush=True)
        else:
            failures.append(f"{bundle.name}: not detected (exit status {status}): {output[-400:]}")
            print(failures[-1], flush=True)
    return passed, failures if bundles else [f"no fault<n> under {folder}"], facts

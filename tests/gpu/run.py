#!/usr/bin/env python3
"""The GPU suite: correctness, determinism, CUDA graphs, overhead and times of dense decode, with receipts.

    PYTHONPATH=build/gpu-bundle python3 build/gpu-bundle/tests/gpu/run.py --out DIR

Writes DIR/gpu_suite.json (counts) and DIR/decode_dense.json (times). Every section is a process of its own, and a call that
hangs ends its section after a minute. Sections that measure no times run side by side; overhead and bench follow, one by one.
The exit status is 1 when anything failed.
"""

import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import time

import children
from report import Section

DEFAULT = ("correctness", "determinism", "graphs", "overhead", "bench")
IN_OWN_PROCESS = ("correctness", "determinism", "bench")
TIMED = ("overhead", "bench")  # alone on the machine
LIMIT_SECONDS = 240  # of a section; a single call has less (report.py)


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="build/gpu-suite", help="where receipts go")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu: a dry run of the suite itself")
    parser.add_argument("--only", help=f"sections, separated by commas, of {', '.join(DEFAULT)}")
    parser.add_argument("--short", action="store_true", help="a few cases that see every planted fault")
    parser.add_argument("--small", action="store_true", help="small sizes; implied by --device cpu")
    parser.add_argument("--repeats", type=int, default=2000, help="launches of a determinism case; a race once showed in 3 to 84 of 10000")
    parser.add_argument("--trace", help="CSV with arrival_ms,input_tokens,output_tokens to make batches of (bench)")
    parser.add_argument("--sanitizer", action="store_true", help="also run smoke.py under compute-sanitizer")
    parser.add_argument("--racecheck", metavar="DIR", help="with --sanitizer: the build of VARIANT=racecheck scripts/make_gpu_bundle")
    parser.add_argument("--jitter", metavar="DIR", help="also demand that correctness and determinism hold in the build of VARIANT=jitter")
    parser.add_argument("--faults", metavar="DIR", help="also demand that the builds in DIR/fault<n> fail")
    parser.add_argument("--section", choices=IN_OWN_PROCESS, help=argparse.SUPPRESS)
    return parser.parse_args()


def run_section(args):
    """In the section's own process."""
    small = args.small or args.device == "cpu"
    section = Section(args.section, args.out, args.device)
    import facts

    section.facts["header"] = header = facts.header()
    section.progress(f"{header['gpu']}, revision {header['git_revision']}, sources {header['source_hash']}")
    if args.section == "correctness":
        import correctness

        correctness.run(section, args.device, args.short, small)
    elif args.section == "determinism":
        import determinism

        determinism.run(section, args.device, args.short, small, args.repeats)
    else:
        import bench_decode

        bench_decode.run(section, args.device, header, args.out, args.trace, small)
    section.save(finished=True)


def in_own_process(name, out, arguments):
    file = out / f"{name}.section.json"
    file.unlink(missing_ok=True)
    process = subprocess.Popen([sys.executable, __file__, "--section", name, *arguments])
    try:
        status = process.wait(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        status = process.wait()
    record = json.loads(file.read_text()) if file.exists() else {"passed": 0, "failed": 0, "failures": [], "facts": {}}
    if not record.get("finished"):
        record["failed"] += 1
        record["failures"].append(f"{name} did not finish (exit status {status}), in: {record.get('in')}")
        print(record["failures"][-1], flush=True)
    return record


def as_record(function, *arguments):
    start = time.perf_counter()
    passed, failures, facts = function(*arguments)
    for failure in failures:
        print(f"FAILED {failure}", flush=True)
    seconds = round(time.perf_counter() - start, 1)
    return {"passed": passed, "failed": len(failures), "seconds": seconds, "facts": facts, "failures": failures}


def main():
    args = options()
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    if args.section:
        run_section(args)
        return 0
    names = args.only.split(",") if args.only else [*DEFAULT]
    if unknown := set(names) - set(DEFAULT):
        sys.exit(f"run.py: no section {', '.join(sorted(unknown))}; there are {', '.join(DEFAULT)}")
    arguments = ["--out", args.out, "--device", args.device] + ["--short"] * args.short + ["--small"] * args.small
    arguments += ["--repeats", str(args.repeats)]
    arguments += ["--trace", args.trace] if args.trace else []
    runs = {}
    for name in names:
        if name in IN_OWN_PROCESS:
            runs[name] = (in_own_process, name, out, arguments)
        elif args.device == "cuda":
            runs[name] = (as_record, getattr(children, name), out)
    if args.sanitizer:
        runs["sanitizer"] = (as_record, children.sanitizer, args.device, args.racecheck)
    if args.jitter:
        runs["jitter"] = (as_record, children.jitter, args.jitter, args.device, out)
    if args.faults:
        runs["faults"] = (as_record, children.faults, args.faults, args.device, out)
    sections = {}
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, len(runs))) as pool:
        together = {name: pool.submit(*run) for name, run in runs.items() if name not in TIMED}
        sections.update({name: future.result() for name, future in together.items()})
    sections.update({name: function(*rest) for name, (function, *rest) in runs.items() if name in TIMED})

    header = next((s["facts"].pop("header") for s in sections.values() if "header" in s.get("facts", {})), None)
    if header is None:
        import facts

        header = facts.header()
    for section in sections.values():
        section["facts"].pop("header", None)
    passed, failed = (sum(section[key] for section in sections.values()) for key in ("passed", "failed"))
    receipt = {"header": header, "passed": passed, "failed": failed, "sections": sections}
    (out / "gpu_suite.json").write_text(json.dumps(receipt, indent=1) + "\n")
    print(f"\n{'section':12} {'passed':>7} {'failed':>7} {'seconds':>8}")
    for name, section in sections.items():
        print(f"{name:12} {section['passed']:7} {section['failed']:7} {section.get('seconds', 0):8}")
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

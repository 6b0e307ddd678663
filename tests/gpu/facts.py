"""What a receipt says about the machine and the library that it was made with."""

import datetime
import subprocess
import sys


def nvidia_smi(query):
    try:
        command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits", "--id=0"]
        text = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
    return int(text) if text.isdigit() else text


def header():
    """git_revision and source_hash are those the library was compiled from, as it reports itself."""
    import torch

    import flashmla

    info = flashmla.info()
    on_gpu = torch.cuda.is_available()
    return {
        "git_revision": info["git_revision"],
        "source_hash": info["source_hash"],
        "compiler": info["compiler"],
        "cuda_toolkit": info["cuda_toolkit"],
        "gpu": torch.cuda.get_device_name() if on_gpu else None,
        "driver": nvidia_smi("driver_version") if on_gpu else None,
        "sm_clock_mhz": [nvidia_smi("clocks.sm")] if on_gpu else [],
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }

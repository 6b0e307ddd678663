"""What an eager flash_mla call costs the CPU: time to return from Python, launch included, while the GPU keeps up.

    PYTHONPATH=... python3 bench/drop_in_overhead.py          prints one JSON line a way of calling; needs a CUDA device
"""

import json
import statistics
import time

import flash_mla
import torch

ROUNDS, CALLS = 60, 100  # 100 launches fit into the stream's queue, so that no call waits for the GPU


def microseconds_a_call(call):
    times = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter() - start) / CALLS * 1e6)
    return statistics.median(times), min(times)


def main():
    q = torch.randn(1, 1, 128, 576, device="cuda").bfloat16()
    cache = torch.randn(64, 64, 1, 576, device="cuda").bfloat16()
    table = torch.arange(64, device="cuda", dtype=torch.int32)[None]
    lengths = torch.tensor([64], device="cuda", dtype=torch.int32)
    filled, _ = flash_mla.get_mla_metadata()
    table_object, num_splits = flash_mla.get_mla_metadata(lengths, 128, 1)
    plain_table = table_object.tile_scheduler_metadata
    out, lse = flash_mla.flash_mla_with_kvcache(q, cache, table, lengths, 512, filled)
    ways = {
        "object": lambda: flash_mla.flash_mla_with_kvcache(q, cache, table, lengths, 512, filled),
        "object, causal, scale, out=": lambda: flash_mla.flash_mla_with_kvcache(
            q, cache, table, lengths, 512, filled, softmax_scale=0.07, causal=False, out=out
        ),
        "object of each step": lambda: flash_mla.flash_mla_with_kvcache(
            q, cache, table, lengths, 512, flash_mla.get_mla_metadata()[0]
        ),
        "tensors": lambda: flash_mla.flash_mla_with_kvcache(q, cache, table, lengths, 512, plain_table, num_splits),
        "get_mla_metadata(lengths)": lambda: flash_mla.get_mla_metadata(lengths, 128, 1),
        "torch.empty_like, for comparison": lambda: torch.empty_like(out),
        "torch.add, for comparison": lambda: torch.add(lse, 1),
    }
    for name, call in ways.items():
        call()
        median, best = microseconds_a_call(call)
        record = {"operation": "drop_in_overhead", "way": name, "gpu": torch.cuda.get_device_name()}
        print(json.dumps({**record, "median_us": round(median, 2), "best_us": round(best, 2)}), flush=True)


if __name__ == "__main__":
    main()

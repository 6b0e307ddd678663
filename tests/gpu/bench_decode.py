"""Times of dense decode: caches cold (512 MB written before each call), CUDA events around the whole call, 3 warm-ups, median of 15.

A heavy case leaves the card below its clocks for a while (128 heads at 8k measured 10% more right after 32k with two query
tokens), so every case starts after a moment of rest.
"""

import csv
import json
import pathlib
import random
import statistics
import time

import torch

import flash_mla
import flashmla

METHOD = (
    "0.3 s of rest before each case, 512 MB written before each call, CUDA events around the whole call, "
    "3 warm-ups, median of 15; permuted pages of 64; "
    "tflops = 2 h_q s_q tokens 1088, gbps counts KV, q and out once; one request checked before"
)
FLUSH_BYTES = 512 << 20
REST_SECONDS = 0.3


def table():
    """(b, h_q, s_q, len, varlen, causal, data's deviation)"""
    for causal in (False, True):
        for s_q in (1, 2):
            for length in (4096, 8192, 16384, 32768):
                yield 128, 128, s_q, length, True, causal, 0.1
    for h in (128, 64, 32, 16, 8):
        yield 128, h, 1, 8192, False, False, 0.1
    yield 128, 128, 2, 8192, False, False, 0.1
    for b in (16, 32):
        for length in (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536):
            yield b, 16, 1, length, False, False, 0.1
    for h in (128, 16):
        for length in (1024, 4096, 16384, 65536, 131072):
            yield 1, h, 1, length, False, False, 0.1
    yield 8, 128, 1, 4096, False, False, 0.1
    yield 32, 128, 1, 4096, False, False, 0.1
    for b in (72, 100, 140, 200):
        for h in (64, 128):
            yield b, h, 1, 8192, False, False, 0.1
    for b, h, length in ((128, 128, 8192), (128, 64, 8192), (1, 128, 16384), (1, 16, 16384)):
        yield b, h, 1, length, False, False, 1.0


def varlen(b, mean, least, seed=0):
    rng = random.Random(seed)
    return [max(least, min(2 * mean, int(rng.normalvariate(mean, mean / 2)))) for _ in range(b)]


def trace_lengths(path, b):
    """Lengths of a decode batch: the first b requests, each somewhere in its answer."""
    rng = random.Random(0)
    with open(path, newline="") as file:
        rows = [row for _, row in zip(range(b), csv.DictReader(file), strict=False)]
    return [int(row["input_tokens"]) + rng.randint(0, int(row["output_tokens"])) for row in rows]


class Batch:
    def __init__(self, lengths, h_q, s_q, causal, dtype, deviation, device):
        generator = torch.Generator(device).manual_seed(0)
        self.lengths, self.causal = lengths, causal
        counts = [-(-n // 64) for n in lengths]
        pages = sum(counts)
        ids = torch.randperm(pages, generator=generator, device=device, dtype=torch.int32)
        self.block_table = torch.full((len(lengths), max(counts)), -1, dtype=torch.int32, device=device)
        for row, part in zip(self.block_table, ids.split(counts), strict=True):
            row[: len(part)] = part
        self.k_cache = torch.randn(pages, 64, 1, 576, generator=generator, device=device, dtype=dtype).mul_(deviation)
        self.q = torch.randn(len(lengths), s_q, h_q, 576, generator=generator, device=device, dtype=dtype).mul_(deviation)
        self.cache_seqlens = torch.tensor(lengths, dtype=torch.int32, device=device)
        self.metadata, self.splits = flash_mla.get_mla_metadata()

    def step(self):
        return flash_mla.flash_mla_with_kvcache(
            self.q, self.k_cache, self.block_table, self.cache_seqlens, 512, self.metadata, self.splits, causal=self.causal
        )

    def relative_error(self):
        """Of the shortest request's last token, which sees all its keys."""
        out, _ = self.step()
        i = min(range(len(self.lengths)), key=self.lengths.__getitem__)
        n = self.lengths[i]
        k = self.k_cache[self.block_table[i, : -(-n // 64)].long()].reshape(-1, 576)[:n].double()
        wanted = torch.softmax(self.q[i, -1].double() @ k.T * 576**-0.5, -1) @ k[:, :512]
        return ((out[i, -1].double() - wanted).norm() / wanted.norm()).item()


def milliseconds(step, flush):
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    times = []
    for _ in range(15):
        flush.zero_()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        step()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def run(section, device, header, out, trace=None, small=False):
    flush = torch.empty(FLUSH_BYTES if device == "cuda" else 1, dtype=torch.int8, device=device)
    cases = []
    for b, h, s_q, length, ragged, causal, deviation in table():
        if small:
            b, length = min(b, 3), length // 128
        lengths = varlen(b, length, s_q) if ragged else [length] * b
        cases += [(lengths, h, s_q, length, ragged, causal, torch.bfloat16, deviation)]
    for b, h in ((128, 128), (128, 16)):
        b, length = (3, 64) if small else (b, 8192)
        cases += [([length] * b, h, 1, length, False, False, torch.float16, 0.1)]
    for b in (64, 256) if trace else ():
        for h in (128, 16):
            cases += [(trace_lengths(trace, b), h, 1, pathlib.Path(trace).stem, True, False, torch.bfloat16, 0.1)]
    records = []
    for lengths, h, s_q, length, ragged, causal, dtype, deviation in cases:
        record = {
            "operation": "decode", "dtype": str(dtype)[6:], "b": len(lengths), "h_q": h, "s_q": s_q, "len": length,
            "varlen": ragged, "causal": causal, "page": 64, "data_std": deviation,
        }  # fmt: skip

        def measure(record=record, arguments=(lengths, h, s_q, causal, dtype, deviation, device), tokens=sum(lengths)):
            batch = Batch(*arguments)
            record["kernel"] = flashmla.plan(
                record["b"], max_pages=batch.block_table.shape[1], s_q=record["s_q"], h_q=record["h_q"], dtype=record["dtype"],
                causal=record["causal"], device=device,
            ).kernel  # fmt: skip
            record["rel_error"] = float(f"{batch.relative_error():.3g}")
            if not record["rel_error"] < (1e-2 if record["dtype"] == "bfloat16" else 2e-3):
                return f"relative error {record['rel_error']}"
            rows = record["h_q"] * record["s_q"]
            if device == "cuda":
                time.sleep(REST_SECONDS)
                ms = milliseconds(batch.step, flush)
                record["ms"] = round(ms, 4)
                record["tflops"] = round(2 * rows * tokens * 1088 / ms / 1e9, 1)
                record["gbps"] = round(2 * (tokens * 576 + record["b"] * rows * 1088) / ms / 1e6)
            records.append(record)
            print(json.dumps(record), flush=True)
            return None

        section.check(json.dumps(record), measure)
        if len(records) % 16 == 1:
            header["sm_clock_mhz"].append(clock())
    section.progress("timings")
    if records:
        path = pathlib.Path(out) / "decode_dense.json"
        path.write_text(json.dumps({"header": {**header, "method": METHOD}, "records": records}, indent=1) + "\n")


def clock():
    import facts

    return facts.nvidia_smi("clocks.sm")

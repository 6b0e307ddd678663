"""CUDA graphs: a captured call replays correctly after lengths, block tables and the cache change in place."""

import pytest
import torch
from torch_cases import TorchCase, bits

import flash_mla

pytestmark = pytest.mark.gpu


class Captured:
    """A decode step for `b` slots over static buffers, captured once. `style` says which metadata the caller keeps."""

    def __init__(self, b, style="new", *, max_pages=128, num_pages=200, s_q=1, h_q=16, causal=False, warm_up=True):
        device = "cuda"
        self.b, self.s_q, self.h_q, self.causal = b, s_q, h_q, causal
        self.q = torch.zeros(b, s_q, h_q, 576, dtype=torch.bfloat16, device=device)
        self.k_cache = torch.randn(num_pages, 64, 1, 576, device=device).bfloat16()
        self.block_table = torch.zeros(b, max_pages, dtype=torch.int32, device=device)
        self.cache_seqlens = torch.full((b,), 64, dtype=torch.int32, device=device)
        self.out = torch.full((b, s_q, h_q, 512), float("nan"), dtype=torch.bfloat16, device=device)
        if style == "new":
            self.metadata, self.num_splits = flash_mla.get_mla_metadata()
        elif style == "old":
            self.metadata, self.num_splits = flash_mla.get_mla_metadata(self.cache_seqlens, s_q * h_q, 1)
        else:  # plain static buffers
            metadata, num_splits = flash_mla.get_mla_metadata(self.cache_seqlens, s_q * h_q, 1)
            self.metadata, self.num_splits = metadata.clone(), num_splits.clone()
        if warm_up:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self.step()
            torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.captured_out, self.lse = self.step()

    def step(self):
        return flash_mla.flash_mla_with_kvcache(
            self.q,
            self.k_cache,
            self.block_table,
            self.cache_seqlens,
            512,
            self.metadata,
            self.num_splits,
            causal=self.causal,
            out=self.out,
        )

    def load(self, case):
        """Puts a case of at most b requests into the buffers; the other slots get length 0 and wild tables."""
        b, width = case.block_table.shape
        self.q.fill_(float("nan"))
        self.q[:b] = case.q
        self.k_cache.fill_(float("nan"))
        self.k_cache[: case.k_cache.shape[0]] = case.k_cache
        self.block_table.fill_(2147480000)
        self.block_table[:b, :width] = case.block_table
        self.cache_seqlens.zero_()
        self.cache_seqlens[:b] = case.cache_seqlens
        self.out.fill_(float("nan"))
        self.lse.fill_(float("nan"))

    def replay_and_check(self, case):
        self.load(case)
        self.graph.replay()
        torch.cuda.synchronize()
        b = case.q.shape[0]
        out, lse = case.run_and_check()
        assert torch.allclose(self.out[:b].float(), out.float(), rtol=2**-7, atol=2**-8)
        assert torch.allclose(self.lse[:b], lse, rtol=1e-6, atol=1e-5)
        assert (self.out[b:] == 0).all() and torch.isposinf(self.lse[b:]).all()
        replayed = bits(self.out), bits(self.lse)
        eager_out, eager_lse = self.step()
        assert (bits(eager_out), bits(eager_lse)) == replayed
        self.graph.replay()
        torch.cuda.synchronize()
        assert (bits(self.out), bits(self.lse)) == replayed


@pytest.mark.parametrize("style", ["new", "old", "buffers"])
def test_lengths_change_in_place(gpu, style):
    """Field case 23: captured at 64 tokens; replayed at others, longer and shorter."""
    graph = Captured(2, style)
    for lengths in ([65, 1], [4096, 3], [1, 4096], [0, 0], [5000, 5000], [64, 64]):
        graph.replay_and_check(TorchCase(lengths, gpu, seed=sum(lengths)))


@pytest.mark.parametrize("style", ["new", "old", "buffers"])
def test_replay_at_a_smaller_batch(gpu, style):
    """Field case 22: captured for 8, replayed with metadata and lengths of 3; idle slots give 0 and +inf."""
    graph = Captured(8, style)
    case = TorchCase([70, 5, 640], gpu)
    if style != "new":
        metadata, num_splits = flash_mla.get_mla_metadata(case.cache_seqlens, 16, 1)
        graph.metadata.copy_(metadata)
        graph.num_splits[:4].copy_(num_splits)
        graph.num_splits[4:] = num_splits[-1]
    graph.replay_and_check(case)


@pytest.mark.parametrize("batch", [1, 2, 4, 8, 9])
def test_batch_sizes_of_engines(gpu, batch):
    """Field case 27: graphs for these sizes, each replayed at every smaller one."""
    graph = Captured(batch)
    for b in {1, batch // 2, batch - 1, batch} - {0}:
        graph.replay_and_check(TorchCase([100 + 37 * i for i in range(b)], gpu, seed=b))


@pytest.mark.parametrize("b", range(1, 10))
def test_poisoned_metadata(gpu, b):
    """Field case 26: every byte 0x7f before and after the capture, captured at 16."""
    graph = Captured(16, "buffers")
    graph.metadata.fill_(0x7F7F7F7F)
    graph.num_splits.fill_(0x7F7F7F7F)
    graph.replay_and_check(TorchCase([64 * i + 1 for i in range(b)], gpu, seed=b))


def test_slices_of_buffers_for_the_largest_batch(gpu):
    """Field cases 25 and 29: one pair of buffers serves the graphs of all batch sizes."""
    most = torch.ones(32, dtype=torch.int32, device=gpu)
    metadata, num_splits = flash_mla.get_mla_metadata(most, 16, 1)
    for b in (1, 3, 32):
        graph = Captured(b, "buffers")
        graph.metadata, graph.num_splits = metadata, num_splits[: b + 1]
        graph.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph.graph):
            graph.captured_out, graph.lse = graph.step()
        graph.replay_and_check(TorchCase([90 + 11 * i for i in range(b)], gpu, seed=b))


def test_flat_page_ids_are_refused(gpu):
    """Field case 28: a table is (b, max_pages); flat ids are an error, never guessed at."""
    case = TorchCase([70, 5], gpu)
    case.block_table = case.block_table.reshape(-1)
    with pytest.raises(ValueError, match="block_table: got rank 1"):
        case.run()


@pytest.mark.parametrize("warm_up", [True, False])
def test_first_use_of_metadata_inside_the_capture(gpu, warm_up):
    graph = Captured(4, "new", warm_up=warm_up)
    assert graph.metadata.have_initialized
    graph.replay_and_check(TorchCase([70, 5, 0, 300], gpu))
    graph.step()  # and the object still serves eager calls


@pytest.mark.parametrize("s_q, h_q", [(2, 16), (1, 128), (2, 128)])
def test_speculative_steps(gpu, s_q, h_q):
    """Padded slots of length 0 with two query tokens (field case 3) in a graph."""
    graph = Captured(6, s_q=s_q, h_q=h_q, causal=True)
    for lengths in ([70, 5, 1, 3000], [0, 2], [64] * 6):
        graph.replay_and_check(TorchCase(lengths, gpu, s_q=s_q, h_q=h_q, causal=True, seed=len(lengths)))


def test_fresh_outputs_live_in_the_graph_pool(gpu):
    case = TorchCase([70, 5, 300], gpu, h_q=128)
    metadata, _ = flash_mla.get_mla_metadata()
    wanted = [x.clone() for x in case.run(metadata, None)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = case.run(metadata, None)
    for _ in range(3):
        noise = [torch.randn(1 << 20, device=gpu) for _ in range(8)]  # would land in freed memory
        graph.replay()
        torch.cuda.synchronize()
        assert bits(out) == bits(wanted[0]) and bits(lse) == bits(wanted[1])
        del noise


def test_two_graphs_do_not_share_scratch(gpu):
    """Replays on two streams at once."""
    cases = [TorchCase([3000, 70, 5], gpu, h_q=128, seed=i) for i in range(2)]
    graphs, results, wanted = [], [], []
    for case in cases:
        metadata, _ = flash_mla.get_mla_metadata()
        wanted.append(bits(case.run(metadata, None)[0]))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results.append(case.run(metadata, None)[0])
        graphs.append(graph)
    streams = [torch.cuda.Stream() for _ in cases]
    for _ in range(20):
        for graph, stream in zip(graphs, streams, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
        torch.cuda.synchronize()
        assert [bits(out) for out in results] == wanted


def test_eager_steps_between_replays(gpu):
    graph = Captured(4)
    for i in range(4):
        graph.replay_and_check(TorchCase([70 + i, 5, 0, 300], gpu, seed=i))
        TorchCase([500 + i] * 7, gpu, h_q=64).run_and_check()

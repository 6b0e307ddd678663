"""Both metadata styles, every habit that callers have with them, and that contents never decide a result."""

import copy

import pytest
import torch
from torch_cases import TorchCase, bits

import flash_mla
from flash_mla.flash_mla_interface import FlashMLASchedMeta

LENGTHS = [300, 5, 0, 129]


@pytest.fixture
def case(device):
    return TorchCase(LENGTHS, device)


@pytest.fixture
def wanted(case):
    return bits(case.run()[0])


def old_style(case, **options):
    return flash_mla.get_mla_metadata(case.cache_seqlens, 16, 1, **options)


def test_new_style(case):
    metadata, num_splits = flash_mla.get_mla_metadata()
    assert isinstance(metadata, FlashMLASchedMeta) and num_splits is None
    assert not metadata.have_initialized and metadata.config is None
    assert metadata.tile_scheduler_metadata is None and metadata.num_splits is None
    case.run_and_check(metadata, None)
    assert metadata.have_initialized and metadata.config.b == 4 and metadata.config.h_q == 16
    assert metadata.tile_scheduler_metadata.shape[1] == 8 and metadata.num_splits.shape == (5,)
    assert metadata.tile_scheduler_metadata.device == case.q.device
    case.run_and_check(metadata, None)


@pytest.mark.parametrize(
    "arguments, keywords",
    [
        ((16, 1), {}),
        ((16, 1, 16), {}),
        ((16, 1, 16, False), {}),
        ((16, 1, 16, False, None), {}),
        ((), dict(num_heads_per_head_k=16, num_heads_k=1)),
        ((), dict(num_q_tokens_per_head_k=16, num_heads_k=1, num_heads_q=16, is_fp8_kvcache=False, topk=None)),
    ],
)
def test_old_style_signatures(case, wanted, arguments, keywords):
    metadata, num_splits = flash_mla.get_mla_metadata(case.cache_seqlens, *arguments, **keywords)
    assert isinstance(metadata, FlashMLASchedMeta)
    assert num_splits.dtype == torch.int32 and num_splits.shape == (5,) and num_splits.device == case.q.device
    assert bits(case.run(metadata, num_splits)[0]) == wanted


def test_lengths_by_keyword(case, wanted):
    metadata, num_splits = flash_mla.get_mla_metadata(
        cache_seqlens=case.cache_seqlens, num_heads_per_head_k=16, num_heads_k=1
    )
    assert bits(case.run(metadata, num_splits)[0]) == wanted


def test_acts_as_a_tensor(case):
    metadata, _ = old_style(case)
    rows = metadata.shape[0]
    assert metadata.shape == (rows, 8) and metadata.dtype == torch.int32 and metadata.device == case.q.device
    assert len(metadata) == rows and metadata[:1].shape == (1, 8) and metadata.numel() == rows * 8 and metadata.dim() == 2
    assert metadata.ndim == 2 and metadata.size(1) == 8 and metadata.is_contiguous() and metadata.stride(0) == 8
    static = torch.full((rows + 3, 8), 7, dtype=torch.int32, device=case.q.device)
    assert static[:rows].copy_(metadata).eq(metadata).all()
    static[:rows] = metadata
    metadata.copy_(torch.full_like(metadata, 5))
    assert metadata.tile_scheduler_metadata.eq(5).all() and metadata.eq(5).all()
    metadata[0] = 1
    assert metadata[0].tolist() == [1] * 8
    assert torch.empty_like(metadata).shape == metadata.shape and metadata.clone().shape == metadata.shape
    assert torch.cat([metadata, static]).shape == (2 * rows + 3, 8)
    assert metadata.to("cpu").tolist() == metadata.cpu().tolist()


def test_tables_are_made_when_looked_at(case):
    """Once, on the lengths' device, also for a copy of an object that has not made its own."""
    for metadata, _ in (old_style(case), flash_mla.get_mla_metadata()):
        case.run(metadata, metadata.num_splits)
        assert "table=None" in repr(metadata)
        again = copy.deepcopy(metadata)
        for one in (metadata, again):
            table = one.tile_scheduler_metadata
            assert table.eq(0).all() and table.device == case.q.device and one.tile_scheduler_metadata is table
            assert one.num_splits.tolist() == [0, 1, 2, 3, 4] and one.num_splits is one.num_splits
        assert again.tile_scheduler_metadata is not metadata.tile_scheduler_metadata


def test_rows_depend_on_the_device_alone(case):
    """Tables of any two calls fit into each other, whatever b, lengths and head counts are."""
    shapes = set()
    for b, heads in ((1, 16), (4, 128), (300, 2)):
        lengths = torch.full((b,), 1000, dtype=torch.int32, device=case.q.device)
        metadata, num_splits = flash_mla.get_mla_metadata(lengths, heads, 1)
        shapes.add(tuple(metadata.shape))
        assert num_splits.shape == (b + 1,)
    assert len(shapes) == 1
    if case.q.is_cuda:
        assert shapes.pop()[0] <= torch.cuda.get_device_properties(case.q.device).multi_processor_count


def test_static_buffers_refreshed_by_copy(case, wanted):
    """Field cases 25 and 29: buffers made for the largest batch, slices of num_splits for smaller ones."""
    most = torch.ones(64, dtype=torch.int32, device=case.q.device)
    static_metadata, static_splits = flash_mla.get_mla_metadata(most, 16, 1)
    metadata, num_splits = old_style(case)
    static_metadata.copy_(metadata)
    static_splits[: num_splits.shape[0]].copy_(num_splits)
    static_splits[num_splits.shape[0] :] = num_splits[-1]
    assert bits(case.run(static_metadata, static_splits[:5])[0]) == wanted
    assert bits(case.run(static_metadata, static_splits)[0]) == wanted


def test_plain_buffers(case, wanted):
    metadata, num_splits = old_style(case)
    table = torch.zeros(metadata.shape, dtype=torch.int32, device=case.q.device)
    table.copy_(metadata)
    assert bits(case.run(table, num_splits.clone())[0]) == wanted


def test_only_the_first_value_is_passed_on(case, wanted):
    assert bits(case.run(old_style(case)[0], None)[0]) == wanted


def test_fields_assigned_by_the_caller(case, wanted):
    metadata = FlashMLASchedMeta()
    old, num_splits = old_style(case)
    metadata.tile_scheduler_metadata, metadata.num_splits = old.tile_scheduler_metadata, num_splits
    assert bits(case.run(metadata, None)[0]) == wanted
    assert metadata.tile_scheduler_metadata is old.tile_scheduler_metadata and metadata.num_splits is num_splits


def test_hand_written_table_for_one_worker(case, wanted):
    table = torch.zeros(1, 8, dtype=torch.int32, device=case.q.device)
    table[0, 2] = 3
    num_splits = torch.arange(5, dtype=torch.int32, device=case.q.device)
    assert bits(case.run(table, num_splits)[0]) == wanted


@pytest.mark.parametrize("poison", [0, -1, 0x7F7F7F7F, -(2**31)])
def test_contents_never_decide(case, wanted, poison):
    """Stale, poisoned and truncated metadata."""
    metadata, num_splits = old_style(case)
    metadata.tile_scheduler_metadata.fill_(poison)
    num_splits.fill_(poison)
    assert bits(case.run(metadata, num_splits)[0]) == wanted
    assert bits(case.run(metadata[:2], num_splits[:3])[0]) == wanted
    filled, _ = flash_mla.get_mla_metadata()
    case.run(filled, None)
    filled.tile_scheduler_metadata.fill_(poison)
    filled.num_splits.fill_(poison)
    assert bits(case.run(filled, None)[0]) == wanted


def test_metadata_of_another_batch(device):
    """Field case 22: built for 3 requests, used for 8."""
    small = TorchCase([70, 5, 64], device)
    large = TorchCase([70, 5, 64, 1, 300, 0, 2, 9], device)
    wanted = bits(large.run()[0])
    assert bits(large.run(*flash_mla.get_mla_metadata(small.cache_seqlens, 16, 1))[0]) == wanted


@pytest.mark.parametrize(
    "other, field",
    [
        (dict(lengths=[300, 5]), "b = 4"),
        (dict(s_q=2), "s_q = 1"),
        (dict(h_q=128), "h_q = 16"),
        (dict(h_kv=2), "h_k = 1"),
        (dict(causal=True), "causal = False"),
    ],
)
def test_an_object_serves_one_kind_of_call(case, device, other, field):
    """Field cases 24 and 68: a clear error, never numbers from the wrong plan."""
    metadata, _ = flash_mla.get_mla_metadata()
    case.run(metadata, None)
    options = {"lengths": LENGTHS, **other}
    wrong = TorchCase(options.pop("lengths"), device, **options)
    with pytest.raises(ValueError, match=f"tile_scheduler_metadata: got .* {field}"):
        wrong.run(metadata, None)
    case.run_and_check(metadata, None)  # and the object still serves its own


def test_lengths_may_change_between_uses(case):
    metadata, _ = flash_mla.get_mla_metadata()
    case.run(metadata, None)
    case.cache_seqlens.copy_(torch.tensor([1, 5, 0, 2], dtype=torch.int32))
    case.case.cache_seqlens[:] = [1, 5, 0, 2]
    case.run_and_check(metadata, None)


def test_a_failed_call_does_not_mark_the_object(case):
    metadata, _ = flash_mla.get_mla_metadata()
    with pytest.raises(ValueError, match="block_table"):
        flash_mla.flash_mla_with_kvcache(
            case.q, case.k_cache, case.block_table.long(), case.cache_seqlens, 512, metadata
        )
    assert not metadata.have_initialized
    case.run_and_check(metadata, None)


@pytest.mark.parametrize("bad", [None, 3, "table", torch.zeros(1, 8), torch.zeros(1, 8, dtype=torch.int64)])
def test_what_is_no_metadata(case, bad):
    with pytest.raises(ValueError, match="tile_scheduler_metadata"):
        flash_mla.flash_mla_with_kvcache(*case.inputs, 512, bad, None)


def test_bad_lengths(device):
    for lengths in (torch.zeros(3, dtype=torch.int64, device=device), torch.zeros(3, 1, dtype=torch.int32, device=device)):
        with pytest.raises(ValueError, match="cache_seqlens"):
            flash_mla.get_mla_metadata(lengths, 16, 1)


def test_copies_and_text(case):
    metadata, _ = flash_mla.get_mla_metadata()
    assert copy.deepcopy(metadata).have_initialized is False and "config=None" in repr(metadata)
    with pytest.raises(AttributeError, match="first use"):
        metadata.shape  # noqa: B018
    case.run(metadata, None)
    again = copy.deepcopy(metadata)
    assert again.config == metadata.config and torch.equal(again.num_splits, metadata.num_splits)
    case.run_and_check(again, None)


def test_dense_fp8_metadata(case):
    table, num_splits = flash_mla.get_mla_metadata_dense_fp8(case.cache_seqlens, 16, 1)
    assert isinstance(table, torch.Tensor) and table.shape[1] == 8 and num_splits.shape == (5,)

"""Reading as training jobs do: torch's DataLoader, transforms, types, epochs, subsets, mixtures."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from phalanx.dataplane import (
    Field,
    Loader,
    Mixture,
    ShardCache,
    ShardDataset,
    ShardWriter,
    Subset,
    collate,
    padded,
    where,
)
from phalanx.dataplane.errors import DatasetError, LoaderError
from phalanx.dataplane.mixture import whole_weights

from .conftest import MakeDataset


@pytest.fixture
def dataset(make_dataset: MakeDataset, tmp_path: Path) -> Iterator[ShardDataset]:
    make_dataset(count=100, per_shard=8)
    with ShardDataset(tmp_path / "set") as opened:
        yield opened


def epoch_ids(loader: Loader) -> list[int]:
    return list(chain.from_iterable(batch["id"].tolist() for batch in loader))


@pytest.mark.parametrize("workers", [0, 2])
def test_inside_torchs_dataloader(dataset: ShardDataset, workers: int) -> None:
    plain = torch.utils.data.DataLoader(dataset, batch_size=7, num_workers=workers)
    whole = torch.utils.data.DataLoader(dataset, batch_size=7, num_workers=workers, collate_fn=collate)
    for a, b in zip(plain, whole, strict=True):
        assert a.keys() == b.keys() == {"id", "wave", "target"}
        assert all(torch.equal(a[name], b[name]) for name in a)


def test_drop_and_pad_give_every_rank_the_same_number_of_batches(dataset: ShardDataset) -> None:
    for tail, batches in (("drop", 8), ("pad", 9)):
        seen: list[Counter[int]] = [Counter(), Counter()]
        for rank in range(4):
            with Loader(dataset, 12, rank, 4, seed=1, tail=tail) as loader:
                assert len(loader) == batches
                for epoch in range(2):
                    count = 0
                    for batch in loader:
                        real = batch["mask"] if tail == "pad" else torch.ones(3, dtype=torch.bool)
                        seen[epoch].update(batch["id"][real].tolist())
                        assert len(batch["id"]) == 3
                        count += 1
                    assert count == batches
                    assert loader.epoch == epoch + 1
        wanted = {"drop": 96, "pad": 100}[tail]
        assert [sum(counts.values()) for counts in seen] == [wanted, wanted]
        assert [max(counts.values()) for counts in seen] == [1, 1]


def test_the_length_of_an_epoch_can_be_set(dataset: ShardDataset) -> None:
    with Loader(dataset, 10, tail="drop", epoch_samples=35) as loader:
        assert len(loader) == 3
        assert [len(epoch_ids(loader)) for _ in range(4)] == [30] * 4
        assert loader.epoch == 4
    with Loader(dataset, 10, tail="pad", epoch_samples=250) as loader:
        assert Counter(Counter(epoch_ids(loader)).values()) == Counter({2: 50, 3: 50})


def test_an_epoch_smaller_than_a_batch(dataset: ShardDataset) -> None:
    with pytest.raises(LoaderError, match="cannot be filled by an epoch of 100"):
        Loader(dataset, 101, tail="drop")
    with pytest.raises(LoaderError, match="tail 'cut' must be one of"):
        Loader(dataset, 10, tail="cut")  # type: ignore[arg-type]
    with Loader(dataset, 250, tail="pad") as loader:
        (batch,) = list(loader)
        assert int(batch["mask"].sum()) == 100
        assert sorted(batch["id"][batch["mask"]].tolist()) == list(range(100))


@pytest.mark.parametrize("tail", ["drop", "pad"])
def test_epochs_resume_at_every_batch_on_another_world_size(dataset: ShardDataset, tail: Any) -> None:
    def union(state: Any, world_size: int) -> list[list[int]]:
        ranks = []
        for rank in range(world_size):
            with Loader(dataset, 24, rank, world_size, seed=3, tail=tail) as loader:
                if state is not None:
                    loader.load_state_dict(state)
                ranks.append([b["id"].tolist() for _ in range(2) for b in loader])
        return [sorted(chain.from_iterable(parts)) for parts in zip(*ranks, strict=True)]

    whole = union(None, 1)
    with Loader(dataset, 24, seed=3, tail=tail) as loader:
        per_epoch = len(loader)
        for step, _ in enumerate(loader, 1):
            state = loader.state_dict()
            rest = union(state, (1, 2, 3, 4)[step % 4])
            # At an epoch's end two whole epochs follow, otherwise the rest of this one and one more.
            assert rest[: len(whole) - step] == whole[step:]
            assert len(rest) == 2 * per_epoch - step % per_epoch


def test_a_stateful_dataloader_protocol_round_trip(dataset: ShardDataset) -> None:
    with Loader(dataset, 10, seed=1, tail="drop") as loader:
        for _ in range(15):
            state = loader.state_dict()
            with Loader(dataset, 10, seed=1, tail="drop") as other:
                other.load_state_dict(state)
                assert other.state_dict() == state
            if next(loader, None) is None:
                iter(loader)


def test_types_on_the_way(dataset: ShardDataset) -> None:
    with (
        Loader(dataset, 10, seed=1, cast={"wave": torch.bfloat16, "id": torch.int32}) as loader,
        Loader(dataset, 10, seed=1) as plain,
    ):
        for a, b in zip(loader.batches(15), plain.batches(15), strict=True):
            assert (a["wave"].dtype, a["id"].dtype, a["target"].dtype) == (torch.bfloat16, torch.int32, torch.float32)
            assert torch.equal(a["wave"], b["wave"].to(torch.bfloat16))
    with pytest.raises(LoaderError, match="no field waves"):
        Loader(dataset, 10, cast={"waves": torch.bfloat16})


def noisy(sample: dict[str, torch.Tensor], random: np.random.Generator) -> dict[str, torch.Tensor]:
    return {"id": sample["id"], "noise": torch.tensor(random.random())}


def test_sample_transforms_draw_the_same_for_a_sample_on_any_world_size(dataset: ShardDataset) -> None:
    def drawn(world_size: int, start: int = 0) -> dict[tuple[int, int], float]:
        found = {}
        for rank in range(world_size):
            with Loader(dataset, 20, rank, world_size, seed=5, sample_transform=noisy, transform_threads=3) as loader:
                loader.load_state_dict({**loader.state_dict(), "samples": start})
                for step, batch in enumerate(loader.batches(10 - start // 20)):
                    for sample, noise in zip(batch["id"].tolist(), batch["noise"].tolist(), strict=True):
                        found[start // 20 + step, sample] = noise
        return found

    one = drawn(1)
    assert len(set(one.values())) == 200
    assert drawn(4) == one
    assert drawn(2, 100) == {key: value for key, value in one.items() if key[0] >= 5}


def test_batch_transforms_see_whole_batches(dataset: ShardDataset) -> None:
    def double(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"twice": batch["id"] * 2, "rows": torch.tensor(len(batch["id"]))}

    def jitter(batch: dict[str, torch.Tensor], random: np.random.Generator) -> dict[str, torch.Tensor]:
        return {"id": batch["id"], "jitter": torch.from_numpy(random.random(len(batch["id"])))}

    with Loader(dataset, 10, transform=double, shuffle=False) as loader:
        assert next(loader)["twice"].tolist() == list(range(0, 20, 2))
    with Loader(dataset, 10, transform=jitter) as a, Loader(dataset, 10, transform=jitter) as b:
        b.load_state_dict({**b.state_dict(), "samples": 20})
        first = [x["jitter"].clone() for x in a.batches(4)]
        assert [torch.equal(x, y["jitter"]) for x, y in zip(first[2:], b.batches(2), strict=True)] == [True, True]


def test_a_failing_transform_is_raised_where_the_batch_is_asked_for(dataset: ShardDataset) -> None:
    def broken(sample: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        if int(sample["id"]) == 25:
            raise ValueError("cannot use sample 25")
        return sample

    with Loader(dataset, 10, shuffle=False, sample_transform=broken) as loader:
        next(loader), next(loader)
        with pytest.raises(ValueError, match="cannot use sample 25"):
            next(loader)

    def ragged(sample: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"x": torch.zeros(int(sample["id"]) % 3)}

    with (
        Loader(dataset, 10, sample_transform=ragged) as loader,
        pytest.raises(LoaderError, match="do not fit together"),
    ):
        next(loader)


def test_fields_of_variable_length_through_the_loader(tmp_path: Path) -> None:
    fields = [Field("x", "int16", (2,), variable=True), Field("id", "int64", ())]
    items = [np.full((number * 13 % 31, 2), number, np.int16) for number in range(90)]
    with ShardWriter(tmp_path / "set", fields, name="n", shard_bytes=1500) as writer:
        writer.write({"x": items, "id": np.arange(90)})
    largest = max(path.stat().st_size for path in (tmp_path / "set").glob("shard-*"))
    for cache in (None, ShardCache(tmp_path / "cache", 2 * largest)):
        with (
            ShardDataset(tmp_path / "set", cache) as dataset,
            Loader(dataset, 15, cast={"x": torch.bfloat16}) as loader,
        ):
            for batch in loader.batches(20):
                assert batch["x"].dtype == torch.bfloat16
                offsets = batch["x.offsets"].tolist()
                for row, sample in enumerate(batch["id"].tolist()):
                    assert batch["x"][offsets[row] : offsets[row + 1]].tolist() == items[sample].tolist()
                values, real = padded(batch, "x")
                assert int(real.sum()) == len(batch["x"])
                assert values.shape[0] == 15


def test_a_subset_is_read_as_if_there_were_nothing_else(dataset: ShardDataset) -> None:
    chosen = [5, 99, 17, 18, 60, 61, 62, 33]
    subset = Subset(dataset, chosen)
    assert len(subset) == 8
    for world_size in (1, 2, 4):
        seen: list[int] = []
        for rank in range(world_size):
            with Loader(subset, 4, rank, world_size, tail="drop") as loader:
                seen += epoch_ids(loader)
        assert sorted(seen) == sorted(chosen)
    with Loader(subset, 8, shuffle=False) as loader:
        assert next(loader)["id"].tolist() == sorted(chosen)
    for wrong, message in (([], "at least one"), ([100], "0 to 99"), ([3, 3], "id 3 is given twice")):
        with pytest.raises(DatasetError, match=message):
            Subset(dataset, np.array(wrong, int))


def test_filtering_by_a_condition_on_batches(dataset: ShardDataset) -> None:
    odd = where(dataset, lambda batch: batch["id"] % 2 == 1)
    assert odd.ids.tolist() == list(range(1, 100, 2))
    with pytest.raises(DatasetError, match="at least one"):
        where(dataset, lambda batch: batch["id"] < 0)
    with pytest.raises(DatasetError, match="one bool per sample"):
        where(dataset, lambda batch: batch["id"])


def test_a_state_of_another_subset_or_mixture_is_refused(dataset: ShardDataset) -> None:
    states = [
        Loader(part, 4).state_dict()
        for part in (
            Subset(dataset, [1, 2, 3]),
            Subset(dataset, [1, 2, 4]),
            Mixture([dataset, dataset], [1, 2]),
            dataset,
        )
    ]
    for number, part in enumerate((Subset(dataset, [1, 2, 3]), Subset(dataset, [1, 2, 4]))):
        for other, state in enumerate(states):
            if other == number:
                Loader(part, 4).load_state_dict(state)
            else:
                with pytest.raises(LoaderError, match="does not fit"):
                    Loader(part, 4).load_state_dict(state)


@pytest.fixture
def three(make_dataset: MakeDataset, tmp_path: Path) -> list[ShardDataset]:
    for name, count, first in (("a", 50, 0), ("b", 20, 1000), ("c", 33, 2000)):
        make_dataset(name, count=count, first=first)
    return [ShardDataset(tmp_path / name) for name in "abc"]


def test_a_mixture_has_the_shares_asked_for_and_each_part_its_epochs(three: list[ShardDataset]) -> None:
    mixture = Mixture(three, [5, 2, 3])
    with Loader(mixture, 10, seed=2) as loader:
        for step, batch in enumerate(loader.batches(100)):
            parts = Counter((batch["id"] // 1000).tolist())
            assert parts == {0: 5, 1: 2, 2: 3}, step
            assert torch.equal(batch["target"][:, 0], batch["id"].float())
    with Loader(mixture, 10, seed=2) as loader:
        seen = Counter(chain.from_iterable(b["id"].tolist() for b in loader.batches(10)))
    assert {sample: seen[sample] for sample in range(50)} == dict.fromkeys(range(50), 1)
    assert {sample: seen[sample] for sample in range(1000, 1020)} == dict.fromkeys(range(1000, 1020), 1)
    assert sum(seen[sample] for sample in range(2000, 2033)) == 30


def test_a_mixture_resumes_on_any_world_size(three: list[ShardDataset]) -> None:
    mixture = Mixture([three[0], Subset(three[1], [3, 4, 5, 19]), three[2]], [0.5, 0.2, 0.3])
    with Loader(mixture, 12, seed=7) as loader:
        expected = [sorted(batch["id"].tolist()) for batch in loader.batches(30)]
    for step, world_size in ((0, 3), (1, 2), (11, 4), (20, 6)):
        with Loader(mixture, 12, seed=7) as loader:
            list(loader.batches(step))
            state = loader.state_dict()
        ranks = []
        for rank in range(world_size):
            with Loader(mixture, 12, rank, world_size, seed=7) as loader:
                loader.load_state_dict(state)
                ranks.append([batch["id"].tolist() for batch in loader.batches(30 - step)])
        assert [sorted(chain.from_iterable(parts)) for parts in zip(*ranks, strict=True)] == expected[step:]


def test_a_mixture_through_one_cache(make_dataset: MakeDataset, tmp_path: Path) -> None:
    manifest = make_dataset("a", count=64)
    make_dataset("b", count=64, first=1000)
    cache = ShardCache(tmp_path / "cache", 40 * manifest.shards[0].size_bytes)
    parts = [ShardDataset(tmp_path / name, cache) for name in "ab"]
    with Loader(Mixture(parts, [1, 1]), 16, tail="drop") as loader:
        assert sorted(epoch_ids(loader)) == [*range(64), *range(1000, 1064)]
    with pytest.raises(LoaderError, match="same cache"):
        Mixture([parts[0], ShardDataset(tmp_path / "b")], [1, 1])


def test_mixtures_that_cannot_be(three: list[ShardDataset], tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "other", [Field("y", "int8", ())], name="other") as writer:
        writer.write({"y": np.zeros(3, np.int8)})
    for parts, weights, message in (
        (three, [1, 2], "3 data sets but 2 weights"),
        (three, [1, 2, 0], "all be above 0"),
        ([three[0], ShardDataset(tmp_path / "other")], [1, 1], "different fields"),
    ):
        with pytest.raises(LoaderError, match=message):
            Mixture(parts, weights)


def test_weights_become_turns() -> None:
    assert whole_weights([5, 2, 3]) == (5, 2, 3)
    assert whole_weights([0.7, 0.3]) == (700, 300)
    assert whole_weights([1 / 3, 2 / 3]) == (333, 667)
    assert whole_weights([1e-9, 1]) == (1, 999)
    assert sum(whole_weights([0.1, 0.2, 0.3, 0.17, 0.23])) == 1000


def test_a_field_called_mask_cannot_be_padded(tmp_path: Path) -> None:
    with ShardWriter(tmp_path, [Field("mask", "int8", ())], name="n") as writer:
        writer.write({"mask": np.zeros(3, np.int8)})
    with pytest.raises(LoaderError, match="a field has that name"):
        Loader(ShardDataset(tmp_path), 2, tail="pad")

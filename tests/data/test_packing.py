"""From the journal of a collect to a collection: a row a measurement, splits by family, nothing mixed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.kit.studies import (
    collected,
    only_history,
    selected,
    several,
    small_captured,
    small_space,
    wanted,
)
from tpugraphs import files
from tpugraphs.data import load, packing, verify_root
from tpugraphs.data.collection import read_collection
from tpugraphs.data.names import collection_folder
from tpugraphs.data.packing import Packed, pack_runs, read_splits
from tpugraphs.errors import BadFile, BadRequest
from tpugraphs.graph import graph_of_hlo
from tpugraphs.graph.columns import LAYOUT_CONFIG_FEATURES
from tpugraphs.measure import collect as collecting
from tpugraphs.measure.journal import MODULE, STUDIES, History, read_runs
from tpugraphs.measure.judging import default_ns
from tpugraphs.measure.measurement import OK, Measurement
from tpugraphs.program.selection import Selected
from tpugraphs.space import Config
from tpugraphs.space.encoding import decode_layouts
from tpugraphs.target.simulated import SimulatedTarget

NAME = "joint:simulated:random"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three programs of two families, some of whose configs fail."""
    folder = tmp_path_factory.mktemp("runs")
    programs = [selected("net", "nets"), selected("net/wide", "nets", 9), selected("other", "others", 5)]
    target = SimulatedTarget(compile_error=0.1, wrong=0.1)
    collected(folder, wanted(target.name, configs=20), programs)
    return folder


def histories(folder: Path) -> dict[str, History]:
    return {history.study.program.replace("/", "."): history for history in read_runs(folder).values()}


def good(history: History) -> list[Measurement]:
    everything = [*history.repeats, *history.finalists, *history.asked.values()]
    return [one for one in everything if one.status == OK]


def packed(folder: Path, tmp_path: Path, **options: object) -> tuple[Packed, Path]:
    """Into a root where `load` finds it."""
    name = str(options.pop("expected", NAME))
    into = collection_folder(tmp_path, name)
    return pack_runs(folder, into, **options), into  # pyright: ignore[reportArgumentType]


def sorted_rows(features: np.ndarray, runtime: np.ndarray) -> list[bytes]:
    return sorted(row.tobytes() + int(ns).to_bytes(8, "big") for row, ns in zip(features, runtime, strict=True))


def test_a_row_is_a_measurement(runs: Path, tmp_path: Path) -> None:
    made, _ = packed(runs, tmp_path)
    assert made.collection == NAME
    assert made.left_out == ()
    ds = load(NAME, root=tmp_path)
    assert sorted(graph.name for graph in ds) == ["net", "net.wide", "other"]
    for graph in ds:
        history = histories(runs)[graph.name]
        measurements = good(history)
        assert len(measurements) < len(history.measured), "failures are no rows"
        expected = [max(1, round(default_ns(history) * one.ratio.value)) for one in measurements if one.ratio]
        features = history.study.encoding.encode([one.config for one in measurements])
        assert sorted_rows(graph.config_features(), graph.config_runtime) == sorted_rows(features, np.array(expected))


def test_the_graph_is_that_of_the_lowered_program(runs: Path, tmp_path: Path) -> None:
    packed(runs, tmp_path)
    for graph in load(NAME, root=tmp_path):
        history = histories(runs)[graph.name]
        module = (runs / STUDIES / history.study.id / MODULE).read_bytes()
        expected = graph_of_hlo(module, graph.name)
        np.testing.assert_array_equal(graph.node_opcode, expected.node_opcode)
        np.testing.assert_array_equal(graph.node_feat, expected.node_feat)
        np.testing.assert_array_equal(graph.edge_index, expected.edge_index)
        assert tuple(graph.node_config_ids) == history.study.encoding.node_ids


def test_configs_come_back_from_a_layout_collection(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    collected(folder, wanted(configs=15, spaces=("layout",)))
    packed(folder, tmp_path, expected="layout:simulated:random")
    [graph] = load("layout:simulated:random", root=tmp_path)
    assert graph.schema.config_columns == LAYOUT_CONFIG_FEATURES
    history = only_history(folder)
    settings = history.study.encoding.settings
    row_of = {name: next(iter(choices.values()))[0] for name, choices in settings.items()}
    in_order = sorted(small_space(("layout",)).knobs, key=lambda knob: row_of[knob.name])
    decoded = [decode_layouts(rows, in_order) for rows in graph.config_features()]
    assert sorted(config.to_json() for config in decoded) == sorted(one.config.to_json() for one in good(history))
    assert {config for config in decoded if config.is_default} == {Config()}


def test_what_it_makes_verifies(runs: Path, tmp_path: Path) -> None:
    made, into = packed(runs, tmp_path)
    [checked] = verify_root(into)
    assert checked.problems == ()
    assert checked.graphs == len(made.graphs) == 3


def test_the_collection_says_how_it_was_measured(runs: Path, tmp_path: Path) -> None:
    _, into = packed(runs, tmp_path)
    manifest = read_collection(into)
    assert manifest.synthetic, "its run times come from a formula"
    assert manifest.fingerprint == collecting.fingerprint()
    assert manifest.measured.keys() == {"net", "net.wide", "other"}
    for name, told in manifest.measured.items():
        history = histories(runs)[name]
        assert told["study"] == history.study.id
        assert sum(told["failed"].values()) == sum(one.status != OK for one in history.asked.values())
        row = manifest.rows[name]
        assert row.configs == len(good(history))
        assert row.noise_floor is not None
        assert row.repeat_pairs


def test_packing_twice_gives_the_same(runs: Path, tmp_path: Path) -> None:
    _, one = packed(runs, tmp_path / "one")
    _, two = packed(runs, tmp_path / "two")
    for path in sorted(one.rglob("*")):
        if path.is_file():
            assert path.read_bytes() == (two / path.relative_to(one)).read_bytes(), path.name


def test_a_family_is_on_one_side(runs: Path, tmp_path: Path) -> None:
    made, _ = packed(runs, tmp_path)
    split_of = {row.name: row.split for row in made.graphs}
    assert split_of["net"] == split_of["net.wide"]


def test_families_are_spread_by_their_names() -> None:
    drawn = [packing._split(f"family{number}", None) for number in range(2000)]
    shares = {split: drawn.count(split) / len(drawn) for split in ("train", "valid", "test")}
    assert 0.76 < shares["train"] < 0.84
    assert 0.07 < shares["valid"] < 0.13
    assert 0.07 < shares["test"] < 0.13
    assert packing._split("ResNet", None) == packing._split("resnet", None)


def test_a_file_says_which_split(runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "splits.txt"
    path.write_text("# ours\nnets\tvalid\n\nothers test  # a family\nnet/wide   train\n")
    splits = read_splits(path)
    assert splits == {"nets": "valid", "others": "test", "net/wide": "train"}
    made, _ = packed(runs, tmp_path, splits=splits)
    assert {row.name: row.split for row in made.graphs} == {"net": "valid", "other": "test", "net.wide": "train"}
    assert [graph.name for graph in load(NAME, "valid", root=tmp_path)] == ["net"]


@pytest.mark.parametrize("line", ["nets", "nets validation", "train"])
def test_a_line_that_names_no_split_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "splits.txt"
    path.write_text(f"others test\n{line}\n")
    with pytest.raises(BadFile, match=r"splits.txt: line 2: expected a family or program and one of train, valid"):
        read_splits(path)


def test_the_time_of_nodes_comes_along_where_it_was_taken(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    options = {"configs": 3, "spaces": ("layout",), "finalists": 1}
    collected(folder, wanted("xla:cpu", profiled_calls=2, **options), [selected()])
    name = "layout:xla-cpu:random"
    packed(folder, tmp_path, expected=name)
    [graph] = load(name, root=tmp_path)
    found, history = graph.node_runtime, only_history(folder)
    assert found is not None
    assert found.shape == (len(graph.config_runtime), len(graph.node_config_ids))
    opcodes = graph.node_opcode[graph.node_config_ids]
    parameters = opcodes == graph.node_opcode[history.study.encoding.node_ids[row(history, "input0.layout")]]
    profiled = [bool(one.node_ns) for one in (*history.repeats, *history.finalists, *history.asked.values())]
    np.testing.assert_array_equal(~np.isnan(found[:, ~parameters]).any(axis=1), profiled)
    assert any(profiled)
    assert np.isnan(found[:, parameters]).all()
    spent = history.repeats[0].node_ns["tpugraphs.node0"]
    assert found[0, row(history, "node0.output")] == np.float32(spent)


def row(history: History, knob: str) -> int:
    return next(iter(history.study.encoding.settings[knob].values()))[0]


def test_without_a_profile_there_is_none(runs: Path, tmp_path: Path) -> None:
    packed(runs, tmp_path)
    assert all(graph.node_runtime is None for graph in load(NAME, root=tmp_path))


def test_of_several_collections_one_is_chosen(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    collected(folder, wanted(configs=4))
    collected(folder, wanted(configs=4, spaces=("layout",)))
    says = "holds measurements for joint:simulated:random, layout:simulated:random; choose one with --name"
    with pytest.raises(BadRequest, match=says):
        packed(folder, tmp_path)
    with pytest.raises(BadRequest, match="holds no measurements for tile:simulated; it has joint"):
        packed(folder, tmp_path, name="tile:simulated")
    made, _ = packed(folder, tmp_path, name="layout:simulated:random", expected="layout:simulated:random")
    assert made.collection == "layout:simulated:random"
    [graph] = load("layout:simulated:random", root=tmp_path)
    assert graph.config_features().shape[2] == 18


def test_of_several_machines_one_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, found = tmp_path / "runs", collecting.fingerprint()
    collected(folder, wanted(configs=4))
    monkeypatch.setattr(collecting, "fingerprint", lambda: {**found, "processor": "another one"})
    collected(folder, wanted(configs=6))
    machines = {packing.strict(history.study.fingerprint): history for history in read_runs(folder).values()}
    with pytest.raises(BadRequest, match=r"another one.*choose one machine with --machine"):
        packed(folder, tmp_path)
    with pytest.raises(BadRequest, match="choose one machine with --machine"):
        packed(folder, tmp_path, machine="nobody")
    for digits, history in machines.items():
        _, into = packed(folder, tmp_path / digits, machine=digits[:8])
        assert read_collection(into).fingerprint == history.study.fingerprint
        [graph] = load(NAME, root=tmp_path / digits)
        assert len(graph.config_runtime) == len(good(history))


def without_good_configs(folder: Path, programs: Sequence[Selected]) -> None:
    collected(folder, wanted("simulated:compile_error=1.0", configs=1, finalists=0), programs)


def test_a_program_with_too_little_is_left_out_and_said(tmp_path: Path) -> None:
    folder, one, two = (tmp_path / name for name in ("runs", "one", "two"))
    without_good_configs(folder, [selected("poor")])
    collected(folder, wanted(configs=4), [selected("rich")])
    made, _ = packed(folder, one)
    assert [graph.name for graph in made.graphs] == ["rich"]
    assert made.left_out == ("poor: 1 good measurements, expected at least 2",)
    only = tmp_path / "poor"
    without_good_configs(only, several(2))
    with pytest.raises(BadRequest, match="nothing to pack: net0: 1 good measurements"):
        packed(only, two)


def test_the_fuller_of_two_seeds_is_taken(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    for seed, configs in enumerate((3, 8, 5)):
        collected(folder, wanted(configs=configs, seed=seed))
    made, _ = packed(folder, tmp_path)
    assert made.left_out == ("net: measured twice, with different seeds or texts; one is in",) * 2
    [fullest] = [history for history in read_runs(folder).values() if history.study.seed == 1]
    [graph] = load(NAME, root=tmp_path)
    assert len(graph.config_runtime) == len(good(fullest))


def test_a_collection_that_is_there_is_not_overwritten(runs: Path, tmp_path: Path) -> None:
    _, into = packed(runs, tmp_path)
    with pytest.raises(BadRequest, match="there is a collection already; pack into another folder, or remove it first"):
        pack_runs(runs, into)


def test_packing_that_was_interrupted_can_be_run_again(runs: Path, tmp_path: Path) -> None:
    def stop(program: str) -> None:
        if program == "other":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        packed(runs, tmp_path, progress=stop)
    _, into = packed(runs, tmp_path)
    assert verify_root(into)[0].problems == ()


def test_two_at_once_are_told_off(runs: Path, tmp_path: Path) -> None:
    into = collection_folder(tmp_path, NAME)
    with files.sole_writer(into), pytest.raises(BadRequest, match="another process is writing into this folder"):
        pack_runs(runs, into)


def test_where_nothing_was_measured(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="no journal there"):
        pack_runs(tmp_path / "nowhere", tmp_path / "into")
    (tmp_path / "empty" / "journal").mkdir(parents=True)
    with pytest.raises(BadRequest, match="its journal holds no measurement yet"):
        pack_runs(tmp_path / "empty", tmp_path / "into")


def test_a_module_that_is_gone_or_another_is_told(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    collected(folder, wanted(configs=4))
    path = folder / STUDIES / only_history(folder).study.id / MODULE
    path.unlink()
    with pytest.raises(BadFile, match="module: expected a file, found nothing; take the folder from a copy"):
        packed(folder, tmp_path)
    path.write_bytes(small_captured()[1][:100])
    with pytest.raises(BadFile):
        packed(folder, tmp_path)

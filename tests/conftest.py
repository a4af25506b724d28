"""Shared data: a small synthetic tree and its packs, and the release's real files where they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tpugraphs.data import import_official
from tpugraphs.data.synthetic import write_synthetic

settings.register_profile(
    "repository", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("repository")

_RELEASE = Path(os.environ.get("TPUGRAPHS_RELEASE", Path(__file__).parents[2] / "shared/data/tpugraphs"))


@pytest.fixture(scope="session")
def release() -> Path:
    """Real files of the TpuGraphs release."""
    if not _RELEASE.is_dir():
        pytest.skip(f"no real TpuGraphs files at {_RELEASE}; set TPUGRAPHS_RELEASE to a folder that holds npz/")
    return _RELEASE


@pytest.fixture(scope="session")
def official(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A synthetic tree of official files."""
    folder = tmp_path_factory.mktemp("official")
    write_synthetic(folder, graphs=4, configs=120)
    return folder


@pytest.fixture(scope="session")
def root(official: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packs of the synthetic tree; tests that change packs make their own."""
    folder = tmp_path_factory.mktemp("packs")
    import_official(official, folder)
    return folder


@pytest.fixture(scope="session")
def release_root(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packs of the real files."""
    folder = tmp_path_factory.mktemp("release")
    import_official(release, folder)
    return folder

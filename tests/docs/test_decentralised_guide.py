"""The code, the commands and the numbers of the guide to training without a server."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from test_code_blocks import ROOT, blocks, run_python

from fedcm.core.topology import TOPOLOGIES, compute_mixing_matrix

GUIDE = "docs/guides/decentralised.md"


def read_guide() -> tuple[str, str, str]:
    """Return the experiment, the addition for comparisons, and the graph of the guide."""
    experiment, addition = blocks(GUIDE, "toml")
    (graph,) = blocks(GUIDE, "text")
    return experiment, addition, graph


@pytest.mark.slow
def test_guide_runs_as_written(tmp_path: Path) -> None:
    experiment, _, graph = read_guide()
    (tmp_path / "gossip.toml").write_text(experiment)
    (tmp_path / "graph.txt").write_text(graph)
    text = (ROOT / GUIDE).read_text()
    runs = [shlex.split(line) for line in re.findall(r"^    fedcm (run .*)$", text, re.M)]
    assert len(runs) == 2
    for words in runs:
        run_python(tmp_path, "-m", "fedcm", *words, "--workers", "1")
    for name, neighbours in (("gossip-qg-dsgdm-seed1", 16 * 2), ("triangle", 3 * 2)):
        last = json.loads((tmp_path / "runs" / name / "metrics.jsonl").read_text().splitlines()[-1])
        assert last["bytes_down"] == 0
        assert last["bytes_up"] == neighbours * 4 * 2410
        assert last["consensus_distance"] > 0
        assert last["test_accuracy"] > 0.75


@pytest.mark.slow
def test_guide_compares_with_a_server(tmp_path: Path) -> None:
    experiment, addition, _ = read_guide()
    (tmp_path / "FILE").write_text(re.sub(r"\[topology\]\nkind = .*\n", "", experiment) + addition)
    (words,) = re.findall(r"^    fedcm (compare .*)$", (ROOT / GUIDE).read_text(), re.M)
    plan = json.loads(run_python(tmp_path, "-m", "fedcm", *words.split(), "--dry-run", "--json"))
    assert len(plan["runs"]) == 3


def test_spectral_gaps_are_those_of_the_graphs() -> None:
    table = (ROOT / GUIDE).read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| ([\d.]+) \|", table, re.M)
    assert [kind for kind, _, _ in rows] == ["ring", "torus", "exponential", "complete"]
    for kind, neighbours, gap in rows:
        weights = compute_mixing_matrix(TOPOLOGIES[kind](), 16, seed=1)
        assert (weights > 0).sum(1).max() - 1 == int(neighbours)
        assert 1 - np.sort(np.abs(np.linalg.eigvalsh(weights)))[-2] == pytest.approx(float(gap), abs=5e-4)

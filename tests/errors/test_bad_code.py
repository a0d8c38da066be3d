"""User code of the wrong kind is rejected in one sentence with code 2."""

from collections.abc import Callable
from pathlib import Path

import pytest
from cli_errors import ALGORITHM, Fedcm, Write, assert_rejected, make_params


@pytest.mark.parametrize("place", ["data", "model", "algorithm"])
@pytest.mark.parametrize(
    ("code", "path", "message"),
    make_params(
        ("no module", "", "no_such_module:thing", "there is no module 'no_such_module' in"),
        ("no attribute", "def factory(): ...", "{}:facory", "has no 'facory'; did you mean 'factory'?"),
        ("an exception inside", "1 / 0", "{}:thing", "cannot be imported: ZeroDivisionError: division by zero"),
        ("a syntax error", "def (", "{}:thing", "cannot be imported: SyntaxError"),
        ("an import that fails", "import no_such_other", "{}:thing", "No module named 'no_such_other'"),
        ("it exits", "raise SystemExit(0)", "{}:thing", "cannot be imported: SystemExit"),
        ("a long message", "raise RuntimeError('one\\ntwo\\nthree')", "{}:thing", "cannot be imported"),
        ("not callable", "thing = 3", "{}:thing", "must be a f"),
        ("not a name", "", "{}:3 things", "must be written as package.module:name"),
        ("two colons", "", "{}:a:b", "must be written as package.module:name"),
    ),
)
def test_an_invalid_import_path_is_rejected(
    run: Fedcm, experiment: Write, module: Callable[[str], str], place: str, code: str, path: str, message: str
) -> None:
    key = "source" if place == "data" else "name"
    assert_rejected(run(experiment(**{place: {key: path.format(module(code))}})), message)


@pytest.mark.parametrize(
    ("code", "message"),
    make_params(
        ("fails", "def f(): raise KeyError('x')", "must return data, got KeyError"),
        ("takes arguments", "def f(path): ...", "must return data, got TypeError"),
        ("returns nothing", "def f(): return None", "must return a fedcm Dataset, (train, test), a list of clients"),
        ("returns an empty list", "def f(): return []", "there must be at least one client, got an empty list"),
        ("exits", "def f(): raise SystemExit(0)", "must return data"),
        (
            "a long message",
            "def f(): raise RuntimeError('one\\ntwo\\nthree')",
            "must return data, got RuntimeError: one",
        ),
        (
            "fails in an example",
            """
            class Bad(torch.utils.data.Dataset):
                def __len__(self): return 3
                def __getitem__(self, index): raise OSError('a picture is missing')
            def f(): return Bad()
            """,
            "a picture is missing",
        ),
        (
            "returns a Dataset with an empty client",
            """
            import numpy as np
            from fedcm.data import Dataset, Examples
            def f():
                train = Examples(torch.zeros(4, 6), torch.tensor([0, 1, 2, 3]))
                return Dataset("mine", train, None, 4, owners=np.array([0, 0, 2, 2]))
            """,
            "client 1",
        ),
        (
            "returns a Dataset of two lengths",
            """
            from fedcm.data import Dataset, Examples
            def f(): return Dataset("mine", Examples(torch.zeros(50, 6), torch.zeros(30).long()), None, 4)
            """,
            "must have the same length",
        ),
    ),
)
def test_a_function_that_returns_no_data_is_rejected(
    run: Fedcm, experiment: Write, module: Callable[[str], str], code: str, message: str
) -> None:
    split = {"kind": "natural"} if "owners" in code else {"kind": "iid", "clients": 2}
    assert_rejected(run(experiment(data={"source": f"{module(code)}:f"}, split=split)), message)


@pytest.mark.parametrize(
    ("code", "message"),
    make_params(
        ("returns no module", "def f(): return 3", "must return an nn.Module, got int"),
        ("fails", "def f(): raise KeyError('x')", "could not be built: KeyError: 'x'"),
        ("a long message", "def f(): raise KeyError('x') if 0 else RuntimeError('one\\ntwo')", "could not be built"),
        ("takes other arguments", "def f(width): ...", "could not be built: TypeError"),
        ("exits", "def f(): raise SystemExit(0)", "could not be built"),
        ("batch norm", "def f(): return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))", "use nn.GroupNorm instead"),
        ("no parameters", "def f(): return nn.Flatten()", "must have parameters to train, but has none"),
        ("lazy", "def f(): return nn.LazyLinear(4)", "pass one batch through the model first"),
        ("too few outputs", "def f(): return nn.Linear(6, 2)", "must give 4 outputs, one per class, and gives 2"),
        ("too many inputs", "def f(): return nn.Linear(7, 4)", "must take examples of (6,)"),
        (
            "a tuple",
            """
            class Two(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layer = nn.Linear(6, 4)
                def forward(self, x): return self.layer(x), x
            f = Two
            """,
            "must give 4 outputs per example, and gave a tuple for 2 examples",
        ),
        (
            "without a gradient",
            """
            class Still(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layer = nn.Linear(6, 4)
                def forward(self, x): return self.layer(x).detach()
            f = Still
            """,
            "gradient",
        ),
    ),
)
def test_a_model_that_cannot_be_trained_is_rejected(
    run: Fedcm, experiment: Write, tmp_path: Path, module: Callable[[str], str], code: str, message: str
) -> None:
    assert_rejected(run(experiment(model={"name": f"{module(code)}:f"})), message)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.parametrize(
    ("code", "message"),
    make_params(
        ("not an algorithm", "class A: ...", "must be a frozen dataclass that derives from fedcm.Algorithm"),
        ("no dataclass", "class A(Algorithm[ServerState, Broadcast, Nothing, Report]): ...", "must be a frozen"),
        (
            "functions missing",
            "@dataclass(frozen=True)\nclass A(Algorithm[ServerState, Broadcast, Nothing, Report]): ...",
            "abstract",
        ),
        ("no messages named", "@dataclass(frozen=True)\nclass A(Algorithm): ...", "with four NamedTuples"),
        (
            "a setting of an unsupported type",
            "@dataclass(frozen=True)\nclass A(Algorithm[ServerState, Broadcast, Nothing, Report]):\n    x: nn.Module",
            "x must be given",
        ),
        (
            "an unknown annotation",
            "@dataclass(frozen=True)\nclass A(Algorithm[ServerState, Broadcast, Nothing, Report]):\n    x: 'Foo' = 1",
            "Foo",
        ),
    ),
)
def test_an_invalid_algorithm_class_is_rejected(
    fedcm: Fedcm, run: Fedcm, experiment: Write, module: Callable[[str], str], command: str, code: str, message: str
) -> None:
    name = f"{module(ALGORITHM + code)}:A"
    answer = fedcm("check", name) if command == "check" else run(experiment(algorithm={"name": name}))
    assert_rejected(answer, message)


def test_checking_a_missing_algorithm_is_rejected(fedcm: Fedcm) -> None:
    assert_rejected(fedcm("check", "fedavgn"), "there is no algorithm 'fedavgn'; did you mean 'fedavg")
    assert_rejected(fedcm("check", "fedcm", "--set", "alpha"), "a setting to change must be path=value")
    assert_rejected(fedcm("check", "fedcm", "--set", "alpha=2"), "alpha must be above 0 and at most 1, got 2")


def test_a_model_that_changes_its_buffers_is_rejected(
    run: Fedcm, experiment: Write, module: Callable[[str], str]
) -> None:
    name = module("def f(): return nn.utils.parametrizations.spectral_norm(nn.Linear(6, 4))")
    assert_rejected(run(experiment(model={"name": f"{name}:f"})), "_u")

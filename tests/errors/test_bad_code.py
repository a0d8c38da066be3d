"""A user's own code that does not do what it is for is refused in one sentence with code 2."""

from collections.abc import Callable
from pathlib import Path

import pytest
from answers import ALGORITHM, Fedcm, Write, cases, refused


@pytest.mark.parametrize("place", ["data", "model", "algorithm"])
@pytest.mark.parametrize(
    ("code", "path", "said"),
    cases(
        ("no module", "", "no_such_module:thing", "there is no module 'no_such_module' in"),
        ("no attribute", "def factory(): ...", "{}:facory", "has no 'facory'; did you mean 'factory'?"),
        ("an exception inside", "1 / 0", "{}:thing", "cannot be imported: ZeroDivisionError: division by zero"),
        ("a syntax error", "def (", "{}:thing", "cannot be imported: SyntaxError"),
        ("an import that fails", "import no_such_other", "{}:thing", "No module named 'no_such_other'"),
        ("it leaves", "raise SystemExit(0)", "{}:thing", "cannot be imported: SystemExit"),
        ("a long complaint", "raise RuntimeError('one\\ntwo\\nthree')", "{}:thing", "cannot be imported"),
        ("not callable", "thing = 3", "{}:thing", "must be a f"),
        ("not a name", "", "{}:3 things", "must be written as package.module:name"),
        ("two colons", "", "{}:a:b", "must be written as package.module:name"),
    ),
)
def test_an_import_path_that_leads_nowhere_is_refused(
    run: Fedcm, experiment: Write, module: Callable[[str], str], place: str, code: str, path: str, said: str
) -> None:
    key = "source" if place == "data" else "name"
    refused(run(experiment(**{place: {key: path.format(module(code))}})), said)


@pytest.mark.parametrize(
    ("code", "said"),
    cases(
        ("fails", "def f(): raise KeyError('x')", "must give data, got KeyError"),
        ("asks for arguments", "def f(path): ...", "must give data, got TypeError"),
        ("gives nothing", "def f(): return None", "must give a fedcm Dataset, (train, test), a list of clients"),
        ("gives an empty list", "def f(): return []", "there must be at least one client, got an empty list"),
        ("leaves", "def f(): raise SystemExit(0)", "must give data"),
        (
            "complains at length",
            "def f(): raise RuntimeError('one\\ntwo\\nthree')",
            "must give data, got RuntimeError: one",
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
            "gives a Dataset with a client that holds nothing",
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
            "gives a Dataset of two lengths",
            """
            from fedcm.data import Dataset, Examples
            def f(): return Dataset("mine", Examples(torch.zeros(50, 6), torch.zeros(30).long()), None, 4)
            """,
            "must have the same length",
        ),
    ),
)
def test_a_function_that_gives_no_data_is_refused(
    run: Fedcm, experiment: Write, module: Callable[[str], str], code: str, said: str
) -> None:
    split = {"kind": "natural"} if "owners" in code else {"kind": "iid", "clients": 2}
    refused(run(experiment(data={"source": f"{module(code)}:f"}, split=split)), said)


@pytest.mark.parametrize(
    ("code", "said"),
    cases(
        ("gives no module", "def f(): return 3", "must return an nn.Module, got int"),
        ("fails", "def f(): raise KeyError('x')", "could not be made: KeyError: 'x'"),
        ("fails at length", "def f(): raise KeyError('x') if 0 else RuntimeError('one\\ntwo')", "could not be made"),
        ("asks for more", "def f(width): ...", "could not be made: TypeError"),
        ("leaves", "def f(): raise SystemExit(0)", "could not be made"),
        ("batch norm", "def f(): return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))", "use nn.GroupNorm instead"),
        ("no parameters", "def f(): return nn.Flatten()", "must have parameters to train, and has none"),
        ("lazy", "def f(): return nn.LazyLinear(4)", "pass one batch through it first"),
        ("too few outputs", "def f(): return nn.Linear(6, 2)", "must give 4 outputs, one a class, and gives 2"),
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
def test_a_model_that_cannot_be_trained_is_refused(
    run: Fedcm, experiment: Write, tmp_path: Path, module: Callable[[str], str], code: str, said: str
) -> None:
    refused(run(experiment(model={"name": f"{module(code)}:f"})), said)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("command", ["run", "check"])
@pytest.mark.parametrize(
    ("code", "said"),
    cases(
        ("not an algorithm", "class A: ...", "must be a frozen dataclass that derives from fedcm.Algorithm"),
        ("no dataclass", "class A(Algorithm[ServerState, Broadcast, Nothing, Report]): ...", "must be a frozen"),
        (
            "functions missing",
            "@dataclass(frozen=True)\nclass A(Algorithm[ServerState, Broadcast, Nothing, Report]): ...",
            "abstract",
        ),
        ("no messages named", "@dataclass(frozen=True)\nclass A(Algorithm): ...", "with four NamedTuples"),
        (
            "settings that nobody can give",
            "@dataclass(frozen=True)\nclass A(Algorithm[ServerState, Broadcast, Nothing, Report]):\n    x: nn.Module",
            "x must be given",
        ),
        (
            "annotations that mean nothing",
            "@dataclass(frozen=True)\nclass A(Algorithm[ServerState, Broadcast, Nothing, Report]):\n    x: 'Foo' = 1",
            "Foo",
        ),
    ),
)
def test_an_algorithm_that_is_none_is_refused(
    fedcm: Fedcm, run: Fedcm, experiment: Write, module: Callable[[str], str], command: str, code: str, said: str
) -> None:
    name = f"{module(ALGORITHM + code)}:A"
    answer = fedcm("check", name) if command == "check" else run(experiment(algorithm={"name": name}))
    refused(answer, said)


def test_a_check_of_what_does_not_exist_is_refused(fedcm: Fedcm) -> None:
    refused(fedcm("check", "fedavgm"), "there is no algorithm 'fedavgm'; did you mean 'fedavg'?")
    refused(fedcm("check", "fedcm", "--set", "alpha"), "--set takes path=value")
    refused(fedcm("check", "fedcm", "--set", "alpha=2"), "alpha must be above 0 and at most 1, got 2")


def test_a_model_that_changes_its_buffers_is_refused(
    run: Fedcm, experiment: Write, module: Callable[[str], str]
) -> None:
    name = module("def f(): return nn.utils.parametrizations.spectral_norm(nn.Linear(6, 4))")
    refused(run(experiment(model={"name": f"{name}:f"})), "_u")

"""An error in a user's own code is told in one sentence, with its file and line and what was being done."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import torch
from answers import ALGORITHM, Fedcm, Write, cases
from test_workers import command
from torch import nn

import fedcm as api
from fedcm import cli
from fedcm.faults import describe, place_of
from fedcm.refusal import Refused

# in each, the line that fails is marked, and it fails inside the standard library, torch or an installed package
MODULE = """
import json
import torch
import numpy as np
from torch import nn
from torch.utils.data import Dataset
import fedcm

def fail():
    json.loads("{")  # here

class Model(nn.Linear):
    def __init__(self): super().__init__(6, 4)
    def forward(self, x):
        return super().forward(x[:, :5])  # in the model

class Later(nn.Linear):
    def __init__(self, after):
        super().__init__(6, 4)
        self.calls, self.after = 0, after
    def forward(self, x):
        self.calls += 1
        if self.calls > self.after: fail()
        return super().forward(x)

class InEvaluation(nn.Linear):
    def __init__(self): super().__init__(6, 4)
    def forward(self, x):
        if not self.training: fail()
        return super().forward(x)

class Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, g): fail()

class WithBackward(nn.Linear):
    def __init__(self): super().__init__(6, 4)
    def forward(self, x): return Backward.apply(super().forward(x))

def factory(): fail()

def data(): fail()

class Items(Dataset):
    def __len__(self): return 20
    def __getitem__(self, index):
        return np.ones(6) if index == 7 and fail() else (np.ones(6, np.float32), index % 4)

def items(): return Items()

def made(number):
    if number == 11: fail()
    return np.full((3, 6), number, np.float32), np.arange(3) % 4

def on_demand(): return fedcm.ClientsOnDemand(population=13, client=made, size=3, classes=4)

def last_fails(): return fedcm.ClientsOnDemand(population=12, client=made, size=3, classes=4)

def first(number): fail()

def first_fails(): return fedcm.ClientsOnDemand(population=12, client=first, size=3, classes=4)
"""
OWN_ALGORITHM = """
@dataclass(frozen=True)
class Own(Algorithm[ServerState, Broadcast, Nothing, Report]):
    where: str = "nowhere"
    def __post_init__(self): self.maybe("post_init", 7)
    def maybe(self, where, params):
        if where == self.where and (isinstance(params, int) or params.shape[-1] > 7): fail()
    def init_server(self, params):
        self.maybe("init_server", params)
        return ServerState(params)
    def init_client(self, params): return Nothing()
    def broadcast(self, server): return Broadcast(server.params)
    def direction(self, gradient, params, sent, kept):
        self.maybe("direction", params)
        return gradient(params)
    def report(self, run, sent, kept): return Report(run.moved), kept
    def update(self, server, mean, round):
        self.maybe("update", server.params)
        return ServerState(server.params - mean.moved)
"""
AT = re.compile(r"JSONDecodeError: Expecting property name enclosed in double quotes: .*?\((.*), line (\d+)\)")


def line_of(file: Path, mark: str) -> int:
    return next(number for number, line in enumerate(file.read_text().splitlines(), 1) if mark in line)


@pytest.fixture
def own(module: Callable[[str], str]) -> str:
    return module(MODULE + ALGORITHM + OWN_ALGORITHM)


def told(err: str, name: str, tmp_path: Path, mark: str = "# here") -> str:
    """The last line of stderr: one sentence that names the marked line of the user's file."""
    file = tmp_path / f"{name}.py"
    sentence = err.splitlines()[-1]
    assert sentence.startswith("fedcm: ")
    assert "Traceback" not in err
    assert f"({file}, line {line_of(file, mark)})" in sentence
    return sentence


@pytest.mark.parametrize(
    ("changes", "said"),
    cases(
        ("the model's factory", {"model": {"name": "{}:factory"}}, "the model '{}:factory' could not be made: JSON"),
        ("the data function", {"data": {"source": "{}:data"}}, "{}:data() must give data, got JSONDecodeError"),
        ("an item", {"data": {"source": "{}:items"}}, "{}:items: item 7 could not be read: JSONDecodeError"),
        (
            "the first client",
            {"data": {"source": "{}:first_fails"}, "split": {"kind": "natural"}},
            "client 0 could not be made: JSONDecodeError",
        ),
        (
            "the last client",
            {"data": {"source": "{}:last_fails"}, "split": {"kind": "natural"}},
            "client 11 could not be made: JSONDecodeError",
        ),
        (
            "the backward pass",
            {"model": {"name": "{}:WithBackward"}},
            "and the backward pass failed on 2 examples: JSONDecodeError",
        ),
        ("the algorithm's settings", {"algorithm": {"name": "{}:Own", "where": "post_init"}}, "algorithm '{}:Own'"),
        ("its start", {"algorithm": {"name": "{}:Own", "where": "init_server"}}, "the algorithm Own failed on the"),
    ),
)
def test_what_fails_before_the_first_round_is_refused_with_its_place(
    run: Fedcm, experiment: Write, own: str, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    named = {key: {k: str(v).format(own) for k, v in table.items()} for key, table in changes.items()}
    answer = run(experiment(**named))
    assert answer.code == 2, answer.err
    assert said.format(own) in told(answer.err, own, tmp_path)
    assert not (tmp_path / "runs").exists()


def test_a_model_that_cannot_take_the_data_is_refused_with_its_place(
    run: Fedcm, experiment: Write, own: str, tmp_path: Path
) -> None:
    answer = run(experiment(model={"name": f"{own}:Model"}))
    assert answer.code == 2
    sentence = told(answer.err, own, tmp_path, "# in the model")
    assert "the model Model must take examples of (6,) float32, and failed on 2 examples: RuntimeError" in sentence


def test_a_module_that_cannot_be_imported_is_told_with_its_own_line(
    run: Fedcm, experiment: Write, module: Callable[[str], str], tmp_path: Path
) -> None:
    name = module("import json\nx = json.loads('{')  # here\n")
    answer = run(experiment(model={"name": f"{name}:x"}))
    assert answer.code == 2
    assert "cannot be imported: JSONDecodeError" in told(answer.err, name, tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    cases(
        ("the model", {"model": {"name": "{}:Later", "after": 30}}, r"client \d+ failed in round \d+, in the model: J"),
        ("evaluation", {"model": {"name": "{}:InEvaluation"}}, r"the evaluation failed, in the model: JSON"),
        (
            "a client made on demand",
            {"data": {"source": "{}:on_demand"}, "split": {"kind": "natural"}},
            r"client 11 failed in round \d+: JSON",
        ),
        ("a step", {"algorithm": {"name": "{}:Own", "where": "direction"}}, r"client \d+ failed in round 0: JSON"),
        ("the server's step", {"algorithm": {"name": "{}:Own", "where": "update"}}, r"round 0 failed: JSON"),
    ),
)
def test_what_fails_in_a_round_is_told_with_its_place_and_how_to_go_on(
    run: Fedcm, experiment: Write, own: str, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    named = {
        key: {k: v.format(own) if isinstance(v, str) else v for k, v in table.items()} for key, table in changes.items()
    }
    answer = run(experiment(participation={"kind": "everyone"}, **named), "--name", "one")
    assert answer.code == 1, answer.err
    sentence = told(answer.err, own, tmp_path)
    assert re.search(f"^fedcm: {said}", sentence), sentence
    assert "; what was saved before is whole: go on with `fedcm resume" in sentence


def test_debug_shows_the_traceback_above_the_sentence(
    fedcm: Fedcm, run: Fedcm, experiment: Write, own: str, tmp_path: Path
) -> None:
    path = experiment(model={"name": f"{own}:factory"})
    for words in (["--debug", "run", path], ["run", path, "--debug"]):
        answer = fedcm(*words)
        assert answer.code == 2
        assert answer.err.startswith("Traceback (most recent call last)")
        assert "in fail" in answer.err
        assert answer.err.splitlines()[-1].startswith("fedcm: the model")
    assert "Traceback" not in run(path).err, "it holds for its own command alone"
    path = experiment(model={"name": f"{own}:Later", "after": 30})
    answer = run(path, "--debug")
    assert answer.code == 1
    assert "Traceback (most recent call last)" in answer.err
    assert "in fail" in answer.err
    assert answer.err.splitlines()[-1].startswith("fedcm: client")


def test_a_run_of_a_comparison_that_fails_is_told_with_its_place(
    fedcm: Fedcm, experiment: Write, own: str, tmp_path: Path
) -> None:
    path = experiment(model={"name": f"{own}:Later", "after": 30})
    answer = fedcm("--debug", "compare", path, "--algorithms", "fedavg", "--runs-dir", "runs")
    assert answer.code == 2
    assert "in fail" in answer.err, "the traceback of the run's own process"
    sentence = told(answer.err.replace("Traceback", ""), own, tmp_path)
    assert re.search(r"1 of 1 runs failed, first small-fedavg-seed3: client \d+ failed in round", sentence)


def test_every_command_has_the_option_and_its_help_says_so() -> None:
    waiting = [("fedcm", cli.command_line())]
    seen = 0
    while waiting:
        name, each = waiting.pop()
        assert "--debug" in [word for param in each.params for word in param.opts], name
        waiting += [(f"{name} {inner}", made) for inner, made in getattr(each, "commands", {}).items()]
        seen += 1
    assert seen > 25


def test_the_help_of_a_command_names_the_option(fedcm: Fedcm) -> None:
    for words in (["--help"], ["run", "--help"], ["federation", "check", "--help"]):
        assert "--debug" in fedcm(*words).out


def test_a_workers_failure_is_told_in_the_same_way_and_debug_brings_its_traceback(
    experiment: Write, tmp_path: Path, module: Callable[[str], str]
) -> None:
    """In a step on a worker alone."""
    code = MODULE + dedent("""
    import os
    class OnWorker(nn.Linear):
        def __init__(self): super().__init__(6, 4)
        def forward(self, x):
            if "FEDCM_RANK" in os.environ and torch.is_grad_enabled() and len(x) > 2: fail()
            return super().forward(x)
    """)
    name = module(code)
    path = experiment(model={"name": f"{name}:OnWorker"}, participation={"kind": "everyone"})
    words = command("run", path, "--runs-dir", "runs", "--workers", 2, "--debug")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("Traceback (most recent call last)") >= 1
    assert "in fail" in done.stderr
    sentence = told(done.stderr.replace("Traceback", ""), name, tmp_path)
    assert re.search(r"^fedcm: client \d+ failed in round 0 on worker 1, in the model: JSON", sentence), sentence


def test_a_workers_failure_in_evaluation_is_told_too(
    experiment: Write, tmp_path: Path, module: Callable[[str], str]
) -> None:
    code = MODULE + dedent("""
    import os
    class OnWorker(nn.Linear):
        def __init__(self): super().__init__(6, 4)
        def forward(self, x):
            if "FEDCM_RANK" in os.environ and not self.training: fail()
            return super().forward(x)

    def many():
        x = np.ones((700, 6), np.float32)
        return (x[:24], np.arange(24) % 4), (x, np.arange(700) % 4)
    """)
    name = module(code)
    path = experiment(model={"name": f"{name}:OnWorker"}, data={"source": f"{name}:many"}, evaluation={"every": 1})
    words = command("run", path, "--runs-dir", "runs", "--workers", 2)
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    sentence = told(done.stderr, name, tmp_path)
    assert "the evaluation failed on worker 1, in the model: JSONDecodeError" in sentence


def test_an_algorithm_that_fails_in_a_worker_alone_is_told_too(
    experiment: Write, tmp_path: Path, module: Callable[[str], str]
) -> None:
    changed = OWN_ALGORITHM.replace(
        "if where == self.where and", 'if "FEDCM_RANK" in os.environ and where == "update" and'
    )
    name = module(f"import os\n{MODULE}{ALGORITHM}{changed}")
    path = experiment(algorithm={"name": f"{name}:Own"})
    words = command("run", path, "--runs-dir", "runs", "--workers", 2)
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "round 0 failed: JSONDecodeError" in told(done.stderr, name, tmp_path)


CLIENTS = [(torch.randn(6, 3, generator=torch.Generator().manual_seed(k)), torch.arange(6) % 2) for k in range(4)]


def bad_loss(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return outputs.sum() / len(labels[100])  # in the loss


def line_here(mark: str) -> str:
    return rf"test_own_code.py, line {line_of(Path(__file__), mark)}\)"


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (bad_loss, r"^the loss bad_loss failed on 2 examples .*IndexError.*{place}"),
        (
            lambda outputs, labels: outputs,
            r"^the loss .*<lambda> must give one number, .* got a tensor of shape \(2, 2",
        ),
        (
            lambda outputs, labels: 3.0,
            r"^the loss .*<lambda> must give one number, a tensor of one element, got a float",
        ),
        (
            lambda outputs, labels: outputs.detach().sum(),
            "^the loss must have a gradient with respect to the parameters of the model Linear, and the backward pass",
        ),
    ],
)
def test_a_loss_that_fails_is_told_as_the_loss(loss: Any, said: str) -> None:
    with pytest.raises(Refused, match=said.replace("{place}", line_here("# in the " + "loss"))):
        api.train(nn.Linear(3, 2), CLIENTS, api.FedAvg(), rounds=1, loss=loss)


class Participation:
    def __init__(self, given: Any) -> None:
        self.given = given

    def cohort(self, population: int, seed: int, round: int) -> Any:
        if self.given is None:
            return np.arange(population)[[population]]  # in the cohort
        return self.given


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "the participation Participation failed to draw the clients of round 0: IndexError.*{place}"),
        ([0, 1], "must give an array of client numbers from 0 to 3, sorted, each once, got"),
        (np.array([0.5]), "must give an array of client numbers"),
        (np.array([2, 1]), "must give an array of client numbers"),
        (np.array([2, 1], np.uint8), "must give an array of client numbers"),
        (np.array([1, 4]), "must give an array of client numbers"),
        (np.array([-1, 1]), "must give an array of client numbers"),
        (np.array([1, 1]), "must give an array of client numbers"),
    ],
)
def test_a_participation_that_draws_no_cohort_is_refused(given: Any, said: str) -> None:
    with pytest.raises(Refused, match=said.replace("{place}", line_here("# in the " + "cohort"))):
        api.train(nn.Linear(3, 2), CLIENTS, api.FedAvg(), rounds=1, participation=Participation(given))


def test_a_participation_of_ones_own_is_taken() -> None:
    _, history = api.train(
        nn.Linear(3, 2), CLIENTS, api.FedAvg(), rounds=2, participation=Participation(np.array([1, 3]))
    )
    assert [line["clients"] for line in history] == [[1, 3], [1, 3]]


def test_an_error_in_python_says_what_was_being_done() -> None:
    class Tired(nn.Linear):
        calls = 0

        def forward(self, input: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            if self.calls > 10:
                raise LookupError("tired")
            return super().forward(input)

    with pytest.raises(LookupError, match="tired") as failure:
        api.train(Tired(3, 2), CLIENTS, api.FedAvg(), rounds=9)
    notes = failure.value.__notes__
    assert notes[0] == "in the model"
    assert re.fullmatch(r"client \d failed in round \d", notes[1])


def test_an_error_of_fedcm_itself_has_no_place_of_the_users(fedcm: Fedcm, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        int("no number")

    exec(compile("def broken(): int('no number')", cli.__file__, "exec"), space := {})
    monkeypatch.setattr("fedcm.report.tables.models_table", space["broken"])
    answer = fedcm("models")
    assert answer.code == 1
    assert answer.err.startswith("fedcm: an error inside fedcm: ValueError: invalid literal")
    assert "--debug" in answer.err
    with pytest.raises(ValueError, match="invalid literal") as caught:
        broken()
    assert place_of(caught.value) == (__file__, line_of(Path(__file__), 'int("no number' + '")'))
    assert "test_own_code.py, line " in describe(caught.value)

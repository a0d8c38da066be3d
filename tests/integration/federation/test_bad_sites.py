"""A site with bad answers is treated like one without: the run finishes without it, and a line names it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import pytest
from fleet import Fleet, bits, experiment_file, lines

from fedcm.config.experiment import load_experiment_file
from fedcm.federation.provision.deal import deal

pytestmark = pytest.mark.federation

BAD = "c"

# runs first in every process of the bad site; `-m` would run an unpatched copy of the module, so main is called here
SPOILED = """
import json, os, sys, time
from pathlib import Path

def kind(round):
    kinds = json.loads(Path(__file__).with_name("kinds.json").read_text())
    return kinds[min(round, len(kinds) - 1)]

def spoil_training():
    import numpy as np
    from fedcm.federation.site import trainer
    good = trainer.SiteTrainer.train

    def train(self, **request):
        fields, arrays = good(self, **request)
        name = next(iter(arrays))
        match kind(request["round"]):
            case "nan": arrays[name][0] = np.nan
            case "infinite": arrays[name][-1] = -np.inf
            case "shape": arrays[name] = arrays[name][:-1]
            case "folded": arrays[name] = arrays[name].reshape(1, -1)
            case "dtype": arrays[name] = arrays[name].astype(np.float64)
            case "fields": arrays["extra"] = arrays[name]
            case "huge": arrays[name] = arrays[name] + np.float32(3e30)
            case "large": arrays[name] = arrays[name] + np.float32(1e5)
            case "round": fields["round"] += 1
            case "round before": fields["round"] -= 1
            case "run": fields["run"] = "f" * 32
            case "steps": fields["steps"] = -1
            case "loss": fields["loss"] = float("nan")
            case "junk arrays": arrays = {name: np.random.default_rng(0).random(100_000_000 // 8)}
            case "junk fields": fields, arrays = {"junk": "x" * 100_000_000}, {}
            case "empty": fields, arrays = {}, {}
            case "raise": raise RuntimeError("the site's own fault")
            case "exit": os._exit(3)
            case "hang": time.sleep(3600)
        return fields, arrays

    trainer.SiteTrainer.train = train
    trainer.main(Path(sys.orig_argv[-3]), int(sys.orig_argv[-2]), int(sys.orig_argv[-1]))
    sys.exit()

def spoil_engine():
    from fedcm.federation.site.executor import SiteExecutor
    from nvflare.apis.dxo import from_shareable
    from nvflare.apis.fl_constant import ReturnCode
    from nvflare.apis.shareable import Shareable, make_reply
    good = SiteExecutor.execute

    def execute(self, task_name, asked, *rest):
        if task_name == "train":
            match kind(from_shareable(asked).meta["round"]):
                case "no message": return Shareable()
                case "failure": return make_reply(ReturnCode.EXECUTION_EXCEPTION)
                case "engine raises": raise RuntimeError("of the engine's own process")
                case "nothing": return None
                case "many arrays":
                    import numpy as np
                    from nvflare.apis.dxo import DXO, DataKind
                    arrays = {str(number): np.zeros(1, np.float32) for number in range(5000)}
                    return DXO(DataKind.WEIGHT_DIFF, data=arrays, meta={}).to_shareable()
                case "crash": os._exit(1)
        return good(self, task_name, asked, *rest)

    SiteExecutor.execute = execute

if "fedcm.federation.site.trainer" in sys.orig_argv:
    spoil_training()
elif any("client.worker_process" in word for word in sys.orig_argv):
    spoil_engine()
"""

KINDS = {  # one round each, and what the log says
    "exit": "the training process exited with code 3",  # first: a site that missed its last round has 5 seconds
    "nan": "is not finite",
    "infinite": "is not finite",
    "shape": "must be float32",
    "folded": "must be float32",
    "dtype": "float64",
    "fields": "extra",
    "huge": "above the largest that can be averaged",
    "round": "it answers round 9",
    "round before": "it answers round 8",
    "run": "ffffffff",
    "steps": "local steps is -1",
    "loss": "its loss is nan",
    "empty": "it answers round None",
    "raise": "RuntimeError: the site's own fault",
    "no message": "its answer cannot be read",
    "failure": "EXECUTION_EXCEPTION",
    "nothing": "",
}


def experiment_over(path: Path, rounds: int, **links: Any) -> Path:
    """The wait begins when both good sites have answered, so neither of them is ever left out."""
    links = {"classes": 10, "quorum": 0.6, "wait": 300, "drop_after": 100, "sites": ["a", "b", BAD]} | links
    return experiment_file(path, rounds=rounds, algorithm={"name": "scaffold"}, federation=links)


@final
@dataclass
class Spoiled:
    """Two good sites and a bad one."""

    fleet: Fleet
    folder: Path

    def run(self, name: str, *kinds: str, **links: Any) -> Path:
        """Run with another kind of bad answer in each round, and return the run at the server."""
        (self.folder / "kinds.json").write_text(json.dumps(kinds))
        done = self.fleet.run(experiment_over(self.folder / f"{name}.toml", len(kinds), **links), name)
        assert done.code == 0, done.err + self.fleet.collect_output()
        return self.fleet.at_server(name)

    def without(self, rounds: int) -> str:
        """Return the bits of a run without the bad site."""
        return bits(self.fleet.at_server(f"without-{rounds}"))


@pytest.fixture(scope="module")
def spoiled(shared: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Spoiled:
    place = tmp_path_factory.mktemp("spoiled")
    (place / "sitecustomize.py").write_text(SPOILED)
    dealt = deal(load_experiment_file(experiment_over(place / "dealt.toml", 1)), ["a", "b", BAD], place / "dealt")
    shared.deal(dealt.files[0].parent, ["a", "b", BAD])
    made = Spoiled(shared, place)
    shared.start("a", "b")
    for rounds in (2, len(KINDS)):
        without = made.run(f"without-{rounds}", *["good"] * rounds)
        assert [line["missed"] for line in lines(without)] == [[BAD]] * rounds
    shared.start_site(BAD, PYTHONPATH=str(place))
    return made


@pytest.fixture(scope="module")
def every_kind(spoiled: Spoiled) -> tuple[Path, list[str]]:
    """A run with another kind of bad answer in each round, and its log."""
    run = spoiled.run("every-kind", *KINDS)
    return run, spoiled.fleet.call("logs", "every-kind").out.splitlines()


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_answer_does_not_count_and_the_log_names_the_site(every_kind: tuple[Path, list[str]], kind: str) -> None:
    run, log = every_kind
    round = list(KINDS).index(kind)
    passed = lines(run)[round]
    assert passed["missed"] == [BAD]
    assert passed["clients"] == [0, 1]
    named = [line for line in log if f"round {round}: {BAD} does not count" in line]
    assert len(named) == 1, log
    assert KINDS[kind] in named[0]


def test_a_run_with_a_bad_site_ends_like_one_without_it(every_kind: tuple[Path, list[str]], spoiled: Spoiled) -> None:
    assert bits(every_kind[0]) == spoiled.without(len(KINDS))


def test_the_wait_for_a_silent_site_is_federation_wait(spoiled: Spoiled) -> None:
    run = spoiled.run("hang", "hang", "hang", wait=2)
    assert bits(run) == spoiled.without(2)
    log = spoiled.fleet.call("logs", "hang").out
    assert all(f"round {round}: {BAD} does not count: it did not answer in time" in log for round in range(2))


@pytest.mark.parametrize("kind", ["junk arrays", "junk fields"])
def test_a_reply_that_is_much_larger_than_a_report_is_refused_by_name(spoiled: Spoiled, kind: str) -> None:
    name = kind.replace(" ", "-")
    run = spoiled.run(name, kind, kind)
    assert bits(run) == spoiled.without(2)
    log = spoiled.fleet.call("logs", name).out
    refusal = "its message was refused: it is larger than 16 MiB, the most that it can need"
    assert f"round 0: {BAD} does not count: it reports: {refusal}" in log
    assert "resumes" not in log, "the job continues"


def test_a_reply_of_very_many_arrays_is_not_decoded(spoiled: Spoiled) -> None:
    run = spoiled.run("many", "many arrays", "many arrays")
    assert bits(run) == spoiled.without(2)
    log = spoiled.fleet.call("logs", "many").out
    assert f"round 0: {BAD} does not count" in log
    assert "it cannot be decoded (ValueError: a message may contain at most 2000 objects)" in log
    assert "resumes" not in log, "the job continues"


def test_a_report_beyond_the_norm_bound_does_not_count(spoiled: Spoiled) -> None:
    run = spoiled.run("bound", "large", "large", norm_bound=1e4)
    assert bits(run) == spoiled.without(2)
    assert spoiled.fleet.call("logs", "bound").out.count("above federation.norm_bound = 10000") == 2


def test_an_exception_in_a_sites_engine_does_not_end_the_run(spoiled: Spoiled) -> None:
    run = spoiled.run("raises", "engine raises", "engine raises")
    assert bits(run) == spoiled.without(2)
    assert f"{BAD} does not count" in spoiled.fleet.call("logs", "raises").out


def test_a_site_that_is_good_again_counts_again(spoiled: Spoiled) -> None:
    run = spoiled.run("good", "good", "good")
    assert [line["missed"] for line in lines(run)] == [[], []]
    assert bits(run) != spoiled.without(2)


def test_a_site_that_crashes_its_job_again_and_again_is_left_out(spoiled: Spoiled) -> None:
    run = spoiled.run("crash", "crash", "crash", wait=2)
    assert bits(run) == spoiled.without(2)
    audit = (spoiled.fleet.server / "audit.jsonl").read_text()
    assert audit.count('\\"event\\": \\"crashed\\"') >= 3
    assert f"{BAD} crashes again and again; jobs continue without it" in audit

"""A site's answers to the steps of secure aggregation; the report of a round stays here until it is masked."""

import hashlib
import sys
import tomllib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np

from fedcm.config.sections import FederationSection
from fedcm.errors import UserError
from fedcm.federation.experiment import compute_least_sites
from fedcm.federation.frames import Arrays
from fedcm.federation.kit import STATES, read_kit
from fedcm.federation.private.noisy_report import NoisyReport
from fedcm.federation.secure.identity import SiteIdentity
from fedcm.federation.secure.integers import check_report, encode_report
from fedcm.federation.secure.kit_sums import KitSums
from fedcm.federation.secure.messages import compute_digest
from fedcm.federation.secure.revealed_sums import RevealedSums
from fedcm.federation.secure.site_session import SiteSession, UnusableMessages


class _TrainedRound(NamedTuple):
    """A report that has not been sent."""

    run: str
    round: int
    trained_on: str  # hash of what the sites must have in common
    report: Any
    loss: float
    examples: int | None  # for the weight, at most `federation.max_examples`; None: the weight is 1
    kit_sums: KitSums  # of this training in any run
    sums: RevealedSums  # of this run
    noisy: NoisyReport | None = None  # what is masked in place of the report, if the run is private

    def check_sum(self, sites: Sequence[str]) -> None:
        """Raise UserError if the report may not be in a sum over these sites."""
        self.sums.check(self.round, sites)
        self.kit_sums.check(sites)

    def remember_sum(self, sites: Sequence[str]) -> None:
        """Write to the disk that the report is in a sum over these sites; the errors are those of `check_sum`."""
        self.check_sum(sites)
        self.kit_sums.remember(sites)
        self.sums.remember(self.round, sites)


@final
class SecureRounds:
    """Keeps the report of the last round and runs its secure aggregation."""

    def __init__(self, kit: Path, client: int, experiment: str, settings: FederationSection) -> None:
        """Prepare for a run.

        Args:
            kit: The site's kit.
            client: The site's index among the run's sites.
            experiment: The experiment's TOML.
            settings: Its `[federation]`.
        """
        self.kit = kit
        self.client = client
        self.experiment = experiment
        self.settings = settings
        self.sites = sorted(settings.sites)
        self._trained: _TrainedRound | None = None
        self._session: SiteSession | None = None
        self._unit = 1

    def keep(
        self, run: str, round: int, terms: Mapping[str, Any], sent: Arrays, report: Any, loss: float, **more: Any
    ) -> None:
        """Keep a round's report until it is masked; the report before it is forgotten.

        Args:
            run: The run's id.
            round: The round's index.
            terms: The fields of the run's `Terms`.
            sent: The broadcast as it arrived.
            report: The algorithm's report.
            loss: The mean loss of the local steps.
            more: `examples`, the number of training examples that the site counts for if it gives the weight, the file
                `sums`, and `noisy`, what is masked in place of the report and the loss if the run is private.

        Raises:
            UserError: If the report is not finite, too large, or beyond `federation.norm_bound`.
        """
        self._trained = self._session = None
        if more.get("noisy") is None:
            check_report(report, loss, len(self.sites), self.settings.norm_bound)
        common = {
            "round": round,
            "terms": terms,
            "broadcast": {name: _hash_array(array) for name, array in sent.items()},
        }
        experiment = hashlib.sha256(self.experiment.encode()).hexdigest()
        trained_on = compute_digest("trained", common | {"run": run, "experiment": experiment})
        training = compute_digest("training", common | {"experiment": _select_training(self.experiment)})
        kit_sums = KitSums(self.kit / STATES, training, self.settings.max_examples)
        self._trained = _TrainedRound(run, round, trained_on, report, loss, kit_sums=kit_sums, **more)

    def answer(self, step: str, run: str, round: int, arrays: Arrays, **fields: Any) -> tuple[dict[str, Any], Arrays]:
        """Answer one step of secure aggregation, or name the sites whose messages this one cannot use.

        Raises:
            UserError: If this site has no report of that round, for example after a restart, or refuses the step.
        """
        trained = self._trained
        if trained is None or (trained.run, trained.round) != (run, round):
            raise UserError(f"this site has no report of round {round}: it may have been restarted since it trained")
        names: dict[str, Any] = {"run": run, "round": round}
        try:
            done, masked = self._run_step(step, trained, **fields)
        except UnusableMessages as error:
            self._session = None  # its secrets are not used again; the report stays for another session
            print(error, file=sys.stderr, flush=True)
            return names | {"unusable": error.reasons}, {}
        return names | done, masked

    def _run_step(self, step: str, trained: _TrainedRound, **fields: Any) -> tuple[dict[str, Any], Arrays]:
        if step == "advertise":
            self._session = self._start_session(trained, **fields)
            return {"advert": self._session.advertise()}, {}
        session = self._session
        if session is None:
            raise UserError("this site has not advertised keys for this round")
        match step:
            case "share":
                return {"shares": session.share(**fields)}, {}
            case "mask":
                if trained.noisy is not None:
                    trained.kit_sums.claim_noise(trained.run)
                return {}, {"masked": session.mask(self._encode(trained), **fields)}
            case "confirm":
                return {"signature": session.confirm(permit=trained.check_sum, **fields)}, {}
            case "unmask":
                revealed = session.unmask(permit=trained.remember_sum, **fields)
                self._trained = self._session = None
                return {"revealed": revealed}, {}
            case _:
                raise UserError(f"a step of secure aggregation must be advertise to unmask, got {step!r}")

    def _start_session(self, trained: _TrainedRound, unit: int) -> SiteSession:
        """Return a session with fresh secrets; `unit` is the number of examples whose weight is 1."""
        if trained.examples is not None and not (isinstance(unit, int) and trained.examples <= unit <= 2**62):
            raise UserError(f"the unit of weights must be at least this site's {trained.examples} examples, got {unit}")
        self._unit = unit
        context = compute_digest("context", [trained.trained_on, unit])
        return SiteSession(self._identity, context, self.sites, compute_least_sites(self.settings))

    def _encode(self, trained: _TrainedRound) -> np.ndarray:
        if trained.noisy is not None:
            return trained.noisy.encode()
        weight = 1.0 if trained.examples is None else trained.examples / self._unit
        return encode_report(trained.report, trained.loss, weight, len(self.sites))

    @cached_property
    def _identity(self) -> SiteIdentity:
        identity = SiteIdentity.read(read_kit(self.kit))
        if identity.name != self.sites[self.client]:
            raise UserError(f"this kit is of {identity.name!r}, but the run has {self.sites[self.client]!r} here")
        return identity


def _select_training(experiment: str) -> dict[str, Any]:
    """Return the settings that decide a report; those of the federation say who takes part."""
    return {key: value for key, value in tomllib.loads(experiment).items() if key not in ("name", "federation")}


def _hash_array(array: np.ndarray) -> list[Any]:
    data = np.ascontiguousarray(array)
    return [str(data.dtype), list(data.shape), hashlib.sha256(data.tobytes()).hexdigest()]

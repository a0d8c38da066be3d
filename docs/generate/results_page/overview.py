"""The studies with their commands and times, the paper's claims, and equal runs on different CPUs."""

from collections import Counter
from collections.abc import Sequence

from fedcm.reports.claims.paper_claims import judge_paper_claims
from fedcm.reports.differences import list_method_settings
from fedcm.reports.digest import Digest
from fedcm.reports.groups import group_runs
from fedcm.system.formatting import format_duration
from results_page.cells import NOT_PLANNED, join_parts, name_cpu, write_table
from results_page.effects import list_closest
from results_page.studies import JUDGED
from results_page.study_parts import write_figure_link
from results_page.study_runs import Results


def write_studies(results: Results) -> str:
    """Return a table of the studies: command, runs, CPUs and time."""
    rows = []
    for runs in results.studies.values():
        planned = sum(cell.seeds for cell in runs.cells)
        done = sum(min(len(cell.runs), cell.seeds) for cell in runs.cells)
        cpus = Counter(map(name_cpu, runs.digests))
        title = f"[{runs.study.title}](#{runs.study.anchor})"
        machines = ", ".join(f"{name} {number}" for name, number in cpus.items()) or NOT_PLANNED
        seconds = sum(run.summary["seconds"] for run in runs.digests)
        time = format_duration(seconds) if runs.digests else NOT_PLANNED
        rows.append((title, f"`{runs.study.shown_command}`", f"{done} of {planned}", machines, time))
    versions = sorted({run.versions["torch"] for run in results.list_digests() if "torch" in run.versions})
    return join_parts(
        write_table(("study", "command", "runs", "runs by CPU", "recorded time"), rows, texts=2),
        f"The runs used torch {' or '.join(versions)}." if versions else "",
    )


def list_claim_runs(results: Results) -> list[Digest]:
    """Return the runs that the claims are judged by, in the report's order."""
    return sorted(results.list_digests(JUDGED), key=lambda run: (run.started, run.name))


def write_claims(results: Results) -> str:
    """Return the verdict on each claim with its evidence, and the figure of all leads."""
    runs = list_claim_runs(results)
    claims = judge_paper_claims(group_runs(runs), runs)
    verdicts = write_table(("claim", "verdict"), [(claim.text, claim.verdict) for claim in claims], texts=2)
    evidence = [f"**{claim.text}**: {claim.verdict}.\n\n{_write_list(claim.evidence)}" for claim in claims]
    text = "FedCM minus the best other algorithm in every cell, in points, with 95 % intervals where there are seeds"
    figure = write_figure_link("claims", text) if list_closest(results) else ""
    return join_parts(verdicts, figure, "The evidence, cell by cell:", *evidence)


def _write_list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def write_equal_runs(results: Results) -> str:
    """Return a table of runs with equal settings and seeds on different CPUs; empty if there are none."""
    by_settings: dict[tuple[object, ...], list[Digest]] = {}
    for run in results.list_digests():
        precision = run.experiment.get("engine", {}).get("precision")
        key = (run.seed, precision, *sorted(list_method_settings(run).items()))
        by_settings.setdefault(key, []).append(run)
    rows = [
        _write_run(run)
        for same in by_settings.values()
        if len(set(map(name_cpu, same))) > 1
        for run in sorted(same, key=lambda run: (name_cpu(run), run.name))
    ]
    header = ("run", "CPU", "mean of the last rounds", "last", "best", "`params_sha256`")
    return write_table(header, rows, texts=2) if rows else ""


def _write_run(run: Digest) -> tuple[str, ...]:
    accuracy = run.accuracy if run.divergence_round is None else None
    scores = [f"{100 * accuracy[key]:.2f}" if accuracy else "diverged" for key in ("mean_last", "last", "best")]
    return (f"`{run.name}`", name_cpu(run), *scores, f"`{run.summary['params_sha256'][:8]}…`")

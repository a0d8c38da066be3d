"""A site's own settings, in `site.toml` of its kit: where its data are and what may be done with them.

They never leave the site, and nothing in a job can change them.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from fedcm.algorithms import ALGORITHMS
from fedcm.config.experiment import Count
from fedcm.config.schema import Section
from fedcm.errors import UserError
from fedcm.federation.kit_settings import read_settings
from fedcm.models import MODELS

FILE = "site.toml"


class SiteData(Section):
    source: Annotated[str, Field(min_length=1)]  # an .npz, a folder of them, a known name, or package.module:function


class Limits(Section):
    max_examples: Count | None = None  # use at most so many
    min_examples: Count = 1  # take part only with at least so many
    experiments: list[str] = Field(default=["*"])  # names of experiments that may run here, as patterns
    code: list[str] = Field(default=[])  # models and algorithms of one's own that an experiment may name


class SiteTraining(Section):
    threads: Count = 1  # more are faster and may change the last bits
    device: Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$")] = "cpu"


class SiteSettings(Section):
    data: SiteData
    limits: Limits = Limits()
    training: SiteTraining = SiteTraining()


def load_settings(kit: Path) -> SiteSettings:
    """What `site.toml` in a kit says."""
    file = kit / FILE
    if not file.is_file():
        raise UserError(f"a site's kit must hold {FILE}, which says where its data are, and {str(kit)!r} does not")
    return read_settings(SiteSettings, file)


def reject_forbidden(experiment: Mapping[str, Any], limits: Limits) -> None:
    """What an experiment's table asks for must be what this site allows.

    Said before the table is read as an experiment, because reading one imports the code that it names.
    """
    name = experiment.get("name")
    if not any(fnmatchcase(str(name), pattern) for pattern in limits.experiments):
        raise UserError(
            f"this site allows the experiments {', '.join(limits.experiments) or 'none'}, got {name!r}; its operator "
            f"can add it to limits.experiments in {FILE}"
        )
    reject_foreign_code(experiment, limits.code, "this site", FILE)


def reject_foreign_code(experiment: Mapping[str, Any], allowed: list[str], who: str, file: str) -> None:
    """Bundled models and algorithms run, and what the operator has named: no admin can have anything else run."""
    for what, bundled in (("model", MODELS), ("algorithm", ALGORITHMS)):
        table = experiment.get(what)
        code = table.get("name") if isinstance(table, Mapping) else None
        if code not in bundled and code not in allowed:
            raise UserError(
                f"{who} runs bundled code alone, got the {what} {code!r}; its operator can add it to limits.code "
                f"in {file}"
            )

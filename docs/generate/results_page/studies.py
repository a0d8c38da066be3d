"""The studies of docs/results.md: a folder of digests in results/, and the file that plans its runs."""

from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]


class Study(NamedTuple):
    """A folder of digests, the file that plans the runs, and the command that makes them."""

    name: str  # of the folder in results/
    title: str
    anchor: str  # of its section in docs/results.md
    file: str  # in experiments/mini
    command: str = ""
    shown_in: str = ""  # the study whose part of the page shows it, if it has no part of its own

    @property
    def path(self) -> Path:
        """The file that plans the runs."""
        return ROOT / "experiments" / "mini" / self.file

    @property
    def shown_command(self) -> str:
        """The command as the page shows it."""
        return self.command or f"fedcm compare experiments/mini/{self.file} --runs-dir runs/mini"


STUDIES = (
    Study(
        "table1",
        "Table 1: CIFAR-10",
        "table-1-five-algorithms-on-cifar-10",
        "table1.toml",
        "fedcm reproduce table1 --scale mini",
    ),
    Study(
        "table2",
        "Table 2: CIFAR-100",
        "table-2-five-algorithms-on-cifar-100",
        "table2.toml",
        "fedcm reproduce table2 --scale mini",
    ),
    Study("table3", "Table 3: α", "fedcms-α", "table3.toml", "fedcm reproduce table3 --scale mini"),
    Study("weight-decay", "where weight decay acts", "where-weight-decay-acts", "decay.toml"),
    Study("heterogeneity", "more unequal data", "more-unequal-data", "heterogeneity.toml"),
    Study("resnet8", "ResNet-8", "resnet-8", "resnet.toml"),
    Study("resnet18", "ResNet-18", "resnet-18", "resnet18.toml"),
    Study("cnn", "the CNN", "a-cnn", "cnn.toml"),
    Study("fashion", "Fashion-MNIST", "fashion-mnist", "fashion.toml"),
    Study("shakespeare", "Shakespeare", "shakespeare", "shakespeare.toml"),
    Study("precision", "float32 and bfloat16", "float32-and-bfloat16", "precision.toml"),
    Study("one-setting", "one setting at a time", "one-setting-at-a-time", "tuning.toml"),
    Study("momentum", "variants of FedCM", "variants-of-fedcm", "momentum.toml"),
    Study(
        "momentum-first",
        "`fedcm-anytime`, first try on CIFAR-100",
        "variants-of-fedcm",
        "momentum-first.toml",
        shown_in="momentum",
    ),
    Study(
        "family", "the whole family", "the-whole-family", "family.toml", "fedcm compare experiments/mini/family.toml"
    ),
)
JUDGED = ("table1", "table2", "table3", "weight-decay", "heterogeneity", "resnet8", "resnet18", "cnn", "one-setting")

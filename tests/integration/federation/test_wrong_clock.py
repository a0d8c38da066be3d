"""A site whose machine has a wrong clock does not connect, and its own output says why."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from fleet import CONNECTED, Fleet

pytestmark = pytest.mark.federation

# Replaces the system's clock for one process and those that it starts. Waits until a time of day still use the real
# clock, so the engine does not get as far as with a clock that is really wrong: only the first message is tested.
SHIFTED = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t shift(void) { const char *by = getenv("CLOCK_SHIFT"); return by ? atol(by) : 0; }

int clock_gettime(clockid_t which, struct timespec *now) {
    int code = syscall(SYS_clock_gettime, which, now);
    if (!code && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += shift();
    return code;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec read;
    int code = clock_gettime(CLOCK_REALTIME, &read);
    now->tv_sec = read.tv_sec;
    now->tv_usec = read.tv_nsec / 1000;
    return code;
}
time_t time(time_t *result) {
    struct timespec read;
    clock_gettime(CLOCK_REALTIME, &read);
    if (result) *result = read.tv_sec;
    return read.tv_sec;
}
"""


@pytest.fixture(scope="module")
def shifted_clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that shifts the clock of a process by `CLOCK_SHIFT` seconds."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("this test needs a C compiler")
    folder = tmp_path_factory.mktemp("clock")
    (folder / "shifted.c").write_text(SHIFTED)
    library = folder / "shifted.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, folder / "shifted.c"], check=True)
    return library


@pytest.mark.parametrize(
    ("hours", "words"),
    [
        (-26, "the certificate of this kit is not valid yet: it is valid from"),
        (400 * 24, "the certificate of this kit has expired: it was valid until"),
    ],
)
def test_a_site_with_a_wrong_clock_says_why_it_does_not_connect(
    fleet: Fleet, shifted_clock: Path, hours: int, words: str
) -> None:
    fleet.start("b")
    preload = os.pathsep.join(filter(None, [str(shifted_clock), os.environ.get("LD_PRELOAD", "")]))
    site = fleet.start_site("a", wait=False, LD_PRELOAD=preload, CLOCK_SHIFT=str(hours * 3600))
    site.wait_for(rf"{words} .* this machine's clock says .*; set the clock")
    assert CONNECTED not in site.output
    assert site.process.poll() is None, "it tries again"
    assert CONNECTED in fleet.running["b"].output

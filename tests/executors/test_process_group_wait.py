"""A process that waits for the others polls for a moment and then sleeps."""

from fedcm.executors import process_group


class FakeWork:
    """A message that is complete after it was asked a number of times."""

    def __init__(self, polls: float) -> None:
        self.polls = polls
        self.asked = 0
        self.waits = 0

    def is_completed(self) -> bool:
        self.asked += 1
        return self.asked > self.polls

    def wait(self) -> None:
        self.waits += 1


def test_polling_ends_when_the_message_is_complete_and_its_errors_are_raised_by_wait():
    work = FakeWork(polls=3)
    process_group._wait(work)
    assert (work.asked, work.waits) == (4, 1)


def test_a_process_that_has_polled_for_a_moment_sleeps(monkeypatch):
    monkeypatch.setattr(process_group, "_POLLING", 0.001)
    work = FakeWork(polls=float("inf"))
    process_group._wait(work)
    assert work.asked > 1
    assert work.waits == 1

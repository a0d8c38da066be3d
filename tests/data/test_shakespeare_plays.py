"""The parser of plays, on small made-up plays in each format of the published texts."""

import pytest

from fedcm.data.sources.shakespeare_plays import parse_play

FRONT = """A PLAY

by Nobody


PERSONS REPRESENTED.

ANN.
BOB, her brother.

SCENE: A town.


"""

CAPITALS = (
    FRONT
    + """ACT I.

SCENE I. A street.

[Enter ANN and
BOB.]

ANN.
Good  morrow, brother. [Aside.] He looks pale.
What news?

BOB.
                      None.

[Exit ANN.]

She goes.

SCENE II. The same.

Nobody says this.

BOB:
I wait.

THE END
"""
)


def test_speakers_in_capitals_say_what_follows_without_stage_directions() -> None:
    assert parse_play(CAPITALS) == {
        "ANN": "Good morrow, brother. He looks pale.\nWhat news?",
        "BOB": "None.\nShe goes.\nI wait.",
    }


def test_line_ends_of_windows_change_nothing() -> None:
    assert parse_play(CAPITALS.replace("\n", "\r\n")) == parse_play(CAPITALS)


def test_speakers_without_a_full_stop_are_found() -> None:
    text = FRONT + "ACT I.\n\nANN\nGood morrow.\n\nFIRST FAIRY\nGood night.\n"
    assert parse_play(text) == {"ANN": "Good morrow.", "FIRST FAIRY": "Good night."}


def test_speakers_in_small_letters_are_found_where_the_play_writes_most_of_them_so() -> None:
    text = FRONT + "ACT I.\n\nHam.\nWho's there?\n\nLady Ann.\nI, my lord.\n\nHam.\nGo.\n\n[Exit Ann.]\n\nFarewell.\n"
    assert parse_play(text) == {"HAM": "Who's there?\nGo.\nFarewell.", "LADY ANN": "I, my lord."}


def test_a_short_sentence_is_no_speaker_in_a_play_that_writes_speakers_in_capitals() -> None:
    text = FRONT + "ACT I.\n\nANN.\nHe goes.\n\n[Exit BOB.]\n\nFarewell.\nHe is gone.\n\nBOB.\nNo.\n"
    assert parse_play(text) == {"ANN": "He goes.\nFarewell.\nHe is gone.", "BOB": "No."}


def test_a_speech_may_begin_on_the_line_of_a_known_speaker() -> None:
    text = FRONT + "ACT I.\n\nANN.\nCome.\n\nBOB.\nNo.\n\nANN. So, now they come:--\nLook.\n\nMRS. PAGE.\nYes.\n"
    assert parse_play(text) == {"ANN": "Come.\nSo, now they come:--\nLook.", "BOB": "No.", "MRS. PAGE": "Yes."}


@pytest.mark.parametrize("direction", ["[Enter ANN.}", "[Enter ANN", "[Enter ANN,\nand others", "Enter ANN.]"])
def test_a_badly_closed_direction_swallows_no_speech(direction: str) -> None:
    said = parse_play(FRONT + f"ACT I.\n\nBOB.\nHere.\n\n{direction}\n\nANN.\nI come.\n\nBOB.\nWelcome.\n")
    assert said["ANN"] == "I come."
    assert said["BOB"].startswith("Here.")
    assert said["BOB"].endswith("Welcome.")
    assert "[" not in said["BOB"] + said["ANN"]


@pytest.mark.parametrize("several", ["ALL.", "BOTH.", "ANN and BOB.", "ANN, BOB.", "ANN & BOB", "ALL THE LORDS."])
def test_what_several_say_at_once_belongs_to_nobody(several: str) -> None:
    said = parse_play(FRONT + f"ACT I.\n\nANN.\nOne.\n\nBOB.\nTwo.\n\n{several.upper()}\nThree.\n\nANN.\nFour.\n")
    assert said == {"ANN": "One.\nFour.", "BOB": "Two."}


def test_titles_of_verses_are_left_out_and_the_speech_continues() -> None:
    text = FRONT + "ACT I.\n\nANN.\nHark.\n\nSONG.\n\nHey ho.\n\nII.\n\nThe rain.\n"
    assert parse_play(text) == {"ANN": "Hark.\nHey ho.\nThe rain."}


@pytest.mark.parametrize("start", ["PROLOGUE.", "INDUCTION", "THE PROLOGUE", "Act 1.", "ACT FIRST"])
def test_a_play_begins_at_its_first_act_prologue_or_induction(start: str) -> None:
    assert parse_play(FRONT + f"{start}\n\nCHORUS.\nTwo houses.\n") == {"CHORUS": "Two houses."}


def test_a_poem_has_no_roles() -> None:
    assert parse_play("THE SONNETS\n\nI\n\nFrom fairest creatures we desire increase,\n") == {}

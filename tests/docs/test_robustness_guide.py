"""The code of the guide to robust means and attacks."""

from test_code_blocks import blocks

GUIDE = "docs/guides/robustness.md"


def test_python_of_the_guide_has_four_hostile_clients() -> None:
    (code,) = blocks(GUIDE, "python")
    names: dict[str, object] = {}
    exec(code, names)
    (*_, last) = code.strip().splitlines()
    assert "# 4 of the 20 clients" in last
    assert eval(last, names) == 4

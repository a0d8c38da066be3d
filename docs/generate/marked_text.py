"""Replace the generated part of a page, which is between two comments."""


def replace_marked(page: str, name: str, tables: str) -> str:
    """Return a page whose part between `<!-- tables of NAME -->` and `<!-- end of NAME -->` is these tables.

    Raises:
        ValueError: If the page does not have both comments.
    """
    begin, end = f"<!-- tables of {name} -->", f"<!-- end of {name} -->"
    before, found, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found and found_end):
        raise ValueError(f"the page must have {begin} and {end}")
    return f"{before}{begin}\n\n{tables}\n\n{end}{after}"

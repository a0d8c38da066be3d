"""HTML that is safe by construction: whatever is not `Html` already is escaped."""

import json
from html import escape
from typing import Any, final


@final
class Html(str):
    """Text that is HTML."""

    __slots__ = ()


def tag(name: str, *children: object, **attributes: object) -> Html:
    """An element; a trailing underscore keeps an attribute from a Python word, None leaves it out, True has no value.

    >>> tag("td", "<b>", class_="wide", hidden=True, title=None)
    '<td class="wide" hidden>&lt;b&gt;</td>'
    """
    words = [name]
    for key, value in attributes.items():
        attribute = key.rstrip("_").replace("_", "-")
        if value is True:
            words.append(attribute)
        elif value is not None and value is not False:
            words.append(f'{attribute}="{escape(str(value))}"')
    return Html(f"<{' '.join(words)}>{joined(*children)}</{name}>")


def joined(*children: object) -> Html:
    return Html("".join(child if isinstance(child, Html) else escape(str(child)) for child in children))


def embedded(data: Any) -> Html:
    """JSON inside a script element, which nothing in it can close.

    >>> embedded(["</script>", 1])
    '["\\\\u003c/script>",1]'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return Html(text.replace("<", "\\u003c"))


def table(caption: object, head: list[object], body: list[list[object]], **attributes: object) -> Html:
    """A table that scrolls inside its own box; the first column heads its rows. Children may be whole cells."""
    top = tag("tr", *(cell("th", text, scope="col") for text in head))
    rows = [tag("tr", cell("th", row[0], scope="row"), *(cell("td", text) for text in row[1:])) for row in body]
    return boxed(
        tag("table", tag("caption", caption), tag("thead", top), tag("tbody", *rows), **attributes), str(caption)
    )


def cell(name: str, content: object, **attributes: object) -> Html:
    whole = isinstance(content, Html) and content.startswith(("<td", "<th"))
    return content if whole else tag(name, content, **attributes)  # pyright: ignore[reportReturnType]


def boxed(content: Html, label: str) -> Html:
    """Reachable by the keyboard, because a box that scrolls must be."""
    plain = label if not isinstance(label, Html) else "table"
    return tag("div", content, class_="box", tabindex="0", role="region", aria_label=plain)

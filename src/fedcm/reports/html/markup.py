"""Build HTML that is safe by construction: everything that is not already `Html` is escaped."""

import json
from html import escape
from typing import Any, final


@final
class Html(str):
    """Text that is HTML and needs no escaping."""

    __slots__ = ()


def tag(name: str, *children: object, **attributes: object) -> Html:
    """Return an element.

    Args:
        name: The element's name.
        *children: Its content; what is not `Html` is escaped.
        **attributes: A trailing underscore is removed and other underscores become hyphens. None and False leave an
            attribute out; True gives it no value.

    >>> tag("td", "<b>", class_="wide", hidden=True, title=None)
    '<td class="wide" hidden>&lt;b&gt;</td>'
    """
    parts = [name]
    for key, value in attributes.items():
        attribute = key.rstrip("_").replace("_", "-")
        if value is True:
            parts.append(attribute)
        elif value is not None and value is not False:
            parts.append(f'{attribute}="{escape(str(value))}"')
    return Html(f"<{' '.join(parts)}>{join(*children)}</{name}>")


def join(*children: object) -> Html:
    """Concatenate, and escape what is not `Html`."""
    return Html("".join(child if isinstance(child, Html) else escape(str(child)) for child in children))


def embed_json(data: Any) -> Html:
    """Return JSON for the inside of a script element, which no text in the data can close.

    >>> embed_json(["</script>", 1])
    '["\\\\u003c/script>",1]'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return Html(text.replace("<", "\\u003c"))


def make_table(caption: object, head: list[object], body: list[list[object]], **attributes: object) -> Html:
    """Return a table in a box of its own that scrolls.

    Args:
        caption: The table's caption.
        head: The headings.
        body: The rows; the first column holds the rows' headings.
        **attributes: Attributes of the table element.
    """
    top = tag("tr", *(tag("th", text, scope="col") for text in head))
    rows = [tag("tr", tag("th", row[0], scope="row"), *(tag("td", text) for text in row[1:])) for row in body]
    table = tag("table", tag("caption", caption), tag("thead", top), tag("tbody", *rows), **attributes)
    return wrap_in_box(table, str(caption))


def wrap_in_box(content: Html, label: str) -> Html:
    """Return a box that scrolls and that the keyboard can reach."""
    return tag("div", content, class_="box", tabindex="0", role="region", aria_label=label)

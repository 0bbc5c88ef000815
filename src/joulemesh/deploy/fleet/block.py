"""Files as one block of text, to be pasted from one terminal into another or sent in a message.

The block survives what mail and terminals do to text: quotation marks at the beginning of lines,
blanks at their end, words before and after. Its check sum finds what was lost on the way.
"""

from __future__ import annotations

__all__ = ["from_block", "to_block"]

import base64
import hashlib
import json
import re
import textwrap
import zlib
from collections.abc import Mapping

from joulemesh.base.bounded import FLEET, parse_json
from joulemesh.base.errors import ScenarioError

_WIDTH = 72
_BLOCK = re.compile(r"-----BEGIN JOULEMESH ([A-Z]+)-----(.*?)-----END JOULEMESH \1-----", re.DOTALL)
_CHECK = re.compile(r"^sha256: ([0-9a-f]{64})$", re.MULTILINE)


def to_block(kind: str, files: Mapping[str, bytes], comment: str = "") -> str:
    """Files as a block of text.

    Args:
        kind: what they are, a word in capital letters.
        files: their bytes by name.
        comment: a line for people, inside the block.

    >>> print(to_block("REQUEST", {"name": b"farm-07"}, "farm-07"))
    -----BEGIN JOULEMESH REQUEST-----
    note: farm-07
    sha256: abde07b8f3b49b838ac01e697185180a98e249114f1e78e87c7e7b626271d9f5
    ...
    """
    plain = json.dumps({name: data.decode("latin-1") for name, data in files.items()}).encode()
    packed = base64.b64encode(zlib.compress(plain, 9)).decode()
    lines = [f"-----BEGIN JOULEMESH {kind}-----"]
    lines += [f"note: {comment}"] if comment else []
    lines += [f"sha256: {hashlib.sha256(plain).hexdigest()}", *textwrap.wrap(packed, _WIDTH)]
    return "\n".join([*lines, f"-----END JOULEMESH {kind}-----"])


def from_block(kind: str, text: str, made_by: str) -> dict[str, bytes]:
    """The files in the first block of a text.

    Args:
        kind: what they must be.
        text: with the block in it.
        made_by: the command that prints such a block, for the message.

    Returns:
        The bytes of the files by name.

    Raises:
        ScenarioError: there is no such block, or it is damaged.

    >>> from_block("REQUEST", "> " + to_block("REQUEST", {"a": b"1"}), "x")
    {'a': b'1'}
    """
    if len(text) > FLEET.now:
        raise ScenarioError(f"the text is longer than a block may be ({FLEET}); paste the block")
    found = _BLOCK.search(text)
    if found is None or found[1] != kind:
        what = f"a block {found[1]}" if found else "no whole block"
        raise ScenarioError(
            f"the text holds {what}, not one BEGIN JOULEMESH {kind} … END; paste all that "
            f"`{made_by}` printed"
        )
    body = "\n".join(line.strip(" \t>|") for line in found[2].splitlines())
    check = _CHECK.search(body)
    if check is None:
        raise ScenarioError(f"the block has no line sha256; copy what `{made_by}` printed again")
    try:
        packed = base64.b64decode("".join(body[check.end() :].split()), validate=True)
        opened = zlib.decompressobj()
        plain = opened.decompress(packed, FLEET.now)
        if opened.unconsumed_tail or not opened.eof:
            raise ValueError(f"more than {FLEET}, or cut off")
        if hashlib.sha256(plain).hexdigest() != check[1]:
            raise ValueError("its check sum is wrong")
        return {name: value.encode("latin-1") for name, value in parse_json(plain).items()}
    except (ValueError, AttributeError, zlib.error) as error:
        reason = " ".join(str(error).split())[:100]
        raise ScenarioError(
            f"the block is damaged ({reason}); copy what `{made_by}` printed again"
        ) from None

"""Who may speak to the server: a page that it served itself, with the token in its address.

The server listens on the loopback interface only. That alone keeps out neither another user's
program nor a page of the web in the same browser (which may reach loopback by DNS rebinding), so
every request needs the token, a Host that is the loopback's, and no other page's Origin.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Sent with every answer."""


@dataclass(frozen=True)
class Guard:
    """Decides about requests."""

    token: str  # the secret part of the address
    port: int  # that the server listens on

    def refusal(self, token: str, headers: Mapping[str, str]) -> str | None:
        """Why a request is refused; None if it is not."""
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            return "the address lacks the token that it was printed with"
        names = {f"{name}:{self.port}" for name in ("127.0.0.1", "localhost", "[::1]")}
        if self.port == 80:  # browsers leave out the default
            names |= {"127.0.0.1", "localhost", "[::1]"}
        host = headers.get("host", "")
        if host not in names:
            return f"the request is for {host[:80]!r}, and only loopback is served"
        origin = headers.get("origin")
        if origin is not None and origin not in {f"http://{name}" for name in names}:
            return f"the request comes from {origin[:80]!r}, another page"
        if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return "the request comes from another page"
        return None

"""Whether a view that somebody proposes or passes on can be one, before anything of it is saved."""

from __future__ import annotations

__all__ = ["fault_of", "is_proven"]

import math
from collections.abc import Collection

from joulemesh.deploy.messages import Accepted, Flood
from joulemesh.deploy.signing import Signer, signed_text
from joulemesh.deploy.view import FINISHED, View, fingerprint


def fault_of(
    view: View, before: View, links: Collection[tuple[int, int]], last: int | None
) -> str | None:
    """What is wrong with a view, in a few words; None if nothing is.

    All devices judge alike: nothing counts here that one of them knows and another does not.

    Args:
        view: that is to follow.
        before: the newest view that is installed.
        links: of the whole graph.
        last: the last iteration of the plan; None if it is not known yet.

    >>> links = [(0, 1), (1, 2), (0, 2)]
    >>> first, left_j = View(0, 1, (0, 1, 2)), (5.0, 5.0)
    >>> fault_of(View(1, 4, (0, 2), left_j=left_j), first, links, 9) is None
    True
    >>> fault_of(View(1, 4, (0, 77), left_j=left_j), first, links, 9)
    'its members are not devices of the fleet, in ascending order'
    >>> fault_of(View(1, 2**40, (0, 2), left_j=left_j), first, links, 9)
    'it starts at iteration 1099511627776, and the plan has 9'
    """
    members, devices = set(view.members), {device for link in links for device in link}
    linked = {link for link in links if members.issuperset(link)}
    newcomers = [newcomer for newcomer, _ in view.gifts]
    if view.number <= before.number:
        return f"its number {view.number} is not beyond {before.number}"
    if not members or not members <= devices or tuple(sorted(members)) != view.members:
        return "its members are not devices of the fleet, in ascending order"
    if view.start < 1:
        return f"it starts at iteration {view.start}"
    if last is not None and view.start > last + 1:
        return f"it starts at iteration {view.start}, and the plan has {last}"
    if last is not None and view.digest == FINISHED and view.start <= last:
        return f"it ends the run before iteration {view.start} of {last}"
    if len(view.left_j) != len(view.members) or -math.inf in view.left_j:
        return f"it has {len(view.left_j)} batteries for {len(view.members)} members"
    if view.pace and len(view.pace) != len(view.members):
        return f"it has {len(view.pace)} paces for {len(view.members)} members"
    if not all(0.0 < pace < math.inf for pace in view.pace):
        return f"it has the paces {view.pace}"
    if not 0.0 <= view.elapsed_s < math.inf:
        return f"it begins after {view.elapsed_s} s"
    if len(view.pace) not in (0, len(view.members)) or not all(0 < p < math.inf for p in view.pace):
        return f"it has {len(view.pace)} paces for {len(view.members)} members"
    if not linked.issuperset(view.cut) or tuple(sorted(set(view.cut))) != view.cut:
        return "it cuts links that its members do not have"
    if len(set(newcomers)) < len(newcomers) or not members > set(newcomers):
        return "its newcomers have nobody to take their parameters from"
    if not all((min(gift), max(gift)) in linked for gift in view.gifts):
        return "its newcomers have no neighbours to take their parameters from"
    if not set(newcomers).issuperset(one for one, _ in view.lives):
        return "it names runs of devices that are no newcomers"
    return None


def is_proven(view: View, before: View, signer: Signer, needed: int) -> bool:
    """Have as many members of an earlier view as are needed signed its acceptance of this one?

    That earlier view is the one before it, or an older one for a device that was away for long:
    what a majority of the members that it knows has accepted, it may accept, too.
    """
    if view.proof is None or len(view.proof.votes) > len(before.members):
        return False
    voted = Accepted(view.number, view.proof.ballot, fingerprint(view))
    voters = {
        vote.origin
        for vote in view.proof.votes
        if vote.origin in before.members
        and signer.verify(
            vote.origin,
            signed_text(Flood(vote.origin, vote.epoch, vote.sequence, voted)),
            vote.signature,
        )
    }
    return len(voters) >= needed

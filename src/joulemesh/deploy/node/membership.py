"""What the next view is, given what the members of the present one have promised."""

from __future__ import annotations

__all__ = ["next_view"]

from collections.abc import Collection, Iterable, Mapping

from joulemesh.deploy.messages import Join, Promise
from joulemesh.deploy.view import View
from joulemesh.planning.walk import givers

_Links = Collection[tuple[int, int]]


def next_view(
    view: View,
    promises: Mapping[int, Promise],
    joins: Mapping[int, Join],
    leaving: Collection[int],
    links: _Links,
    hung: Collection[int] = (),
) -> View | None:
    """The view that follows from a majority's promises, without its digest.

    Its members are those who promised and do not leave, and those who ask to join, be it because
    they have lost their folder, as far as they are connected, and as somebody can pay for giving
    them the parameters that they lack. Whoever votes while its training hangs is left out, unless
    half of the members do so: then the plan is at fault, and all are given more time. It begins
    after the last iteration that anybody of the majority has committed: an iteration that a
    majority has committed is among these, whoever it was. If those that have committed it cannot
    pay for giving it to the others, and are not enough for it to be a majority's, it is done again
    without them. Nobody goes back behind what it has committed: a newcomer that is ahead has to
    wait.

    Args:
        view: the present one.
        promises: by device, of a majority of its members.
        joins: by device, of those that ask to be taken in.
        leaving: members that leave.
        links: of the whole graph.
        hung: members whose training does not end.

    Returns:
        The next view; None if nobody is left who holds the parameters.

    >>> links = [(0, 1), (1, 2), (2, 3), (0, 3)]
    >>> def promise(iteration):
    ...     return Promise(1, (1, 0), None, iteration, left_j=5.0, elapsed_s=1.0)
    >>> said = {0: promise(7), 1: promise(6), 3: promise(7)}
    >>> after = next_view(View(0, 1, (0, 1, 2, 3)), said, {}, (), links)
    >>> after.members, after.start
    ((0, 1, 3), 8)
    """
    at = {device: said.iteration for device, said in promises.items() if not said.pending}
    if not at:
        return None
    miserly = _miserly(view, promises, at)
    at = {device: iteration for device, iteration in at.items() if device not in miserly}
    start = 1 + max(at.values())
    settled = {d for d in at if at[d] == start - 1 or not promises[d].behind}
    newcomers = {d: said.left_j for d, said in promises.items() if d not in settled}
    newcomers = {d: left_j for d, left_j in newcomers.items() if d not in miserly}
    ahead = {d for d, said in promises.items() if said.pending and said.iteration >= start}
    ahead |= miserly
    for device, join in joins.items():
        newcomers[device] = join.left_j
        if join.iteration >= start:
            ahead.add(device)
    left_j = {d: _left_j(said, start) for d, said in promises.items()} | newcomers
    pace = {d: said.pace for d, said in promises.items()}
    pace |= {d: join.pace for d, join in joins.items()}
    candidates = left_j.keys() - set(leaving) - ahead
    at_work = candidates - set(hung)
    if 2 * len(candidates & set(hung)) < len(view.members) and len(at_work & settled) >= 2:
        candidates = at_work
    cut = {
        (min(device, other), max(device, other))
        for device, said in promises.items()
        for other in said.cut
    }
    live = [link for link in links if link not in cut]
    poor = {device for device in settled if not promises[device].gives}
    unpaid = [link for link in live if poor & {*link} and newcomers.keys() & {*link}]
    giving = [link for link in live if link not in unpaid]
    while True:
        parts = [part for part in _parts(candidates, live) if part & settled]
        if not parts:
            return None
        members = max(parts, key=lambda part: (len(part), -min(part)))
        asking = newcomers.keys() & members
        gifts = givers({one: left_j[one] for one in members}, asking, giving)
        if len(gifts) == len(asking):
            break
        candidates -= asking - dict(gifts).keys()
    paces = tuple(pace[device] for device in sorted(members))
    return View(
        number=view.number + 1,
        start=start,
        members=tuple(sorted(members)),
        cut=tuple(sorted(link for link in cut if link in links and members.issuperset(link))),
        left_j=tuple(left_j[device] for device in sorted(members)),
        elapsed_s=max(said.elapsed_s for said in promises.values()),
        gifts=gifts,
        pace=paces if max(paces) > 1.0 else (),
        lives=tuple(sorted((one, join.epoch) for one, join in joins.items() if one in members)),
    )


def _miserly(view: View, promises: Mapping[int, Promise], at: Mapping[int, int]) -> set[int]:
    """Members that are ahead of all others and cannot pay for giving them what they have."""
    left, found = dict(at), set[int]()
    while len(left) > 1:
        first = max(left.values())
        holders = {device for device in left if left[device] == first}
        silent = len(view.members) - len(promises)
        others = len(promises) > len(found) + len(holders)
        if not others or any(promises[one].gives for one in holders):
            break
        if len(found) + len(holders) + silent >= view.majority or holders == left.keys():
            break
        found |= holders
        left = {device: iteration for device, iteration in left.items() if device not in holders}
    return found


def _left_j(said: Promise, start: int) -> float:
    """What a member has left for a view: a training of its first iteration is paid for already."""
    iteration, joules = said.paid
    return said.left_j + (joules if iteration == start else 0.0)


def _neighbours(devices: Collection[int], links: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {device: [] for device in sorted(devices)}
    for a, b in links:
        if a in found and b in found:
            found[a].append(b)
            found[b].append(a)
    return {device: sorted(others) for device, others in found.items()}


def _parts(devices: Collection[int], links: Iterable[tuple[int, int]]) -> list[set[int]]:
    """The connected parts of a graph."""
    near, left, parts = _neighbours(devices, links), set(devices), []
    while left:
        part, edge = set(), {min(left)}
        while edge:
            part |= edge
            edge = {other for device in edge for other in near[device]} - part
        parts.append(part)
        left -= part
    return parts

"""`joulemesh calibrate`: true figures in place of assumed ones, of devices and of links."""

from __future__ import annotations

__all__ = ["COMMANDS", "GROUP", "HELP", "device", "links"]

import asyncio
import json as json_format
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from joulemesh.base.errors import ScenarioError, printable, say
from joulemesh.cli import common, completion

if TYPE_CHECKING:
    from joulemesh.calibration import Calibration, Method
    from joulemesh.deploy.links.transfers import LinkFigures, Rule
    from joulemesh.deploy.transport import Refusal
    from joulemesh.scenario import Scenario


_INTERRUPTED = 130


def device(
    file: common.FileArgument = None,
    preset: common.PresetOption = None,
    changes: common.SetOption = None,
    load: common.LoadOption = None,
    which: Annotated[
        str, typer.Option("--device", metavar="NAME", help="Whose samples: a number or a name.")
    ] = "0",
    name: Annotated[
        str | None, typer.Option(help="Of this device in tables; else as in the scenario's table.")
    ] = None,
    learner: Annotated[
        str | None,
        typer.Option(metavar="FILE.py:NAME", help="Train your own object, as `node run` does."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npz", help="Train on your own samples, as `node run` does."),
    ] = None,
    meter: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What counts joules: auto, a name that `joulemesh doctor` lists, or the CSV file "
            "of an external meter (columns time and watts).",
            autocompletion=completion.meters,
        ),
    ] = "auto",
    watts: Annotated[
        float | None, typer.Option(help="Declare what the machine draws while it trains.")
    ] = None,
    idle_watts: Annotated[
        float, typer.Option(help="Declare what it draws at rest; goes with --watts.")
    ] = 0.0,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure seconds only, in blocks of 1 s.")
    ] = False,
    samples: Annotated[int, typer.Option(help="Blocks of training, each beside one of rest.")] = 8,
    block: Annotated[
        str | None, typer.Option(metavar="TIME", help="Length of a block; 10 s, or 1 s if --quick.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Local rounds per call; else as many as take 0.25 s.")
    ] = None,
    append: Annotated[
        Path | None,
        typer.Option(metavar="DEVICES.csv", help="Write this device's row into a table."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Keep everything, with all blocks.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file of --out.")] = False,
    json: common.JsonOption = False,
) -> None:
    """Measure seconds and joules of a training step of a scenario, and watts at rest.

    Warms up, then alternates blocks of rest and of training. Figures have 95 % intervals; one wider
    than 10 % is reported as uncertain. Nothing is written until everything has been measured, so
    Ctrl-C leaves nothing behind.
    """
    from joulemesh.calibration.calibration import check_table, write_row

    scenario = common.read_scenario(file, preset, changes, load)
    method = _method(quick, samples, block, rounds)
    if out is not None and out.exists() and not force:
        raise ScenarioError(f"{out} exists; choose another name or add --force")
    if append is not None:
        check_table(append)
        _require_joules(meter, watts, quick, append)
    try:
        found = _measured(
            scenario,
            method,
            quiet=json,
            device=_number(scenario, which),
            name=name,
            learner=learner,
            data=data,
            meter=meter,
            watts=watts,
            idle_w=idle_watts,
        )
    except KeyboardInterrupt:
        say("stopped; nothing was written", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    if append is not None and found.step_j is None:
        raise ScenarioError(f"--append {append} needs joules: {found.notes[0]}")
    if out is not None:
        common.write_text(out, found.to_json(), force=force)
    had = append is not None and write_row(append, found.row)
    if json:
        typer.echo(found.to_json().rstrip())
        return
    from joulemesh.views.fleet import show_calibration

    show_calibration(found)
    if append is not None:
        say(f"{append}: the row of {found.name} is {'replaced' if had else 'added'}")


def _method(quick: bool, samples: int, block: str | None, rounds: int | None) -> Method:
    from joulemesh.base.units import parse
    from joulemesh.calibration import Method

    given: dict[str, Any] = {} if block is None else {"block_s": parse(block, "s")}
    if quick:
        return Method.quick(samples=samples, rounds=rounds, **given)
    return Method(samples=samples, rounds=rounds, **given)


def _require_joules(meter: str, watts: float | None, quick: bool, append: Path) -> None:
    """Refuse, before minutes are spent, to write a row that would lack its joules."""
    from joulemesh.meters import MeterOptions, choose

    if watts is not None or meter != "auto":
        return
    if quick:
        raise ScenarioError(
            f"--append {append} needs joules, and --quick measures seconds only: leave --quick "
            "out, or add --watts"
        )
    choices = [choose(MeterOptions(accelerator=gpu)) for gpu in (True, False)]
    if all(one.kind is None for one in choices):
        raise ScenarioError(f"--append {append} needs joules: {choices[-1].reason}")


def _number(scenario: Scenario, which: str) -> int:
    from joulemesh.data.load import device_names

    names = device_names(scenario)
    if which in names:
        return names.index(which)
    if which.isdecimal():
        return int(which)
    known = f"one of {', '.join(names[:5])}…" if names else "a number"
    raise ScenarioError(f"--device {which} is not in the scenario: use {known}")


def _measured(scenario: Scenario, method: Method, *, quiet: bool, **given: Any) -> Calibration:
    from joulemesh.calibration import Bench, calibrate
    from joulemesh.views.progress import Display

    with Display(quiet=quiet) as display:
        bench = Bench(progress=lambda words, share: display.step("calibrating", share, [words]))
        return calibrate(scenario, method=method, bench=bench, **given)


TargetsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FLEET | DEVICE | HOST:PORT…]",
        help="A fleet's folder: have its devices measure. A device's folder: listen to its fleet. "
        "Addresses: measure to machines that listen there.",
    ),
]
ListenOption = Annotated[
    str | None,
    typer.Option(
        metavar="[HOST:]PORT", help="Listen on this address only, and print a one-time token."
    ),
]
TokenOption = Annotated[
    list[str] | None,
    typer.Option(
        envvar="JOULEMESH_TOKEN", help="That the listener printed; one for each HOST:PORT."
    ),
]
ScenarioOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The scenario whose model is transferred, and its devices."),
]
SizeOption = Annotated[
    str | None, typer.Option(help="Transfer so much in place of the model's own size.")
]
HereOption = Annotated[str, typer.Option(help="Which device this machine is: number or name.")]
ThereOption = Annotated[
    list[str] | None,
    typer.Option(help="Which device a listener is; one for each HOST:PORT. 1, 2, … by default."),
]
NameOption = Annotated[str, typer.Option(help="What a listener calls itself.")]
WithinOption = Annotated[
    float,
    typer.Option(min=0.001, max=1.0, help="Half of the 95 % interval at which measuring ends."),
]
TimeOption = Annotated[
    str, typer.Option("--time", help="Measure no direction for longer than this.")
]
ForOption = Annotated[str, typer.Option("--for", help="How long a listener waits at the most.")]
OnlyOption = Annotated[
    Literal["alone", "together"] | None,
    typer.Option(help="Measure links one by one only, or all at once only; both by default."),
]
UseOption = Annotated[
    Literal["lower", "alone", "together"],
    typer.Option(help="The rate that plans take: the lower one, alone, or with all links in use."),
]
OutOption = Annotated[Path, typer.Option("--out", help="The table; rows in it are replaced.")]


def links(
    targets: TargetsArgument = None,
    listen: ListenOption = None,
    token: TokenOption = None,
    scenario: ScenarioOption = None,
    size: SizeOption = None,
    here: HereOption = "0",
    there: ThereOption = None,
    name: NameOption = "",
    within: WithinOption = 0.05,
    time: TimeOption = "10 s",
    wait: ForOption = "10 min",
    only: OnlyOption = None,
    use: UseOption = "lower",
    out: OutOption = Path("links.csv"),
    load: common.LoadOption = None,
    json: common.JsonOption = False,
) -> None:
    """Measure the rates of links, both ways, by timed transfers of the model's own size.

    In a fleet, devices listen (`joulemesh calibrate links DEVICE`, or `node run`), and the
    operator has them measure every link alone and the planned ones all at once. Two other machines
    meet by `--listen PORT` on one, which prints what to type on the other. The scenario takes the
    table as `network.links`.
    """
    from joulemesh.base.units import parse
    from joulemesh.deploy.fleet.pack import OPERATOR, ORDERS
    from joulemesh.deploy.links.transfers import Rule
    from joulemesh.scenario import Scenario

    common.load_files(load)
    given = targets or []
    if listen is not None:
        if given:
            raise ScenarioError(f"--listen {listen} measures nothing itself; leave out {given[0]}")
        _listen(listen, token[0] if token else None, name, parse(wait, "s"))
        return
    if not given:
        raise ScenarioError(
            "name a fleet's folder or HOST:PORT to measure to, or add --listen PORT"
        )
    rule = Rule(0, within=within, seconds=parse(time, "s"))
    folder = Path(given[0])
    if (folder / ORDERS).is_file():
        _listen_in_fleet(folder, parse(wait, "s"))
        return
    modes = (only,) if only else ("alone", "together")
    if (folder / OPERATOR).is_dir():
        found = _of_fleet(folder, rule, size, modes, quiet=json)
    else:
        asked = None if scenario is None else Scenario.load(scenario)
        machines = (given, token or [], here, there or [], asked)
        found = _of_machines(*machines, rule, size, modes, quiet=json)
    _finish(found, out, use, json)


def _refused(refusal: Refusal) -> None:
    who = refusal.peer or refusal.address
    say(f"refused {printable(who)}: {refusal.reason}: {printable(refusal.detail)}", err=True)


def _listen(place: str, token: str | None, name: str, within_s: float) -> None:
    from joulemesh.deploy.fleet.fleet import own_address
    from joulemesh.deploy.links.sessions import listen, new_token, parse_address
    from joulemesh.deploy.transport import Address

    address = parse_address(place if ":" in place else f":{place}", own_address() or "127.0.0.1")
    secret = token or new_token()

    def ready(port: int) -> None:
        at = Address(address.host, port)
        say(f"listening on {at} for {within_s:g} s, for one session; on the other machine:")
        words = ["joulemesh", "calibrate", "links", str(at), "--token", secret]
        say(f"{shlex.join(words)} --scenario FILE")

    work = listen(address, secret, name=name, within_s=within_s, refused=_refused, ready=ready)
    if not asyncio.run(work):
        raise ScenarioError(f"nobody has measured within {within_s:g} s; listen again, or --for 1h")
    say("measured; the table is on the machine that called")


def _listen_in_fleet(folder: Path, within_s: float) -> None:
    from joulemesh.deploy.fleet.pack import DevicePack
    from joulemesh.deploy.links.sessions import listen_in_fleet

    pack = DevicePack.load(folder)
    say(f"{pack.name} listens on {pack.listens_on} for {within_s:g} s; on the operator's machine:")
    say("joulemesh calibrate links FLEET")
    if not asyncio.run(listen_in_fleet(pack, within_s, _refused)):
        raise ScenarioError(
            f"the operator has not measured within {within_s:g} s; listen again, or --for 1h"
        )
    say("measured; the table is on the operator's machine")


def _of_fleet(
    folder: Path, rule: Rule, size: str | None, modes: Sequence[str], *, quiet: bool
) -> list[LinkFigures]:
    from joulemesh.deploy.links.sessions import measure_fleet, tell_all
    from joulemesh.deploy.operator.operator import Operator
    from joulemesh.planning.static import plan_of

    operator = Operator.load(folder)
    fleet = operator.fleet
    plan = plan_of(fleet.ground())
    edges = plan.world.graph.edges
    planned = [(int(i), int(j)) for i, j in edges[sorted(set(plan.timeline.route.link_index))]]
    rule = replace(rule, payload_bytes=_payload(size, fleet.work.model_bits))

    async def work() -> list[LinkFigures]:
        try:
            return await measure_fleet(
                operator, fleet.links, rule, planned=planned, modes=modes, done=_told(quiet)
            )
        finally:
            await tell_all(operator)

    return asyncio.run(work())


def _of_machines(
    targets: Sequence[str],
    tokens: Sequence[str],
    here: str,
    there: Sequence[str],
    scenario: Scenario | None,
    rule: Rule,
    size: str | None,
    modes: Sequence[str],
    *,
    quiet: bool,
) -> list[LinkFigures]:
    """Measure to machines that are named by their addresses."""
    from joulemesh.data.load import device_names
    from joulemesh.deploy.links.sessions import Listener, measure_listeners, parse_address

    addresses, count = [parse_address(one) for one in targets], len(targets)
    if len(tokens) != count:
        raise ScenarioError(
            f"{len(tokens)} tokens for {count} listeners; add --token for each, as it printed it"
        )
    names = () if scenario is None else device_names(scenario)
    most = None if scenario is None else scenario.devices.count

    def number(given: str) -> int:
        if given in names:
            return names.index(given)
        if given.isascii() and given.isdigit() and (most is None or int(given) < most):
            return int(given)
        known = ", ".join(names[:8]) or ("0, 1, …" if most is None else f"0 to {most - 1}")
        raise ScenarioError(f"{given!r:.60} is no device of the scenario; its devices are {known}")

    def named(k: int) -> tuple[int, str]:
        return k, names[k] if k < len(names) else ""

    own = number(here)
    others = [number(one) for one in there] or [k for k in range(count + 1) if k != own][:count]
    if len(others) != count or len({own, *others}) != count + 1:
        raise ScenarioError(
            f"{len(others)} devices for {count} listeners; give --here and one --there for each, "
            "all different"
        )
    listeners = [
        Listener(address, token, *named(k))
        for address, token, k in zip(addresses, tokens, others, strict=True)
    ]
    rule = replace(rule, payload_bytes=_payload(size, _model_bits(scenario)))
    work = measure_listeners(listeners, named(own), rule, modes=modes, done=_told(quiet))
    return asyncio.run(work)


def _model_bits(scenario: Scenario | None) -> float | None:
    if scenario is None:
        return None
    from joulemesh.planning.ground import workload

    return workload(scenario).model_bits


def _payload(size: str | None, model_bits: float | None) -> int:
    from joulemesh.base.units import parse

    if size is None and model_bits is None:
        raise ScenarioError("give --scenario FILE for its model's size, or --size 2MB")
    bits = model_bits if size is None else parse(size, "bit")
    payload = int(-(-(bits or 0) // 8))
    if payload < 1:
        raise ScenarioError(f"--size {size}: a transfer has at least 1 B; correct it")
    return payload


def _told(quiet: bool) -> Callable[[str], None]:
    return (lambda words: None) if quiet else (lambda words: say(words, err=True))


def _finish(found: Sequence[LinkFigures], out: Path, use: str, json: bool) -> None:
    from joulemesh.deploy.links.sessions import row_of, update_links

    good = [one for one in found if not one.trouble]
    rows = [row_of(one, use) for one in good]
    if rows:
        count = update_links(out, rows)
        say(f"wrote {out}: {len(rows)} directions measured, {count} rows", err=json)
    if json:
        typer.echo(json_format.dumps(rows))
    else:
        from joulemesh.views.fleet import show_links
        from joulemesh.views.terminal import open_console

        show_links(found, use, open_console())
    if len(good) < len(found) or not found:
        raise typer.Exit(1)


HELP = (
    "Measure what a plan is made of, where it will be carried out. `joulemesh calibrate [FILE]` is "
    "short for `joulemesh calibrate device [FILE]`."
)
_DEFAULT = "device"

# Commands in the order of their use, each with what to type to try it.
COMMANDS: dict[Callable[..., None], tuple[str, ...]] = {
    device: (
        "joulemesh calibrate device fleet.toml --append devices.csv",
        "joulemesh calibrate device --quick",
        "joulemesh calibrate device --watts 6.5 --idle-watts 2.7 --out calibration.json",
        "joulemesh calibrate device fleet.toml --meter plug.csv --block 30s --samples 16",
    ),
    links: (
        "joulemesh calibrate links fleet",
        "joulemesh calibrate links farm-07/ --for 1h",
        "joulemesh calibrate links --listen 7200",
        "joulemesh calibrate links farm-02.local:7200 --token TOKEN --scenario fleet.toml",
    ),
}


class GROUP(TyperGroup):
    """Commands, of which one is meant where none is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default's name before arguments that begin with no other command's name."""
        asked = args[0] if args else ""
        completing = ctx.resilient_parsing and not args  # offer the names of the commands
        if asked not in (*self.commands, "--help") and not completing:
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)

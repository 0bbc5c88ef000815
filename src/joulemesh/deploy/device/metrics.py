"""How a node stands, as OpenMetrics, for Prometheus and whatever else reads them."""

from __future__ import annotations

__all__ = ["listen_on", "serve_metrics"]

from collections.abc import Callable, Iterator
from typing import Any

from joulemesh.base.errors import ScenarioError
from joulemesh.base.optional import require
from joulemesh.deploy.device.tally import Tally
from joulemesh.deploy.operator.standing import Standing

_GAUGES = {
    "iteration": "the last iteration that is committed",
    "iterations": "iterations of the plan",
    "view": "number of the newest view",
    "spent_j": "joules spent, as metered",
    "planned_j": "joules that the plan gives up to this iteration",
    "battery_j": "joules that may be spent in all",
    "elapsed_s": "seconds taken so far",
    "planned_s": "seconds of the plan up to this iteration",
    "accuracy": "the last that was measured",
}
_UNITS = {"_j": "_joules", "_s": "_seconds"}


class _Collector:
    """Asks the node when somebody asks for its metrics; costs nothing in between."""

    def __init__(self, standing: Callable[[], Standing], tally: Tally, kinds: Any) -> None:
        self._standing, self._tally, self._kinds = standing, tally, kinds

    def collect(self) -> Iterator[Any]:
        """The metrics as they are now."""
        now = self._standing()
        for name, help_text in _GAUGES.items():
            value = getattr(now, name)
            if value is not None:
                yield self._kinds.GaugeMetricFamily(_full_name(name), help_text, value=value)
        doing = self._kinds.GaugeMetricFamily(
            "joulemesh_phase", "1 for what the node is doing", labels=["phase"]
        )
        doing.add_metric([now.phase or "unknown"], 1)
        yield doing
        for way, counted in (
            ("sent", self._tally.sent_bytes),
            ("received", self._tally.received_bytes),
        ):
            total = self._kinds.CounterMetricFamily(
                f"joulemesh_{way}_bytes", f"payload {way} in exchanges", labels=["neighbour"]
            )
            for neighbour, size in sorted(counted.copy().items()):
                total.add_metric([str(neighbour)], size)
            yield total


def _full_name(name: str) -> str:
    """A metric's name with its unit in full, as the conventions have it.

    >>> _full_name("spent_j"), _full_name("view")
    ('joulemesh_spent_joules', 'joulemesh_view')
    """
    for short, whole in _UNITS.items():
        if name.endswith(short):
            name = name.removesuffix(short) + whole
    return f"joulemesh_{name}"


def listen_on(text: str) -> tuple[str, int]:
    """Where metrics are served: ``PORT`` on this machine alone, or ``HOST:PORT``.

    Raises:
        ScenarioError: it is neither.

    >>> listen_on("9100"), listen_on("0.0.0.0:9100"), listen_on("[::]:9100")
    (('127.0.0.1', 9100), ('0.0.0.0', 9100), ('::', 9100))
    """
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise ScenarioError(f"--metrics {text:.80} is no port: write 9100, or HOST:9100")
    return host.strip("[]") or "127.0.0.1", int(port)


def serve_metrics(where: str, standing: Callable[[], Standing], tally: Tally) -> Callable[[], None]:
    """Serve a node's metrics over HTTP.

    Args:
        where: ``PORT`` on this machine alone, or ``HOST:PORT``.
        standing: gives how the node stands.
        tally: what it has sent and received.

    Returns:
        What ends it.

    Raises:
        MissingPackageError: ``prometheus_client`` is not installed.
        ScenarioError: the port is taken.
    """
    host, port = listen_on(where)
    client = require("prometheus_client", "--metrics", "joulemesh[deploy]")
    registry = client.CollectorRegistry(auto_describe=False)
    registry.register(_Collector(standing, tally, require("prometheus_client.core", "--metrics")))
    try:
        server, thread = client.start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise ScenarioError(
            f"--metrics {where}: cannot listen there ({error.strerror}); choose another port"
        ) from None

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop

"""The page about a method of one's own, carried out as it stands."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

import joulemesh
from joulemesh.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "own-method.md"


def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PAGE.read_text("utf-8")
    method, use = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (command,) = re.findall(r"```console\n\$ (.*?)\n```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Path("lazy.py").write_text(method, "utf-8")
    names: dict[str, object] = {}
    exec(compile(use, str(PAGE), "exec"), names)
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[0] for line in printed] == ["adaptive", "lazy:0.9"]
    assert all(0 < float(line[2]) <= 1 for line in printed)
    assert Path("study", "report.html").is_file()
    found = names["found"]
    assert isinstance(found, joulemesh.Comparison)
    # The command line takes the same file; what the page asks for is refused at once here.
    arguments = [*shlex.split(command), "--equal", "nothing"]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert "equal = 'nothing' is unknown" in capsys.readouterr().err
    sys.modules.pop("lazy", None)


def test_the_example_does_what_it_says() -> None:
    import jax.numpy as jnp

    method = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)[0]
    names: dict[str, object] = {}
    exec(compile(method, "lazy.py", "exec"), names)
    # Three devices in a row hold 0, 3 and 9; half a step towards (3), (0 + 9)/2 and (3).
    share = np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5], [0.0, 1.0, 0.0]])
    exchange = names["lazy_exchange"](share, 0.5)  # type: ignore[operator]
    moved = exchange.apply({"w": jnp.array([[0.0], [3.0], [9.0]])}, (), None, None)[0]
    assert moved["w"].ravel().tolist() == [1.5, 3.75, 6.0]

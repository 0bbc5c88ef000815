#!/bin/sh
# Build wheel and sdist twice, to the same bytes, with the locked tools, then install the wheel into an
# empty environment of every Python that is found (3.11 to 3.14; PYTHONS names others), and the sdist
# into one more, and try them outside the repository: first the light installation, then with JAX.
# Everything is made in a temporary folder but dist/ itself.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT HUP TERM # without it a stopped shell skips the line above
export PIP_DISABLE_PIP_VERSION_CHECK=1

# An interpreter of a version: on the path, or where pyenv keeps them.
find_python() {
  for one in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
    if command -v "$one" >/dev/null 2>&1 && "$one" -c 'import venv' >/dev/null 2>&1; then
      command -v "$one"
      return
    fi
  done
}

first=''
for version in ${PYTHONS:-3.11 3.12 3.13 3.14}; do
  python=$(find_python "$version")
  [ -z "$python" ] || first=${first:-$python}
done
[ -n "$first" ] || { echo "no Python of ${PYTHONS:-3.11 3.12 3.13 3.14} found"; exit 1; }

"$first" -m venv "$work/build"
"$work/build/bin/pip" install --quiet --require-hashes --no-deps -r "$root/locks/build.txt"
# Files are dated by the commit, so that everybody builds the same bytes.
if date=$(git -C "$root" log -1 --format=%ct 2>/dev/null); then
  export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$date}"
fi
rm -rf "$root/dist"
echo "building wheel and sdist, twice"
for folder in "$root/dist" "$work/again"; do
  "$work/build/bin/python" -m build --no-isolation --outdir "$folder" "$root" >"$work/log" 2>&1 || {
    cat "$work/log"
    exit 1
  }
done
diff -r "$root/dist" "$work/again" || { echo "two builds of the same files differ"; exit 1; }
wheel=$(ls "$root"/dist/*.whl)
sdist=$(ls "$root"/dist/*.tar.gz)
# What an index would refuse: fields that break the rules, and what twine finds where it is installed.
"$work/build/bin/python" - "$wheel" <<'END'
import sys, zipfile
from packaging.metadata import Metadata

with zipfile.ZipFile(sys.argv[1]) as archive:
    (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
    Metadata.from_email(archive.read(name))
END
if command -v twine >/dev/null 2>&1; then
  twine check --strict "$wheel" "$sdist"
else
  echo "twine: not found, not tried"
fi

try() { # python, what to install, extra arguments of pip
  environment="$work/$(basename "$2")-$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
  "$1" -m venv "$environment"
  "$environment/bin/pip" install --quiet ${3:-} "$2"
  cd "$work"
  "$environment/bin/pip" check >/dev/null
  "$environment/bin/joulemesh" --version
  "$environment/bin/joulemesh" plan --json >/dev/null
  "$environment/bin/joulemesh" doctor >/dev/null
  code=0
  "$environment/bin/joulemesh" run 2>"$work/refusal" || code=$?
  grep -q "pip install 'joulemesh\[jax\]'" "$work/refusal" && [ "$code" = 2 ]
  "$environment/bin/pip" install --quiet ${3:-} "$2[jax]"
  "$environment/bin/pip" check >/dev/null
  "$environment/bin/joulemesh" profiles --json >/dev/null
  "$environment/bin/joulemesh" methods --json >/dev/null
  "$environment/bin/joulemesh" new "$environment/project" >/dev/null
  (cd "$environment/project" && ../bin/python data.py >/dev/null &&
    ../bin/joulemesh plan scenario.toml --json >/dev/null)
  "$environment/bin/joulemesh" plan --preset paper --json >/dev/null
  "$environment/bin/joulemesh" plan --set devices.profile=raspberry-pi-4 --set network.profile=wifi \
    --set network.area_m=100 --set budget.deadline_s=0.5 --json >/dev/null
  "$environment/bin/python" -m joulemesh doctor --quick >/dev/null
  "$environment/bin/joulemesh" run --set plan.iterations=5 --out "$environment/run" --json >/dev/null
  [ -s "$environment/run/report.html" ]
  "$environment/bin/python" -c 'import joulemesh, pathlib
assert (pathlib.Path(joulemesh.__file__).parent / "py.typed").is_file()'
  rm -rf "$environment"
}

for version in ${PYTHONS:-3.11 3.12 3.13 3.14}; do
  python=$(find_python "$version")
  if [ -z "$python" ]; then
    echo "Python $version: not found, not tried"
    continue
  fi
  echo "Python $version: trying the wheel in an empty environment, which takes minutes"
  try "$python" "$wheel" "--constraint $root/constraints.txt"
  echo "Python $version: the wheel works, with the versions of constraints.txt"
done
echo "trying the sdist in an empty environment"
try "$first" "$sdist"
echo "the sdist works, with the newest versions"

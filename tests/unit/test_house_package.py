# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""The installed package: what Airflow finds in it, and what importing it costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest

from airflow_resumable.integration.provider_info import DISTRIBUTION, get_provider_info
from airflow_resumable.integration.settings import OPTIONS

ROOT = Path(__file__).resolve().parents[2]


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def airflow(*words: str, **environment: str) -> str:
    done = run(sys.executable, "-m", "airflow", *words, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def imported_by(statement: str, after: str = "pass") -> set[str]:
    """The modules that ``statement`` imports in a new process in which ``after`` has run already."""
    script = (
        f"import json, sys; {after}; before = set(sys.modules); {statement};"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = run(sys.executable, "-c", script)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_provider_info_is_what_airflow_wants() -> None:
    """Airflow's own schema accepts the provider info, and the name is the distribution's."""
    import jsonschema

    schema_file = Path(_origin("airflow")).parent / "provider_info.schema.json"
    info = get_provider_info()

    jsonschema.validate(info, json.loads(schema_file.read_text(encoding="utf-8")))
    assert info["package-name"] == DISTRIBUTION == distribution("airflow-resumable").metadata["Name"]


def test_airflow_lists_every_option_with_its_default() -> None:
    """``airflow config list`` shows the whole section."""
    listed = airflow("config", "list", "--section", "resumable", "--show-values")

    for option in OPTIONS:
        assert f"{option.name} = {option.default or ''}" in listed


def test_airflow_reads_an_option_from_the_environment() -> None:
    """``airflow config get-value`` gives the environment's value when there is one."""
    words = ("config", "get-value", "resumable", "on_clear")

    assert airflow(*words, AIRFLOW__RESUMABLE__ON_CLEAR="reconnect").split() == ["reconnect"]


def test_airflow_lists_the_provider_and_the_plugin() -> None:
    """``airflow providers list`` and ``airflow plugins`` name this package."""
    assert "airflow-resumable" in airflow("providers", "list")
    assert "airflow_resumable" in airflow("plugins")


def test_airflow_has_our_commands_beside_its_own() -> None:
    """``airflow resumable`` runs our commands, and Airflow's help still works and names the group."""
    assert "resumable" in airflow("--help")
    assert airflow("resumable", "version").startswith("airflow-resumable ")


def test_the_policy_module_imports_nothing_that_import_airflow_does_not() -> None:
    """Every Airflow process imports the policy: it may bring in nothing but itself."""
    policy = imported_by(
        "import airflow_resumable.integration.policy",
        after="import os; os.environ['_AIRFLOW__AS_LIBRARY'] = '1'; import airflow.policies",
    )
    ours = {name for name in imported_by("import airflow") if name.startswith("airflow_resumable")}

    assert policy - {"airflow_resumable", "airflow_resumable.integration"} == {
        "airflow_resumable.integration.policy"
    }
    # Provider info, which Airflow reads for its configuration, is all else that may come with it.
    assert ours - policy <= {
        "airflow_resumable",
        "airflow_resumable.integration",
        "airflow_resumable.integration.provider_info",
        "airflow_resumable.integration.settings",
    }


def test_reading_the_provider_info_imports_no_airflow() -> None:
    """Provider info is read while Airflow itself is being imported, so it may not import Airflow."""
    loaded = imported_by("from airflow_resumable.integration.provider_info import get_provider_info")

    assert "airflow" not in loaded


def test_the_entry_points_can_be_loaded() -> None:
    """Each entry point leads to something that can be imported."""
    found = distribution("airflow-resumable").entry_points

    assert {point.group for point in found} == {
        "airflow.plugins",
        "airflow.policy",
        "apache_airflow_provider",
        "console_scripts",
    }
    for point in found:
        assert point.load()


def test_the_package_is_one_namespace_with_two_roots() -> None:
    """Neither root has an ``__init__.py``, so both halves and a user's own can be installed apart."""
    assert not list(ROOT.glob("*/airflow_resumable/__init__.py"))
    assert _origin("airflow_resumable.operators") != _origin("airflow_resumable.integration")


def test_the_lock_file_names_no_index_and_pins_by_hash() -> None:
    """A lock file made anywhere installs anywhere: no address in it, and a hash for every version."""
    for lock in (ROOT / "requirements").glob("*.txt"):
        text = lock.read_text(encoding="utf-8")
        entries = text.split("\n    # via")
        assert "://" not in text
        assert "--index" not in text
        assert "--find-links" not in text
        assert len(entries) > 100
        pins = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
        assert all("==" in pin and pin.endswith("\\") for pin in pins)


def test_the_lock_file_has_equal_versions_of_the_two_pyspark_packages() -> None:
    """pyspark and pyspark-client install the same files, so they must be of one version."""
    text = (ROOT / "requirements" / "airflow-3.3.txt").read_text(encoding="utf-8")
    pins = dict(line.split()[0].split("==") for line in text.splitlines() if line.startswith("pyspark"))

    assert pins["pyspark"] == pins["pyspark-client"]


def test_extras_are_those_the_documentation_names() -> None:
    """The extras' names are part of the install command that users copy."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert set(project["optional-dependencies"]) == {"spark", "amazon", "google", "kubernetes"}


def test_generated_files_are_up_to_date() -> None:
    """The configuration reference says what the code says."""
    done = run(sys.executable, "-m", "scripts.generate", "--check", PYTHONPATH=str(ROOT))

    assert done.returncode == 0, done.stdout


def _origin(module: str) -> str:
    from importlib.util import find_spec

    spec = find_spec(module)
    if spec is None or spec.origin is None:
        pytest.fail(f"{module} is not installed")
    return spec.origin


def test_the_wheel_holds_both_source_roots_the_examples_and_nothing_else(tmp_path: Path) -> None:
    """What a user installs: one namespace, `py.typed`, three Dags, the licence; no tests, no caches."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in (
        "airflow_resumable/py.typed",
        "airflow_resumable/sdk.py",
        "airflow_resumable/operators/spark_submit.py",
        "airflow_resumable/testing/data/SleepApp.java",
        "airflow_resumable/testing/demo/local_jobs.py",
        "airflow_resumable/example_dags/paginated_api.py",
    ):
        assert wanted in names
    assert not [name for name in names if "__pycache__" in name or not name.startswith("airflow_resumable")]
    assert "airflow_resumable/__init__.py" not in names

#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
#
# Installs a BigQuery emulator for the tests, once: local-bigquery, which keeps its tables in DuckDB, in a
# virtual environment of its own, since it needs Python 3.13 or newer. Takes about a minute, 900 MB and no root.
#
#   scripts/bigquery_emulator.sh [FOLDER]
#
# FOLDER is where it is kept, by default $XDG_CACHE_HOME/airflow-resumable/bigquery; the tests look there. What is
# there already is left alone. PYTHON names the Python to use, where the ones on PATH won't do.

set -euo pipefail

folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/airflow-resumable/bigquery}
duckdb=1.4.4
extensions=1.4.4.20260205
packages=(
	local-bigquery==0.4.0
	# Older than what local-bigquery asks for: for the newer ones there are no extensions as packages, and the
	# tests fetch nothing.
	duckdb==$duckdb
	annotated-doc==0.0.7 annotated-types==0.8.0 anyio==4.16.0 certifi==2026.10.19.post1 cffi==2.1.1
	charset-normalizer==3.5.3 click==8.5.1 cryptography==50.0.2 fastapi==0.165.0 fastavro==1.13.1
	google-api-core==2.44.0 google-auth==2.63.0 google-cloud-bigquery-storage==2.43.0
	googleapis-common-protos==1.76.0 grpcio==1.85.3 grpcio-status==1.85.3 h11==0.16.0 idna==3.20
	mini-racer==0.14.1 numpy==2.5.5 opentelemetry-api==1.45.2 prompt-toolkit==3.0.53 proto-plus==1.29.0
	protobuf==7.36.2 pyarrow==26.0.1 pyasn1==0.6.5 pyasn1-modules==0.4.2 pycparser==3.12 pydantic==2.14.4
	pydantic-core==2.50.5 pydantic-settings==2.16.3 pygments==2.21.0 python-dotenv==1.2.4 requests==2.34.2
	sqlglot==30.30.0 starlette==1.10.0 typing-extensions==4.16.0 typing-inspection==0.4.5 urllib3==2.8.0
	uvicorn==0.54.0 wcwidth==0.9.4
)
# Another stamp, another installation: raise the number when what is done below changes.
stamp="${packages[*]} $extensions build 1"

fail() {
	echo "bigquery_emulator.sh: $*" >&2
	exit 1
}

mkdir -p "$folder" || fail "$folder can't be made; name another folder"
exec 9>"$folder/.lock"
flock 9

# The virtual environment leads to the Python that it was made with, which may be gone since.
if [ "$(cat "$folder/stamp" 2>/dev/null)" = "$stamp" ] && "$folder/python/bin/python" -c '' 2>/dev/null; then
	echo "The BigQuery emulator is in $folder already."
	exit 0
fi

# A name on PATH proves nothing: a version manager's shim may be there for a Python that isn't.
python=
for candidate in ${PYTHON:-} python3.13 python3.14 python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[345].*/bin/python; do
	if "$candidate" -c 'import ensurepip, sys; sys.exit(not (3, 13) <= sys.version_info < (3, 16))' 2>/dev/null; then
		python=$candidate
		break
	fi
done
[ -n "$python" ] || fail "needs Python 3.13, 3.14 or 3.15; install one, or name it by PYTHON"

rm -rf "$folder/stamp" "$folder/python" "$folder/home" "$folder/wheels"
"$python" -m venv "$folder/python" || fail "$python can't make a virtual environment"
pip=("$folder/python/bin/python" -m pip --disable-pip-version-check --no-input)
"${pip[@]}" install -q --no-deps "${packages[@]}" || fail "the packages can't be installed, see above"

# DuckDB looks for its extensions below HOME, and would fetch what isn't there. The packages that carry them
# are made for older Pythons, and there is no Python in them.
"${pip[@]}" install -q --no-deps --target "$folder/wheels" --only-binary :all: --python-version 3.12 \
	duckdb-ext-{icu,ducklake,json,parquet,spatial}==$extensions || fail "DuckDB's extensions can't be installed"
mkdir -p "$folder/home/.duckdb/extensions"
mv "$folder"/wheels/duckdb_ext/extensions/v$duckdb "$folder/home/.duckdb/extensions/"
rm -rf "$folder/wheels"

echo "$stamp" >"$folder/stamp"
echo "The BigQuery emulator is in $folder."

#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds a Kubernetes control plane for the tests, once: kube-apiserver and kube-controller-manager 1.20.2 from
# Debian's source package, which has all that they are made of; no registry of Debian's or Kubernetes' has the
# programs. Needs root (apt-get) and Debian 12, and takes about five minutes on two cores.
#
#   scripts/kubernetes_control_plane.sh [FOLDER]
#
# FOLDER is where the programs are kept, by default $XDG_CACHE_HOME/airflow-resumable/kubernetes; the tests look
# there. What is there already is left alone.

set -euo pipefail

folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/airflow-resumable/kubernetes}
version='1.20.5+really1.20.2-1.1+deb12u1'
programs=(kube-apiserver kube-controller-manager)
# Another stamp, another build: raise the number when what is built below changes.
stamp="$version build 1"

fail() {
	echo "kubernetes_control_plane.sh: $*" >&2
	exit 1
}

mkdir -p "$folder" || fail "$folder can't be made; name another folder"
exec 9>"$folder/.lock"
flock 9

export DEBIAN_FRONTEND=noninteractive
install() {
	[ "$(id -u)" -eq 0 ] || fail "$* must be installed with apt-get, which needs root: run this as root once"
	apt-get install -q -y --no-install-recommends "$@" || {
		apt-get update -q && apt-get install -q -y --no-install-recommends "$@"
	} || fail "apt-get could not install $*"
}

if ! command -v etcd >/dev/null; then
	# The package starts a server of its own; the tests start theirs.
	blocker=/usr/sbin/policy-rc.d
	if [ -e $blocker ]; then
		install etcd-server
	else
		printf '#!/bin/sh\nexit 101\n' >$blocker && chmod +x $blocker
		trap 'rm -f $blocker' EXIT
		install etcd-server
		rm -f $blocker
	fi
fi

if [ "$(cat "$folder/stamp" 2>/dev/null)" = "$stamp" ] && [ -x "$folder/${programs[0]}" ] && [ -x "$folder/${programs[1]}" ]; then
	echo "The control plane is in $folder already."
	exit 0
fi

command -v apt-get >/dev/null || fail "needs Debian 12 (apt-get); elsewhere name a cluster: AIRFLOW_RESUMABLE_KUBECONFIG"
missing=()
[ -x /usr/lib/go-1.19/bin/go ] || missing+=(golang-1.19-go)
[ -d /usr/share/gocode/src/github.com/modern-go/reflect2 ] || missing+=(golang-github-modern-go-reflect2-dev)
for program in rsync jq make git; do command -v $program >/dev/null || missing+=($program); done
[ ${#missing[@]} -eq 0 ] || install "${missing[@]}"

# What a killed run left.
rm -rf "$folder"/build-??????
work=$(mktemp -d "$folder/build-XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"

# The source package, by the mirror that this machine takes its programs from.
mirror() { apt-get indextargets --format '$(RELEASE) $(SITE)' 'Created-By: Packages' | sed -n 's/^bookworm //p' | head -n 1; }
site=$(mirror)
if [ -z "$site" ] && [ "$(id -u)" -eq 0 ]; then
	# Only lists that have been fetched are shown.
	apt-get update -q
	site=$(mirror)
fi
[ -n "$site" ] || fail "no source of Debian 12 (bookworm) in this machine's apt; elsewhere name a cluster: AIRFLOW_RESUMABLE_KUBECONFIG"
key=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e $key ] || fail "no $key: install debian-archive-keyring"
echo "deb-src [signed-by=$key] $site bookworm main" >sources.list
mkdir -p lists/partial cache/archives/partial
apt=(-q -o "Dir::Etc::SourceList=$work/sources.list" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$work/lists"
	-o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root)
apt-get "${apt[@]}" update || fail "the list of source packages can't be fetched"
apt-get "${apt[@]}" source --download-only "kubernetes=$version" || fail "the source package of Kubernetes can't be fetched"

mkdir src
tar xzf kubernetes_1.20*.orig.tar.gz -C src --strip-components=1
cd src

# Built with Go 1.19, reflect2 1.0.1 crashes the API server when it is asked for indented JSON.
reflect2=vendor/github.com/modern-go/reflect2
rm -rf $reflect2
cp -rL /usr/share/gocode/src/github.com/modern-go/reflect2 $reflect2

# Spark's driver service leaves out a port's protocol. Kubernetes fills it in, but 1.20 doesn't say so in its
# schema, by which a server-side apply tells ports apart, and refuses.
types=staging/src/k8s.io/api/core/v1/types.go
awk '
	/^type ServicePort struct/ { inside = 1 }
	inside && /^}/ { inside = 0 }
	inside && /^\tProtocol Protocol `json:"protocol,omitempty"/ { print "\t// +default=\"TCP\""; found = 1 }
	{ print }
	END { exit !found }
' $types >types.go.new || fail "ServicePort has no field Protocol where it was expected"
mv types.go.new $types

export PATH=/usr/lib/go-1.19/bin:$PATH GOPROXY=off GOSUMDB=off GOFLAGS= CGO_ENABLED=0
export GOPATH=$work/go GOCACHE=$work/cache/go TMPDIR=$work
export KUBE_GIT_TREE_STATE=archive KUBE_GIT_VERSION=v1.20.2 KUBE_GIT_MAJOR=1 KUBE_GIT_MINOR=20 KUBE_GIT_COMMIT=debian
nice -n 5 make all WHAT="${programs[*]/#/cmd/}" GOLDFLAGS='-s -w' </dev/null || fail "the build failed, see above"

for program in "${programs[@]}"; do
	mv "_output/local/go/bin/$program" "$folder/$program.new"
	mv "$folder/$program.new" "$folder/$program"
done
chmod -R u+w "$work" # Go's module cache is read-only
echo "$stamp" >"$folder/stamp"
echo "The control plane is in $folder."

# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A client of the job service that passes every error on: its callers classify them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self
from urllib.parse import quote

JobId = str | int


class JobServiceClient:
    """Talks to one job service over kept-alive connections; may be shared by threads.

    Every method raises ``httpx.HTTPStatusError`` for a 4xx or 5xx reply, ``httpx.TransportError`` when there
    was no reply (connection refused, reset, closed, timed out), and ``httpx.DecodingError`` when the reply is
    torn JSON. All of them are ``httpx.HTTPError``. Nothing is tried again.

    Args:
        url: Base URL of the service.
        client_name: Free text that the request log shows as ``client``.
        timeout: Seconds to wait for a connection, and for each part of a reply.
    """

    def __init__(self, url: str, *, client_name: str = "", timeout: float = 5.0) -> None:
        # Imported late: the service itself imports this package and has no need of httpx.
        import ssl

        import httpx

        if any(ord(character) < 32 for character in client_name):
            raise ValueError(f"client_name={client_name!r} is not accepted; allowed: no control characters")
        headers = {b"X-Client": client_name.encode()} if client_name else {}
        self.timeout = timeout
        self._http = httpx.Client(
            base_url=url,
            headers=headers,
            timeout=timeout,
            # A proxy set in the environment has no business between two processes of this machine.
            trust_env=False,
            # Plain HTTP only: an empty context saves loading the certificates, some 50 ms each time.
            verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        )

    def __enter__(self) -> Self:
        """Return the client; leaving the block closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close the connections; the client can't be used any more."""
        self._http.close()

    def submit(
        self,
        command: Sequence[str],
        *,
        token: str | None = None,
        family: str | None = None,
        name: str | None = None,
        location: str | None = None,
    ) -> dict[str, Any]:
        """Start a job and return it; ``created`` is False when the token's job was there already.

        Args:
            command: The program and its arguments.
            token: Idempotency token, 1 to 64 of ``A-Z a-z 0-9 . _ -``.
            family: What the jobs of one task instance share; ``find`` lists by it.
            name: Free text.
            location: Free text, a region for instance; ``find`` lists by it.

        Raises:
            httpx.HTTPStatusError: 409 ``token_conflict`` when the token's job is another one; that job is
                ``job`` in the JSON of the error's ``response``.
        """
        optional = {"token": token, "family": family, "name": name, "location": location}
        return self._json("POST", "/jobs", json={"command": list(command), **_given(optional)})

    def status(self, job_id: JobId) -> dict[str, Any]:
        """Return a job; 404 ``not_found`` when it is unknown or forgotten."""
        return self._json("GET", _job_path(job_id))

    def wait(self, job_id: JobId, timeout: float = 10.0) -> dict[str, Any]:
        """Return a job once it is finished; one logged status request.

        Args:
            job_id: The job.
            timeout: Seconds to wait, at most 600.

        Raises:
            TimeoutError: The job isn't finished by then.
        """
        job = self._json("GET", _job_path(job_id), params={"wait": timeout}, timeout=timeout + self.timeout)
        if job["finished_at"] is None:
            raise TimeoutError(f"job {job_id!r} is still {job.get('status')} after {timeout:g} s")
        return job

    def find(
        self,
        *,
        token: str | None = None,
        family: str | None = None,
        location: str | None = None,
        since: float | None = None,
        limit: int = 100,
    ) -> list[dict[str, Any]]:
        """List jobs, newest first.

        Args:
            token: Only the job with this token.
            family: Only jobs of this family.
            location: Only jobs in this location.
            since: Only jobs submitted at this time or later, epoch seconds.
            limit: Jobs to return at most; each 100 of them cost one request.
        """
        params = _given({"token": token, "family": family, "location": location, "since": since})
        jobs: list[dict[str, Any]] = []
        while True:
            page = self._json("GET", "/jobs", params=params)
            jobs += page["jobs"]
            if page["next_page_token"] is None or len(jobs) >= limit:
                return jobs[:limit]
            params["page_token"] = page["next_page_token"]

    def cancel(self, job_id: JobId) -> dict[str, Any]:
        """Ask a job to stop and return it; 409 ``already_finished``, 404 ``not_found``."""
        return self._json("POST", _job_path(job_id) + "/cancel")

    def forget(self, job_id: JobId) -> None:
        """Make the service forget a job, whose process runs on; 404 ``not_found``."""
        self._json("DELETE", _job_path(job_id))

    def renew_credential(self) -> str:
        """Get a new credential and use it from now on; for a service started with ``--credential-uses``."""
        credential = str(self._json("POST", "/credentials")["credential"])
        self._http.headers["Authorization"] = f"Bearer {credential}"
        return credential

    def log(self, *, wait: float = 0.0, **filters: Any) -> list[dict[str, Any]]:
        """Return the request log, oldest first.

        Args:
            wait: Seconds to wait for a first request that matches.
            filters: Any of verb, job, token, family, fault, created, since_seq (numbers above it).
        """
        params = _given({**filters, "wait": wait or None})
        body = self._json("GET", "/log", params=params, timeout=wait + self.timeout)
        requests: list[dict[str, Any]] = body["requests"]
        return requests

    def add_fault(self, verb: str, kind: str, **more: Any) -> str:
        """Put a fault in force and return its id.

        Args:
            verb: submit, status, find, cancel, forget or credentials.
            kind: What goes wrong, see ``airflow_resumable.testing.jobservice.faults``.
            more: Any of times, after, job, token, family, seconds, status.
        """
        return str(self._json("POST", "/faults", json={"verb": verb, "kind": kind, **more})["id"])

    def faults(self) -> list[dict[str, Any]]:
        """List the faults, used-up ones included, oldest first."""
        faults: list[dict[str, Any]] = self._json("GET", "/faults")["faults"]
        return faults

    def delete_fault(self, fault_id: str) -> None:
        """Delete a fault and release what it holds."""
        self._json("DELETE", "/faults/" + quote(fault_id, safe=""))

    def clear_faults(self) -> None:
        """Delete every fault and release what they hold."""
        self._json("DELETE", "/faults")

    def health(self) -> dict[str, Any]:
        """Return ``ok`` and the service's ``pid``."""
        return self._json("GET", "/health")

    def _json(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        import httpx

        response = self._http.request(method, path, **options)
        response.raise_for_status()
        try:
            body: dict[str, Any] = response.json()
        except ValueError as error:
            raise httpx.DecodingError(
                f"{method} {path}: the reply is not JSON: {response.text[:200]!r}", request=response.request
            ) from error
        return body


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _job_path(job_id: JobId) -> str:
    return "/jobs/" + quote(str(job_id), safe="")

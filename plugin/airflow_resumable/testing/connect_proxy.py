# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
"""A gateway before a real Spark Connect server, to count its requests and to fail as networks do."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Literal, Self

from airflow_resumable.operators._connect_errors import grpc

Fault = Literal["unavailable", "lost_reply", "denied", "unimplemented", "broken"]

_DETAILS = "grpc-status-details-bin"
_STREAMS = ("ExecutePlan", "ReattachExecute")
_STATUS = {
    "unavailable": grpc.StatusCode.UNAVAILABLE,
    "lost_reply": grpc.StatusCode.UNAVAILABLE,
    "denied": grpc.StatusCode.PERMISSION_DENIED,
    "unimplemented": grpc.StatusCode.UNIMPLEMENTED,
    # What gRPC makes of a stream that a gateway resets; Spark's own failures have the same status.
    "broken": grpc.StatusCode.INTERNAL,
}


class ConnectProxy:
    """Passes requests on and lets a test break some.

    Args:
        port: Where the real server listens.

    Attributes:
        requests: How many requests came, by method.
        broken: When requests were broken, seconds since the epoch.
        plans: The bytes of every request that starts an operation.
        asked: Gets the method before the request is passed on; may wait.
        held: Gets the method before an answer is passed back, each one of a stream; may wait.
    """

    def __init__(self, port: int) -> None:
        self.requests: Counter[str] = Counter()
        self.broken: list[float] = []
        self.plans: list[bytes] = []
        self.asked: Callable[[str], None] = lambda method: None
        self.held: Callable[[str], None] = lambda method: None
        self._faults: list[tuple[tuple[str, ...], Fault, int]] = []
        self._lock = threading.Lock()
        self._upstream = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._server = grpc.server(ThreadPoolExecutor(32), handlers=(_Handler(self._handler),))
        self.port: int = self._server.add_insecure_port("127.0.0.1:0")

    def __enter__(self) -> Self:
        """Listen."""
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening."""
        self._server.stop(0).wait()
        self._upstream.close()

    def fail(self, methods: tuple[str, ...], fault: Fault, times: int) -> None:
        """Break the next requests to some methods."""
        with self._lock:
            self._faults.append((methods, fault, times))

    def _fault(self, method: str) -> Fault | None:
        with self._lock:
            self.requests[method] += 1
            for index, (methods, fault, times) in enumerate(self._faults):
                if method in methods and times > 0:
                    self._faults[index] = (methods, fault, times - 1)
                    self.broken.append(time.time())
                    return fault
        return None

    def _handler(self, path: str) -> Any:
        method = path.rpartition("/")[2]
        if method in _STREAMS:
            return grpc.unary_stream_rpc_method_handler(
                lambda request, context: self._stream(path, method, request, context)
            )
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._unary(path, method, request, context)
        )

    def _unary(self, path: str, method: str, request: bytes, context: Any) -> Any:
        fault = self._fault(method)
        if fault not in (None, "lost_reply"):
            context.abort(_STATUS[fault], f"{fault}, by the test")
        self.asked(method)
        try:
            answer = self._upstream.unary_unary(path)(request, timeout=_limit(context))
        except grpc.RpcError as error:
            context.set_trailing_metadata(
                [(key, value) for key, value in error.trailing_metadata() or () if key == _DETAILS]
            )
            context.abort(error.code(), error.details())
        if fault is not None:
            context.abort(_STATUS[fault], f"{fault}, by the test")
        self.held(method)
        return answer

    def _stream(self, path: str, method: str, request: bytes, context: Any) -> Iterator[Any]:
        if method == "ExecutePlan":
            self.plans.append(request)
        fault = self._fault(method)
        if fault not in (None, "lost_reply"):
            context.abort(_STATUS[fault], f"{fault}, by the test")
        self.asked(method)
        call = self._upstream.unary_stream(path)(request, timeout=_limit(context))
        context.add_callback(call.cancel)
        try:
            for answer in call:
                if fault is not None:
                    context.abort(_STATUS[fault], f"{fault}, by the test")
                self.held(method)
                yield answer
        except grpc.RpcError as error:
            context.set_trailing_metadata(
                [(key, value) for key, value in error.trailing_metadata() or () if key == _DETAILS]
            )
            context.abort(error.code(), error.details())


def _limit(context: Any) -> float | None:
    # Without a deadline it is a number so large that it overflows on its way on.
    left: float | None = context.time_remaining()
    return left if left is not None and left < 10_000 else None


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, find: Callable[[str], Any]) -> None:
        self._find = find

    def service(self, handler_call_details: Any) -> Any:
        """Return what answers one request."""
        return self._find(handler_call_details.method)

"""The tool host: the process that loads the tools of users once, and forks a child for each
call.

`python -m handoff_queue.workers.tools.tool_host_process CONTROL CONFIG REPORTS` gets three
inherited descriptors: a socket for requests to fork, a file with a `HostConfig`, and a pipe for
its reports. A child reads its `CallRequest` from its stdin, which is a socket, and writes its
result to the same socket.
"""

from __future__ import annotations

import gc
import os
import resource
import signal
import socket
import sys
import time
import traceback
from base64 import b64encode
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from pydantic import BaseModel

from handoff_queue.shared.agent.tool import ToolFailed
from handoff_queue.shared.local.fork_server_process import ForkedChild, ForkServerProcess
from handoff_queue.shared.text.unicode_text import replace_lone_surrogates
from handoff_queue.shared.types.errors import UserError
from handoff_queue.workers.tools.tool_confinement import (
    adopt_orphans,
    confine,
    find_border_fault,
    find_children,
    leave_networks,
    listen_within,
    open_internet_sockets_only,
    outlive_parent,
    separate_host,
)
from handoff_queue.workers.tools.tool_host_protocol import (
    INSTALLED,
    MAX_RESULT_BYTES,
    MAX_TEXT_CHARS,
    CallRequest,
    Failed,
    HostConfig,
    Loaded,
    Loading,
    NetworkAccess,
    Raised,
    Refused,
    Returned,
    ToolSource,
)
from handoff_queue.workers.tools.user_tools import (
    UserTool,
    load_installed_tools,
    load_tools,
    read_entry_points,
)

_KILLED_WITHIN_S = 2.0
"""Seconds that the processes which a call has left may take to end. Then the host goes on, and
tries again at the end of the next call.
"""
_PAUSE_S = 0.001
"""Seconds between two looks at processes that do not end at once."""


class _ToolForks(ForkServerProcess):
    """Forks the children of calls. At the end of a child it kills the processes that the child
    has left.
    """

    def __init__(self, control: socket.socket) -> None:
        super().__init__(control)
        self._of_the_files = find_children()
        """Processes that the user's files have started while they were loaded."""

    def end(self) -> None:
        """Kill all children and the processes that they have left."""
        for child in self._by_pidfd.values():
            self._kill(child)
        self._kill_orphans(frozenset())

    def _kill(self, child: ForkedChild) -> None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)

    def _report_end(self, child: ForkedChild) -> None:
        self._kill(child)  # the group, whose leader has ended and is not yet waited for
        running = frozenset(child.pid for child in self._by_pidfd.values())
        self._kill_orphans(running | self._of_the_files)  # an orphan may trace the child
        super()._report_end(child)

    def _kill_orphans(self, spared: frozenset[int]) -> None:
        """Kill the children of this process that are not spared. They are processes without a
        parent, which have left the group of their call. The children of such a process become
        children of this process when it has ended.

        This process waits for no orphan, because the first process of a process namespace ends
        only after this process has reaped all others.
        """
        until = time.monotonic() + _KILLED_WITHIN_S
        while orphans := find_children() - spared:
            for pid in orphans:
                os.kill(pid, signal.SIGKILL)
            reaped = [pid for pid in orphans if os.waitpid(pid, os.WNOHANG)[0]]
            if time.monotonic() > until:
                return
            if not reaped:
                time.sleep(_PAUSE_S)


def _load(config: HostConfig, reports: int) -> dict[str, UserTool]:
    """Load all tools, report their definitions, and return the tools by name.

    Raises:
        SystemExit: a tool cannot be loaded. The report has the reason.
    """

    def send_report(message: BaseModel) -> None:
        with open(reports, "wb", closefd=False) as pipe:
            pipe.write(message.model_dump_json().encode() + b"\n")

    def report_loading(place: str) -> None:
        send_report(Loading(loading=replace_lone_surrogates(place)[:MAX_TEXT_CHARS]))

    try:
        loaded = [(INSTALLED, load_installed_tools(read_entry_points(), report_loading))]
        for folder in config.folders:
            loaded.append((folder, load_tools(Path(folder), report_loading)))
    except UserError as error:
        why = replace_lone_surrogates(str(error))
        send_report(Refused(refused=why))
        raise SystemExit(UserError.exit_code) from None
    sources: list[ToolSource] = []
    tools: dict[str, UserTool] = {}
    limits_networks = config.may_limit_networks
    for place, tools_of_place in loaded:
        definitions = [tool.definition for tool in tools_of_place]
        sources.append(ToolSource(place=place, tools=tuple(definitions)))
        for tool in tools_of_place:
            tools[tool.name] = tool
            if tool.definition.network is not None:
                limits_networks = True
    fault = find_border_fault() if limits_networks else ""
    send_report(Loaded(sources=tuple(sources), border_fault=fault))
    return tools


def _run_call(tool: UserTool | None, config: HostConfig) -> NoReturn:
    """Run one call in a child, write its result, and end the child."""
    connection = os.dup(0)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    with open(connection, "rb", closefd=False) as incoming:
        request = CallRequest.model_validate_json(incoming.readline())
    result: Returned | Failed | Raised
    try:
        proxy = _limit_network(request.network, connection)
    except OSError as error:
        why = error.strerror or type(error).__name__
        result = Failed(failed=f"not run: its network cannot be limited here ({why})")
    else:
        confine(config.limits)
        os.environ.update(request.secrets)
        os.environ.update(proxy)
        result = _call_tool(tool, request)
    _flush()
    line = result.model_dump_json().encode() + b"\n"
    if len(line) > MAX_RESULT_BYTES:
        text = f"it returned {len(line):,} bytes; at most {MAX_RESULT_BYTES:,} are passed on"
        line = Failed(failed=text).model_dump_json().encode() + b"\n"
    with open(connection, "wb", closefd=False) as outgoing:
        outgoing.write(line)
    os._exit(0)


def _limit_network(access: NetworkAccess, connection: int) -> dict[str, str]:
    """Take the networks from this process, and return the variables that name its proxy.

    Args:
        connection: descriptor of the socket to the worker.

    Raises:
        OSError: the kernel does not allow it.
    """
    if access is NetworkAccess.ALL:
        return {}
    leave_networks(connection)
    variables: dict[str, str] = {}
    if access is NetworkAccess.PROXY:
        with listen_within() as listener, socket.socket(fileno=os.dup(connection)) as worker:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            socket.send_fds(worker, [b"!"], [listener.fileno()])
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            variables[name] = url
    open_internet_sockets_only()
    return variables


def _call_tool(tool: UserTool | None, request: CallRequest) -> Returned | Failed | Raised:
    """Run a call of a tool, and return its result or its failure.

    Args:
        tool: None: the file of the tool does not define it any more.
    """
    if tool is None:
        return Failed(failed="its file does not define this tool any more: start the worker again")
    try:
        output = tool.function.call(request.arguments, request.context)
        images: list[str] = []
        for image in output.images:
            images.append(b64encode(image.data).decode())
        return Returned(text=replace_lone_surrogates(output.text), images=tuple(images))
    except BaseException as error:  # noqa: BLE001 - a user's tool may raise anything
        return _describe_failure(error)


def _describe_failure(error: BaseException) -> Failed | Raised:
    kind = type(error).__name__
    if isinstance(error, ToolFailed):
        try:
            return Failed(failed=replace_lone_surrogates(str(error)))
        except BaseException as again:  # noqa: BLE001 - a user's subclass may have any `__str__`
            kind = type(again).__name__
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = f"{Path(place.filename).name}:{place.lineno}"
    if not kind.isidentifier():
        kind = "Exception"
    return Raised(raised=kind[:100], place=replace_lone_surrogates(text)[:MAX_TEXT_CHARS])


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # a user may have put any object there
            stream.flush()


def main() -> NoReturn:
    """Load the tools, and fork children until the worker has gone."""
    control_fd, config_fd, reports = map(int, sys.argv[1:])
    os.set_inheritable(reports, False)
    control = socket.socket(fileno=control_fd)
    control.set_inheritable(False)
    with open(config_fd, "rb") as file:  # noqa: PTH123 - no path
        config = HostConfig.model_validate_json(file.read())
    sys.path[:] = config.python_path
    _, max_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max_files, max_files))
    gc.disable()  # it finds nothing during an import, and takes a fifth of the time
    separate_host()
    tools = _load(config, reports)
    os.close(reports)
    from setproctitle import getproctitle  # a program without workers does not have it

    getproctitle()  # it finds the memory for titles only while the environment is unchanged
    gc.enable()
    gc.collect()
    gc.freeze()  # the children share these pages until a write
    adopt_orphans()
    outlive_parent()  # the end of `control` tells this process to end
    forks = _ToolForks(control)
    order = forks.serve()
    if order is not None:
        _run_call(tools.get(order.arguments[0]), config)
    forks.end()
    os._exit(0)


if __name__ == "__main__":
    main()

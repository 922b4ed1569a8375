"""A call of a user's tool reaches no network that its policy does not allow."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import pytest

from handoff_queue.shared.agent.tool import Tool
from handoff_queue.shared.agent.tool_policy import NetworkRule, PolicyRules
from handoff_queue.workers.tools.network_proxy import Network
from tests.doubles.function_tools import hosted, write_tools
from tests.workers.tools.contexts import ToolHarness

pytestmark = pytest.mark.slow

ALLOWED = "allowed.example.org"
UNNAMED = "other.example.org"
REBOUND = "private.example.org"
"""Allowed host whose name server answers with a private address."""
TOOLS = '''
"""Tools that look for a way out."""

import ctypes
import http.client
import os
import socket
import subprocess
import sys
import urllib.request

from handoff_queue import tool

_SOCKET_OF_THE_IMPORT = socket.socket()
_RING_OF_THE_IMPORT = ctypes.CDLL(None).syscall(425, 4, ctypes.create_string_buffer(120))
_OTHER_NUMBERS = 0x40000000


def free(way: str, port: int, path: str, host: str = "") -> str:
    """Try one way out, and return the text that came back."""
    try:
        return _WAYS[way](port, path, host)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@tool(network="none")
def shut_in(way: str, port: int, path: str, host: str = "") -> str:
    """Try one way out without a network."""
    return free(way, port, path, host)


@tool(network=["allowed.example.org", "private.example.org"])
def listed(way: str, port: int, path: str, host: str = "") -> str:
    """Try one way out with two hosts."""
    return free(way, port, path, host)


def _connected(one, address):
    with one:
        one.settimeout(5)
        one.connect(address)
        one.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
        return one.recv(1_000).decode()


def _raw(port, path, host):
    return _connected(socket.socket(), ("127.0.0.1", port))


def _raw6(port, path, host):
    return _connected(socket.socket(socket.AF_INET6), ("::1", port))


def _inherited(port, path, host):
    return _connected(_SOCKET_OF_THE_IMPORT, ("127.0.0.1", port))


def _datagram(port, path, host):
    with socket.socket(type=socket.SOCK_DGRAM) as one:
        one.settimeout(1)
        one.sendto(b"hello", ("127.0.0.1", port))
        return one.recv(1_000).decode()


def _unix(port, path, host):
    return _connected(socket.socket(socket.AF_UNIX), path)


def _abstract(port, path, host):
    return _connected(socket.socket(socket.AF_UNIX), "\\0" + path)


def _pair(port, path, host):
    first, second = socket.socketpair(type=socket.SOCK_DGRAM)
    first.sendto(b"hello", path + ".datagram")
    return "sent"


def _virtual_machine(port, path, host):
    return _connected(socket.socket(socket.AF_VSOCK), (socket.VMADDR_CID_HOST, port))


def _io_uring(port, path, host):
    libc = ctypes.CDLL(None, use_errno=True)
    ring = libc.syscall(425, 4, ctypes.create_string_buffer(120))
    return "a ring" if ring >= 0 else os.strerror(ctypes.get_errno())


def _ring_of_the_import(port, path, host):
    return "a ring that has reached a socket" if _RING_OF_THE_IMPORT >= 0 else "no ring"


def _x32(port, path, host):
    libc = ctypes.CDLL(None, use_errno=True)
    number = libc.syscall(_OTHER_NUMBERS + 41, 1, 1, 0)
    return "a socket" if number >= 0 else os.strerror(ctypes.get_errno())


def _urllib(port, path, host):
    url = f"http://{host or '127.0.0.1'}:{port}/"
    return urllib.request.urlopen(url, timeout=5).read().decode()


def _without_proxy(port, path, host):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return opener.open(f"http://127.0.0.1:{port}/", timeout=5).read().decode()


def _tunnel(port, path, host):
    proxy = os.environ["HTTPS_PROXY"].removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(proxy[0], int(proxy[1]), timeout=5)
    connection.set_tunnel(host, port)
    connection.request("GET", "/")
    return connection.getresponse().read().decode()


def _head(port, path, host):
    proxy = os.environ["HTTPS_PROXY"].removeprefix("http://").split(":")
    with socket.create_connection((proxy[0], int(proxy[1])), 5) as one:
        one.sendall(host.encode() + b"\\r\\n\\r\\n")
        return one.recv(1_000).decode()


def _forked(port, path, host):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.write(writer, free("raw", port, path).encode())
        os._exit(0)
    return os.read(reader, 1_000).decode()


def _program(port, path, host):
    code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5); print('connected')"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout


def _name_server(port, path, host):
    return str(socket.getaddrinfo("example.org", 80))


def _namespace_of_another(port, path, host):
    libc = ctypes.CDLL(None, use_errno=True)
    for pid in (os.getppid(), 1):
        try:
            with open(f"/proc/{pid}/ns/net") as file:
                if libc.setns(file.fileno(), 0) == 0:
                    return _raw(port, path, host)
        except OSError:
            pass
    raise PermissionError("no namespace")


def _namespace_of_its_own(port, path, host):
    ctypes.CDLL(None, use_errno=True).unshare(0x10000000)
    return _namespace_of_another(port, path, host)


_WAYS = {
    name[1:]: function
    for name, function in list(globals().items())
    if name.startswith("_") and callable(function) and name not in ("_connected",)
}
'''
OPEN_WAYS = (
    "raw",
    "raw6",
    "inherited",
    "datagram",
    "unix",
    "abstract",
    "pair",
    "urllib",
    "without_proxy",
    "forked",
    "program",
)
"""Ways that lead out without a limit."""
OTHER_WAYS = (
    "virtual_machine",
    "io_uring",
    "ring_of_the_import",
    "x32",
    "name_server",
    "namespace_of_another",
    "namespace_of_its_own",
)
REFUSED_BY_FILTER = ("unix", "abstract", "pair", "virtual_machine", "io_uring", "x32")
AS_NOBODY = """
import ctypes, os, socket, sys
from handoff_queue.workers.tools.tool_confinement import leave_networks, open_internet_sockets_only

if os.getuid() == 0:
    os.setresgid(65_534, 65_534, 65_534)
    os.setresuid(65_534, 65_534, 65_534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # /proc/self belongs to the new user
socket.socket().connect(("127.0.0.1", int(sys.argv[1])))
leave_networks(-1)
open_internet_sockets_only()
try:
    socket.socket().connect(("127.0.0.1", int(sys.argv[1])))
except OSError as error:
    print(type(error).__name__)
"""


WITHOUT_NAMESPACES = """
import ctypes, sys
from pathlib import Path

from handoff_queue.shared.settings.settings import Settings
from handoff_queue.shared.types.errors import InvalidTool
from handoff_queue.workers.tools.hosted_tools import host_tools
from handoff_queue.workers.tools.seccomp_filter import build_internet_only_filter
from handoff_queue.workers.tools.seccomp_filter import filter_system_calls
from handoff_queue.workers.tools.tool_host import build_tool_limits

filter_system_calls(build_internet_only_filter("unshare"))
try:
    host_tools((Path(sys.argv[1]),), build_tool_limits(Settings(offline=True)))
except InvalidTool as error:
    print(error)
"""


def serve(listener: socket.socket) -> None:
    """Answer each connection with the first line and the host of its request."""
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        with client:
            lines = client.recv(65_536).decode().split("\r\n")
            host = [line for line in lines if line.startswith("Host")]
            client.sendall(f"HTTP/1.0 200 OK\r\n\r\nreached by {lines[0]} {host}".encode())


def echo(datagrams: socket.socket) -> None:
    while (received := datagrams.recvfrom(1_000))[0] != b"end":
        datagrams.sendto(b"reached", received[1])


@dataclass(frozen=True, slots=True)
class Outside:
    """Servers that no limited call may reach."""

    port: int
    """Of TCP and UDP on 127.0.0.1, and of TCP on ::1."""
    path: str
    """Of a Unix socket, of an abstract one, and with `.datagram` of a socket for datagrams."""


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    path = str(tmp_path_factory.mktemp("outside") / "socket")
    with ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = tcp.getsockname()[1]
        tcp6 = stack.enter_context(socket.create_server(("::1", port), family=socket.AF_INET6))
        listeners = [tcp, tcp6]
        for name in (path, f"\0{path}"):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(name)
            listener.listen()
            listeners.append(listener)
        unread = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        unread.bind(f"{path}.datagram")
        udp = stack.enter_context(socket.socket(type=socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", port))
        threads = [threading.Thread(target=serve, args=(listener,)) for listener in listeners]
        threads.append(threading.Thread(target=echo, args=(udp,)))
        for thread in threads:
            thread.start()
        yield Outside(port, path)
        for listener in listeners:
            listener.shutdown(socket.SHUT_RDWR)
        udp.sendto(b"end", ("127.0.0.1", port))
        for thread in threads:
            thread.join()


def resolve(host: str, _port: int) -> list[str]:
    """Return the addresses of the hosts of these tests."""
    return {ALLOWED: ["127.0.0.1"], REBOUND: ["127.0.0.1", "10.0.0.1"]}[host]


NETWORK = Network(resolve, lambda address: address == ip_address("127.0.0.1"))
"""The network of the tests: 127.0.0.1 stands for a public address."""


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Tool]]:
    folder = write_tools(tmp_path_factory.mktemp("tools"), {"ways": TOOLS})
    with hosted(folder, network=NETWORK) as tools:
        yield tools


def tried(tool: Tool, way: str, outside: Outside, host: str = "") -> str:
    return ToolHarness().call(tool, way=way, port=outside.port, path=outside.path, host=host)


def run(program: str, argument: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, argument]
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.mark.parametrize("way", OPEN_WAYS)
def test_a_tool_without_a_limit_has_these_ways_out(
    tools: dict[str, Tool], outside: Outside, way: str
) -> None:
    text = tried(tools["free"], way, outside)

    assert any(word in text for word in ("reached", "connected", "sent")), text


@pytest.mark.parametrize("name", ["shut_in", "listed"])
@pytest.mark.parametrize("way", [*OPEN_WAYS, *OTHER_WAYS])
def test_a_tool_with_a_limited_network_has_no_other_way_out(
    tools: dict[str, Tool], outside: Outside, name: str, way: str
) -> None:
    text = tried(tools[name], way, outside)

    assert not any(word in text for word in ("reached", "connected", "sent")), text
    if way in REFUSED_BY_FILTER:
        assert "Operation not permitted" in text


@pytest.mark.parametrize("way", ["urllib", "tunnel"])
def test_a_tool_reaches_a_named_host_through_the_proxy(
    tools: dict[str, Tool], outside: Outside, way: str
) -> None:
    text = tried(tools["listed"], way, outside, ALLOWED)

    assert text == f"reached by GET / HTTP/1.1 ['Host: {ALLOWED}:{outside.port}']"


@pytest.mark.parametrize("way", ["urllib", "tunnel"])
@pytest.mark.parametrize(
    ("host", "why"),
    [
        (UNNAMED, "is not in the list of hosts of this tool"),
        ("127.0.0.1", "is not in the list of hosts of this tool"),
        (REBOUND, "is not on the public internet"),
    ],
)
def test_the_proxy_refuses_other_hosts_and_private_addresses_and_logs_them(
    tools: dict[str, Tool],
    outside: Outside,
    caplog: pytest.LogCaptureFixture,
    way: str,
    host: str,
    why: str,
) -> None:
    text = tried(tools["listed"], way, outside, host)

    assert "403" in text
    (line,) = [
        record.getMessage() for record in caplog.records if "kept from" in record.getMessage()
    ]
    assert f"{host} {why}" in line


@pytest.mark.parametrize(
    "head",
    [
        "GET / HTTP/1.1",
        "CONNECT allowed.example.org HTTP/1.1",
        "CONNECT allowed.example.org:99999 HTTP/1.1",
        "CONNECT allowed.example.org\x00.evil.example:80 HTTP/1.1",
        "CONNECT user@:80 HTTP/1.1",
        "CONNECT [::1]:80 HTTP/1.1",
        "GET ftp://allowed.example.org/ HTTP/1.1",
        "GET https://allowed.example.org/ HTTP/1.1",
        "GET http://allowed.example.org/ a HTTP/1.1",
        "nothing",
        "GET http://allowed.example.org/ HTTP/1.1\r\n" + "x" * 20_000,
    ],
)
def test_the_proxy_answers_a_strange_request_with_an_error(
    tools: dict[str, Tool], outside: Outside, head: str
) -> None:
    assert "400 Bad Request" in tried(tools["listed"], "head", outside, head)


def test_the_real_proxy_reaches_no_loopback(tmp_path: Path, outside: Outside) -> None:
    text = TOOLS.replace("private.example.org", "localhost")
    with hosted(write_tools(tmp_path / "tools", {"ways": text})) as tools:
        assert "403" in tried(tools["listed"], "urllib", outside, "localhost")


@pytest.mark.parametrize(
    ("hosts", "through_proxy", "directly"),
    [((ALLOWED,), True, False), ((), False, False), (None, False, True)],
)
def test_the_policy_of_the_operator_limits_a_tool(
    tmp_path: Path,
    outside: Outside,
    hosts: tuple[str, ...] | None,
    through_proxy: bool,
    directly: bool,
) -> None:
    rules = PolicyRules(networks=(NetworkRule(("f*",), hosts), NetworkRule(("*",), ())))
    folder = write_tools(tmp_path / "tools", {"ways": TOOLS})
    with hosted(folder, rules=rules, network=NETWORK) as tools:
        assert ("reached" in tried(tools["free"], "urllib", outside, ALLOWED)) == through_proxy
        assert ("reached" in tried(tools["free"], "raw", outside)) == directly


def test_the_policy_of_the_operator_opens_nothing_that_a_tool_shuts(
    tmp_path: Path, outside: Outside
) -> None:
    rules = PolicyRules(networks=(NetworkRule(("shut_in",), (ALLOWED,)), NetworkRule(("*",), None)))
    folder = write_tools(tmp_path / "tools", {"ways": TOOLS})
    with hosted(folder, rules=rules, network=NETWORK) as tools:
        assert "reached" not in tried(tools["shut_in"], "urllib", outside, ALLOWED)
        assert "reached" not in tried(tools["listed"], "urllib", outside, UNNAMED)


def test_a_process_without_the_rights_of_root_can_leave_all_networks(outside: Outside) -> None:
    program = run(AS_NOBODY, str(outside.port))

    assert program.stdout == "OSError\n", program.stderr


def test_a_worker_whose_kernel_has_no_namespaces_does_not_start(tmp_path: Path) -> None:
    folder = write_tools(tmp_path / "tools", {"ways": TOOLS})
    program = run(WITHOUT_NAMESPACES, str(folder))

    assert program.stdout == (
        "tool listed: its network is limited, but this machine cannot limit it (Operation not"
        " permitted): allow user namespaces and use Linux 5.19 or newer, or remove the limit\n"
    ), program.stderr

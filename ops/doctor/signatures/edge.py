"""nginx's error log."""

import re

from ops.doctor.signature import Signature, Source, Trouble, Weight

_EDGE = (Source.EDGE,)

SIGNATURES = (
    Signature(
        "edge-service-refuses",
        Trouble.CONNECTION,
        _EDGE,
        re.compile(
            r'connect\(\) failed \(111: Connection refused\) while connecting to upstream.*upstream: "(?P<url>[^"]+)"'
        ),
        "nginx finds nobody at {url}: that service is down or still starting.",
        "make status says which; its log says why. While the stack starts this is as it should be.",
        Weight.ECHO,
    ),
    Signature(
        "edge-name-unknown",
        Trouble.CONNECTION,
        _EDGE,
        re.compile(r"host not found in upstream \"(?P<name>[^\"]+)\"|\*\d+ (?P<other>[\w.-]+) could not be resolved"),
        "nginx finds no address for {name}{other}: that service's container is not there.",
        "make up starts it.",
        Weight.ECHO,
    ),
    Signature(
        "edge-timeout",
        Trouble.SPEED,
        _EDGE,
        re.compile(r"upstream timed out \(110: (?:Connection|Operation) timed out\) while reading response header"),
        "A service behind nginx was silent for longer than nginx waits.",
        "See what it waits for: make status, and the gateway's log by the same request id.",
        Weight.HINT,
    ),
    Signature(
        "edge-port-taken",
        Trouble.START,
        _EDGE,
        re.compile(r"bind\(\) to \S+:(?P<port>\d+) failed \(98: (?:Address already in use|Unknown error)\)"),
        "Another program holds nginx's port {port}.",
        "Stop it, or set NGINX_HTTP_PORT to a free port, then make up.",
        Weight.HINT,
    ),
    Signature(
        "edge-port-root",
        Trouble.START,
        _EDGE,
        re.compile(r"bind\(\) to \S+:(?P<port>\d+) failed \(13: Permission denied\)"),
        "nginx may not listen on port {port} without root.",
        "Set NGINX_HTTP_PORT to a port above 1023.",
        Weight.HINT,
    ),
    Signature(
        "edge-connections",
        Trouble.SPEED,
        _EDGE,
        re.compile(r"worker_connections are not enough"),
        "nginx has as many connections as it can hold.",
        "Find who holds them (the access log's client); lower NGINX_MAX_CONNECTIONS_PER_CLIENT.",
    ),
    Signature(
        "edge-flood",
        Trouble.SPEED,
        _EDGE,
        re.compile(r'limiting (?:requests|connections)\b.* by zone "(?P<zone>[^"]+)", client: (?P<client>\S+),'),
        "One address asks more than the shield lets through (zone {zone}).",
        "Block it if it is a flood; if it is a proxy of yours, raise NGINX_RATE_LIMIT_REQUESTS.",
    ),
    Signature(
        "edge-body-too-large",
        Trouble.SPEED,
        _EDGE,
        re.compile(r"client intended to send too large body: (?P<size>\d+) bytes"),
        "A request of {size} bytes was refused: it is larger than GATEWAY_MAX_BODY_BYTES.",
        "Raise GATEWAY_MAX_BODY_BYTES if such requests are meant; nginx, gateway and page follow it.",
    ),
    Signature(
        "edge-certificate",
        Trouble.CONNECTION,
        _EDGE,
        re.compile(r'cannot load certificate(?: key)? "(?P<file>[^"]+)"'),
        "nginx cannot use the certificate or key {file}.",
        "It must be PEM, readable to nginx's user, the key without a password and made for that certificate.",
    ),
)

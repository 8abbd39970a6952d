"""Probe of the endpoint of a service: its addresses, TLS, and the difference of the clocks.

The probe sends one unsigned request, which needs neither credentials nor permissions.
"""

from __future__ import annotations

import socket
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError, ClientError, SSLError
from botocore.httpsession import URLLib3Session
from botocore.utils import get_environ_proxies

from ddbio.aws.connection_pool import Connection
from ddbio.aws.endpoint_route import Api, RouteTable, ca_bundle, endpoint_of
from ddbio.aws.error_codes import to_ddbio_error
from ddbio.errors import EndpointError

if TYPE_CHECKING:
    from ddbio.aws.client import ClientSpec


@dataclass(frozen=True)
class Reach:
    """Result of a probe.

    Attributes
    ----------
    url
        URL of requests. For DynamoDB it may be an account-based endpoint.
    proxy
        Host and port of the proxy, or None.
    addresses
        Addresses of the endpoint; empty with a proxy, which resolves the name.
    tls_version
        None without TLS, or with a proxy.
    ahead_seconds
        Minimum number of seconds by which the endpoint's clock is ahead of this machine's. 0 if the date of the
        response matches this clock, None if the response has no date.
    """

    url: str
    proxy: str | None
    addresses: tuple[str, ...]
    tls_version: str | None
    ahead_seconds: float | None

    @property
    def network(self) -> str:
        """Network of the addresses: ``this machine``, ``private``, ``public``, or ``private and public``."""
        if self.addresses and all(ip_address(address).is_loopback for address in self.addresses):
            return "this machine"
        kinds = {"private" if ip_address(address).is_private else "public" for address in self.addresses}
        return " and ".join(sorted(kinds))


def endpoint_url(spec: ClientSpec, service: str) -> str:
    """Return the endpoint of the client of a service.

    Raises
    ------
    DdbioError
        If no client can be created.
    """
    return str(spec.client(service).meta.endpoint_url)


def is_of_aws(url: str) -> bool:
    """Return whether an endpoint belongs to AWS."""
    # https://docs.aws.amazon.com/general/latest/gr/rande.html
    return (urlsplit(url).hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn", ".api.aws"))


def reach(spec: ClientSpec, service: str) -> Reach:
    """Connect to the endpoint of a service in the same way as requests, and return the result.

    Raises
    ------
    EndpointError
        If its name has no address, it does not respond, or its certificate is not trusted.
    OptionError
        If no client can be created, or the CA bundle cannot be read.
    """
    client = spec.client(service)
    url = _requested_url(client, spec)
    host, endpoint = endpoint_of(url, client, spec)
    config: Any = client.meta.config
    proxies: dict[str, str] = config.proxies or get_environ_proxies(url)
    proxy = proxies.get(urlsplit(url).scheme)
    try:
        if proxy is not None:
            # Its stubs accept fewer types than the class.
            make: Any = URLLib3Session
            timeouts = config.connect_timeout, config.read_timeout
            session = make(verify=ca_bundle(spec), proxies=proxies, timeout=timeouts)
            asked_at, began = time.time(), time.monotonic()
            date = session.send(AWSRequest("GET", url).prepare()).headers.get("date", "")
            # The part before an @ is a password.
            return Reach(
                url, proxy.rpartition("//")[2].rpartition("@")[2], (), None, _ahead_seconds(date, asked_at, began)
            )
        infos = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
        with closing(Connection(endpoint)) as connection:
            asked_at, began = time.time(), time.monotonic()
            connection.send(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            ahead_seconds = _ahead_seconds(connection.receive().headers.get("date", ""), asked_at, began)
            addresses = tuple(dict.fromkeys(str(address[0]) for *_, address in infos))
            return Reach(url, None, addresses, connection.tls_version, ahead_seconds)
    except SSLError as error:
        raise EndpointError(f"the certificate of {endpoint.host} is not trusted: {error}", url) from error
    except BotoCoreError as error:
        raise to_ddbio_error(error, action="a connection", resource=url) from error
    except (OSError, UnicodeError) as error:
        raise EndpointError(f"{endpoint.host} has no address: {error}", url) from error


def _requested_url(client: Any, spec: ClientSpec) -> str:
    api = Api("dynamodb", ("DescribeTable",))
    # botocore derives the account from the credentials. Their errors are reported by another check.
    with suppress(BotoCoreError, ClientError):
        if client.meta.service_model.service_name == api.service:
            return RouteTable(client, spec, api).find("DescribeTable", "any").endpoint.url.rstrip("/")
    return str(client.meta.endpoint_url)


def _ahead_seconds(date: str, asked_at: float, began: float) -> float | None:
    """Return the seconds by which the clock of a response's date is ahead, corrected by the duration of the request."""
    took_seconds = time.monotonic() - began
    try:
        dated = parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None
    # A date has whole seconds, and was written between the request and its response.
    return max(dated - (asked_at + took_seconds), 0.0) + min(dated + 1 - asked_at, 0.0)

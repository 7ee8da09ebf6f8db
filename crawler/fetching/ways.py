"""The ways out, a connector for each: straight or through an HTTP proxy, and each SOCKS proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.crawler.network.connector import Connector, Network
from anabranch.crawler.network.idle import IdleConnections
from anabranch.crawler.network.socks import SocksConnector, SocksProxy

if TYPE_CHECKING:
    from anabranch.crawler.fetching.options import FetchOptions
    from anabranch.crawler.fetching.proxies import Proxy
    from anabranch.crawler.network.descriptors import Connections
    from anabranch.crawler.network.dns import Resolver


class Ways:
    """Makes a connector when it is first needed. Connections that wait are bounded together, busy ones in each connector."""

    def __init__(self, options: FetchOptions, resolver: Resolver, connections: Connections) -> None:
        self._resolver = resolver
        self._network = Network(
            allow_private=options.allow_private,
            tls_verify=options.tls_verify,
            ipv4=options.ipv4,
            ipv6=options.ipv6,
            max_busy=connections.busy,
            connect_timeout_s=options.connect_timeout_s,
        )
        self._idle = IdleConnections(connections.idle)
        self._connectors: dict[Proxy | None, Connector] = {}

    def of(self, proxy: Proxy | None) -> Connector:
        """The connector of a SOCKS proxy, or the one of all else: connections must not be mixed up."""
        key = proxy if proxy is not None and proxy.is_socks else None
        connector = self._connectors.get(key)
        if connector is None:
            connector = self._connectors[key] = self._made(key)
        return connector

    async def close(self) -> None:
        """Close all connections."""
        for connector in self._connectors.values():
            await connector.close()

    def _made(self, socks: Proxy | None) -> Connector:
        if socks is None:
            return Connector(self._resolver, self._network, self._idle)
        proxy = SocksProxy(socks.host, socks.port, socks.user, socks.password)
        return SocksConnector(self._resolver, self._network, self._idle, proxy)

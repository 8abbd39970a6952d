"""Iceberg's own REST catalog, which its tests have, in a JVM of its own: Spark's jars have the web server for it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway


@contextmanager
def rest_catalog(jars: Sequence[Path], folder: Path) -> Iterator[str]:
    """Serve a catalog that keeps its names in SQLite while the context is open; yield its URI."""
    ours = Path(pyspark.__file__).parent / "jars"
    (py4j,) = ours.glob("py4j-*.jar")
    port, token, process = launch_gateway(
        jarpath=str(py4j),
        classpath=os.pathsep.join([*map(str, jars), f"{ours}/*"]),
        java_path=None,
        javaopts=["-Xmx512m"],
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    try:
        java, iceberg, jetty = gateway.jvm.java, gateway.jvm.org.apache.iceberg, gateway.jvm.org.sparkproject.jetty
        catalog = iceberg.jdbc.JdbcCatalog()
        catalog.setConf(gateway.jvm.org.apache.hadoop.conf.Configuration())
        # The servlet asks for views, too: https://iceberg.apache.org/docs/1.11.0/jdbc/
        given = {"uri": f"jdbc:sqlite:{folder}/names.db", "warehouse": str(folder), "jdbc.schema-version": "V1"}
        catalog.initialize("kept", given)
        context = jetty.servlet.ServletContextHandler()
        servlet = iceberg.rest.RESTCatalogServlet(iceberg.rest.RESTCatalogAdapter(catalog))
        context.addServlet(jetty.servlet.ServletHolder(servlet), "/*")
        server = jetty.server.Server(java.net.InetSocketAddress("127.0.0.1", 0))
        server.setHandler(context)
        server.start()
        yield f"http://127.0.0.1:{server.getURI().getPort()}"
        server.stop()
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait(30)

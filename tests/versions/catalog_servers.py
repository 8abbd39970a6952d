"""Catalogs of other projects, each in its own JVM: Iceberg's REST catalog, and Hive's metastore.

Spark's jars contain the web server for the former and all of the latter. Both listen only on 127.0.0.1, which their own
``main`` would not do.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway


@contextmanager
def rest_catalog(jars: Sequence[Path], folder: Path) -> Iterator[str]:
    """Serve a REST catalog with its names in SQLite while the context is open. Yield its URI."""
    with _java(jars) as gateway:
        java, iceberg, jetty = gateway.jvm.java, gateway.jvm.org.apache.iceberg, gateway.jvm.org.sparkproject.jetty
        catalog = iceberg.jdbc.JdbcCatalog()
        catalog.setConf(gateway.jvm.org.apache.hadoop.conf.Configuration())
        # The servlet also asks for views: https://iceberg.apache.org/docs/1.11.0/jdbc/
        properties = {"uri": f"jdbc:sqlite:{folder}/names.db", "warehouse": str(folder), "jdbc.schema-version": "V1"}
        catalog.initialize("kept", properties)
        context = jetty.servlet.ServletContextHandler()
        servlet = iceberg.rest.RESTCatalogServlet(iceberg.rest.RESTCatalogAdapter(catalog))
        context.addServlet(jetty.servlet.ServletHolder(servlet), "/*")
        server = jetty.server.Server(java.net.InetSocketAddress("127.0.0.1", 0))
        server.setHandler(context)
        server.start()
        try:
            yield f"http://127.0.0.1:{server.getURI().getPort()}"
        finally:
            server.stop()


@contextmanager
def hive_metastore(folder: Path) -> Iterator[str]:
    """Serve a Hive metastore with its names in Derby while the context is open. Yield its URI."""
    # Every configuration that Hive makes itself also has these properties.
    properties = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:{folder}/names;create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "datanucleus.connectionPoolingType": "HikariCP",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": str(folder),
        "derby.stream.error.file": f"{folder}/derby.log",
    }
    with _java((), *(f"-D{name}={value}" for name, value in properties.items())) as gateway:
        hive, thrift = gateway.jvm.org.apache.hadoop.hive, gateway.jvm.org.apache.thrift
        conf = hive.conf.HiveConf()
        # Tables of locks, for which DataNucleus has no mapping.
        hive.metastore.txn.TxnDbUtil.prepDb(conf)
        handler = hive.metastore.HiveMetaStore.HMSHandler("served", conf, False)
        retrying = hive.metastore.RetryingHMSHandler.getProxy(conf, handler, False)
        socket = thrift.transport.TServerSocket(gateway.jvm.java.net.InetSocketAddress("127.0.0.1", 0))
        served = thrift.server.TThreadPoolServer.Args(socket)
        served.stopTimeoutVal(0)  # clients that stay connected are not waited for
        served.processor(hive.metastore.TSetIpAddressProcessor(retrying))
        server = thrift.server.TThreadPoolServer(served)
        serving = threading.Thread(target=server.serve)
        serving.start()
        try:
            yield f"thrift://127.0.0.1:{socket.getServerSocket().getLocalPort()}"
        finally:
            server.stop()
            serving.join()


@contextmanager
def _java(jars: Sequence[Path], *options: str) -> Iterator[JavaGateway]:
    """Run a JVM with Spark's jars after some that we choose while the context is open."""
    ours = Path(pyspark.__file__).parent / "jars"
    (py4j,) = ours.glob("py4j-*.jar")
    port, token, process = launch_gateway(
        jarpath=str(py4j),
        classpath=os.pathsep.join([*map(str, jars), f"{ours}/*"]),
        java_path=None,
        javaopts=["-Xmx512m", *options],
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    try:
        yield gateway
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait(30)

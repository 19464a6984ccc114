"""A real Apache Kafka for the tests: one node, broker and controller in one, on ports of its own.

`TEST_KAFKA_BOOTSTRAP_SERVERS` names another broker instead; tests that stop the broker are skipped then.
"""

from __future__ import annotations

import base64
import itertools
import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.certificates import pair_for, root_pem
from tests.chaos.link import Link
from tests.service import free_port, until

HERE = Path(__file__).parent
JARS = HERE / "target" / "lib"
OTHER = os.environ.get("TEST_KAFKA_BOOTSTRAP_SERVERS")

#: Topics of the service; tests with a real service share them, one after the other.
BATCHES, DEAD_LETTERS, GROUP = "svc.ingest", "svc.ingest.dead-letter", "svc.ingest"

_numbers = itertools.count(1)

_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},LINKED://127.0.0.1:{behind},SASL_SSL://127.0.0.1:{secured},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},LINKED://127.0.0.1:{linked},SASL_SSL://localhost:{secured}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,LINKED:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512
ssl.keystore.type=PEM
ssl.keystore.location={folder}/broker.pem
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={scram} required;
listener.name.sasl_ssl.plain.sasl.jaas.config={plain} required user_svc="{password}";
log.dirs={folder}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
num.network.threads=2
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=300
num.io.threads=2
"""


_LOGIN = "org.apache.kafka.common.security.{}LoginModule"
#: Of the user `svc` at the secured listener, by either mechanism.
PASSWORD = "a password of tests"


class Broker:
    """A Kafka that can be asked what is in it, and, when it is our own, stopped and started."""

    def __init__(
        self,
        servers: str,
        folder: Path | None = None,
        port: int = 0,
        secured_port: int = 0,
        linked_ports: tuple[int, int] = (0, 0),
    ) -> None:
        self.servers, self._folder, self._port, self._secured_port = servers, folder, port, secured_port
        self._linked_ports = linked_ports
        self._process: subprocess.Popen[bytes] | None = None
        self.admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})

    def secured(self) -> tuple[str, Path]:
        """The listener that wants TLS and the password of `svc`, and what it is trusted by."""
        if self._folder is None:
            pytest.skip("the broker of TEST_KAFKA_BOOTSTRAP_SERVERS has listeners of its own")
        return f"localhost:{self._secured_port}", self._folder / "root.pem"

    def linked(self) -> Link:
        """A link before a listener of its own: who asks there is told of no other address."""
        if self._folder is None:
            pytest.skip("the broker of TEST_KAFKA_BOOTSTRAP_SERVERS is behind no link of ours")
        port, behind = self._linked_ports
        return Link(behind, port)

    def start(self) -> None:
        """Start our own broker, on the data that it has."""
        if self._folder is None:
            pytest.skip("the broker of TEST_KAFKA_BOOTSTRAP_SERVERS is not ours to stop and start")
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*_java("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"), "kafka.Kafka",
                 str(self._folder / "server.properties")],
                stdout=log, stderr=log,
            )  # fmt: skip
        until(self._answers)

    def stop(self) -> None:
        """Kill our own broker."""
        if self._folder is None:
            pytest.skip("the broker of TEST_KAFKA_BOOTSTRAP_SERVERS is not ours to stop and start")
        if self._process is not None:
            self._process.kill()
            self._process.wait(20)
            self._process = None

    def make_topic(self, name: str, partitions: int = 8, **config: str) -> None:
        """A topic as an operator made it."""
        named = {key.replace("_", "."): value for key, value in config.items()}
        self.admin.create_topics([NewTopic(name, partitions, 1, config=named)])[name].result(20)

    def clear(self) -> None:
        """No topics of the service, and with them no positions of its group."""
        present = self.admin.list_topics(timeout=20).topics
        names = [name for name in (BATCHES, DEAD_LETTERS) if name in present]
        if names:
            for gone in self.admin.delete_topics(names, operation_timeout=20).values():
                gone.result(20)
        until(lambda: not {BATCHES, DEAD_LETTERS} & self.admin.list_topics(timeout=20).topics.keys())

    def messages(self, topic: str) -> list[bytes]:
        """Every message of a topic, whoever has read it."""
        found: list[bytes] = []
        reader = self._reader(f"reader-{uuid.uuid4()}")
        try:
            for partition, (low, high) in self._bounds(reader, topic).items():
                reader.assign([TopicPartition(topic, partition, low)])
                while low < high:
                    message = reader.poll(10)
                    assert message is not None
                    assert message.error() is None, message.error()
                    found.append(message.value() or b"")
                    low += 1
        finally:
            reader.close()
        return found

    def commit(self, topic: str, group: str, position: int) -> None:
        """The position of a group in the first partition of a topic, as if somebody had read so far."""
        reader = self._reader(group)
        try:
            reader.commit(offsets=[TopicPartition(topic, 0, position)], asynchronous=False)
        finally:
            reader.close()

    def lag(self, topic: str = BATCHES, group: str = GROUP) -> int:
        """Messages above the committed positions of a group."""
        reader = self._reader(group)
        try:
            bounds = self._bounds(reader, topic)
            asked = [TopicPartition(topic, partition) for partition in bounds]
            return sum(
                bounds[found.partition][1] - max(found.offset, bounds[found.partition][0])
                for found in reader.committed(asked, timeout=20)
            )
        finally:
            reader.close()

    def committed(self, topic: str, group: str, partition: int) -> int:
        """The committed position of a group, negative where there is none."""
        reader = self._reader(group)
        try:
            [found] = reader.committed([TopicPartition(topic, partition)], timeout=20)
            return found.offset
        finally:
            reader.close()

    def _reader(self, group: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": group,
                "enable.auto.commit": False,
                "fetch.max.bytes": 100_000_000,
                "receive.message.max.bytes": 200_000_000,
            }
        )

    def _bounds(self, reader: Consumer, topic: str) -> dict[int, tuple[int, int]]:
        partitions = reader.list_topics(topic, timeout=20).topics[topic].partitions
        return {
            number: reader.get_watermark_offsets(TopicPartition(topic, number), timeout=20)
            for number in partitions
        }

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "the broker ended; see its log"
        try:
            socket.create_connection(("127.0.0.1", self._port), 1).close()
        except OSError:
            return False
        with suppress(KafkaException):
            return bool(self.admin.list_topics(timeout=2).brokers)
        return False


def unique(name: str) -> str:
    """A name that no other test has, here or in another run."""
    return f"{name}-{uuid.uuid4().hex[:8]}-{next(_numbers)}"


@pytest.fixture(scope="session")
def kafka() -> Iterator[Broker]:
    """One broker for the whole run."""
    if OTHER:
        yield Broker(OTHER)
        return
    _fetch()
    with started() as broker:
        yield broker


@contextmanager
def started() -> Iterator[Broker]:
    """A broker of our own; its programs must be there."""
    with tempfile.TemporaryDirectory(prefix="trace-svc-kafka-") as name:
        folder, port, secured = Path(name), free_port(), free_port()
        linked_ports = linked, behind = free_port(), free_port()
        pair = pair_for("localhost")
        (folder / "broker.pem").write_bytes(pair.key + pair.chain)
        (folder / "root.pem").write_bytes(root_pem())
        properties = folder / "server.properties"
        properties.write_text(
            _PROPERTIES.format(
                port=port,
                linked=linked,
                behind=behind,
                secured=secured,
                controller=free_port(),
                folder=folder,
                scram=_LOGIN.format("scram.Scram"),
                plain=_LOGIN.format("plain.Plain"),
                password=PASSWORD,
            )
        )
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        subprocess.run(
            [
                *(*_java(), "kafka.tools.StorageTool", "format", "-c", str(properties)),
                # In one word: of 64 ids one begins with a dash, which would be taken for another option.
                *(f"--cluster-id={cluster}", "--add-scram", f"SCRAM-SHA-512=[name=svc,password={PASSWORD}]"),
            ],
            check=True,
            capture_output=True,
            timeout=60,
        )
        broker = Broker(f"127.0.0.1:{port}", folder, port, secured, linked_ports)
        try:
            broker.start()
            yield broker
        finally:
            broker.stop()


def _java(*options: str) -> list[str]:
    return ["java", *options, "-cp", f"{JARS}/*"]


def _fetch() -> None:
    """Apache Kafka from Maven Central, once."""
    from tests.conftest import missing

    if shutil.which("java") is None:
        missing("Java")
    if any(JARS.glob("kafka_*.jar")):
        return
    if shutil.which("mvn") is None:
        missing("Maven")
    done = subprocess.run(
        ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), "package"], check=False, timeout=600
    )
    if done.returncode:
        missing("Apache Kafka (Maven could not fetch it)")

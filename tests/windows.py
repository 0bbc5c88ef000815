"""Windows as far as it can be acted on another system: what it lacks, and what it refuses.

`become` is called in a process of its own, before Joulemesh is imported. Other packages are
imported before, as what they are: only Joulemesh's own code is tried. Nothing of this replaces a
real machine; docs/how-to/install.md says what was not tried on one.
"""

from __future__ import annotations

__all__ = ["METHODS", "MODULES", "OS", "OTHERS", "SIGNAL", "become"]

import contextlib
import ctypes
import errno
import importlib
import os
import re
import shutil
import signal
import sys
import types
import warnings
from pathlib import Path
from typing import Any


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What the documentation of Python's library marks "Availability: Unix"; and `os.kill`, which ends
# a process there whatever the signal, or sends it Ctrl-C for signal 0.
MODULES = _words("curses fcntl grp posix pty pwd readline resource syslog termios tty uvloop")
OS = _words("""
    O_CLOEXEC O_DIRECTORY O_DSYNC O_NOCTTY O_NOFOLLOW O_NONBLOCK O_SYNC O_TMPFILE WEXITSTATUS
    WIFEXITED WIFSIGNALED WNOHANG WTERMSIG chown chroot confstr copy_file_range ctermid eventfd
    fchdir fchmod fchown fdatasync fork forkpty fpathconf fstatvfs getegid geteuid getgid getgroups
    getloadavg getpgid getpgrp getpriority getresuid getsid getuid getxattr initgroups kill killpg
    lchown lockf major makedev memfd_create minor mkfifo mknod nice openpty pathconf pidfd_open
    pipe2 posix_fadvise posix_fallocate posix_spawn pread preadv pwrite pwritev readv
    register_at_fork sched_getaffinity sched_setaffinity sched_setscheduler sched_yield sendfile
    setegid seteuid setgid setgroups setpgid setpriority setresuid setsid setuid setxattr splice
    statvfs sync sysconf tcgetpgrp tcsetpgrp ttyname uname unshare wait wait3 wait4 waitid writev
    """)
SIGNAL = _words("""
    SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGIO SIGKILL SIGPIPE SIGPROF SIGQUIT SIGSTOP SIGTSTP
    SIGTTIN SIGTTOU SIGUSR1 SIGUSR2 SIGWINCH alarm getitimer pause pthread_kill pthread_sigmask
    setitimer siginterrupt sigpending sigtimedwait sigwait sigwaitinfo
    """)
OTHERS = {
    "mmap": _words("MAP_ANONYMOUS MAP_PRIVATE MAP_SHARED PROT_EXEC PROT_READ PROT_WRITE"),
    "multiprocessing": _words("get_context set_start_method"),
    "select": _words("epoll kqueue poll"),
    "shutil": _words("chown"),
    "socket": _words("AF_NETLINK AF_PACKET AF_UNIX SO_REUSEPORT recv_fds send_fds"),
    "time": _words("clock_getres clock_gettime clock_settime pthread_getcpuclockid tzset"),
}
METHODS = _words("add_signal_handler hardlink_to lchmod remove_signal_handler symlink_to")
FIRST = _words("""
    asyncio concurrent.futures ctypes.util jax jax.numpy jax.monitoring jax.flatten_util
    jax.extend.core jax.experimental.multihost_utils jax.experimental.serialize_executable
    jax.experimental.compilation_cache flax.linen matplotlib.pyplot
    matplotlib.backends.backend_svg matplotlib.backends.backend_pdf multiprocessing numpy optax
    platform platformdirs PIL.Image pydantic rich.console rich.live rich.progress rich.table
    safetensors.numpy scipy.cluster.hierarchy scipy.linalg scipy.optimize scipy.sparse.csgraph
    scipy.sparse.linalg scipy.spatial scipy.special scipy.stats shutil socket subprocess tempfile
    tomllib typer typer.core urllib.request zipfile
""")
RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com[1-9]|lpt[1-9])(\..*)?|.*[. ]")
_BYTES = 8 * 2**30  # of memory that this Windows has


def become() -> None:
    """Let this process be as Windows would be to the code that is imported from now on."""
    for name in sorted(FIRST):
        importlib.import_module(name)
    import fcntl

    sys.modules["msvcrt"] = _locks(fcntl)
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]  # its import fails
    for module, names in ((os, OS), (signal, SIGNAL)):
        for name in names & vars(module).keys():
            delattr(module, name)
    kernel = types.SimpleNamespace(GlobalMemoryStatusEx=_memory)
    ctypes.windll = types.SimpleNamespace(kernel32=kernel)  # type: ignore[attr-defined]
    sys.platform = "win32"
    shutil._use_fd_functions = False  # type: ignore[attr-defined]  # folders are removed by names
    warnings.filterwarnings("error", category=EncodingWarning, module=r"joulemesh(\.|$)")
    _refuse()
    sys.addaudithook(_names)


def _locks(fcntl: Any) -> types.ModuleType:
    """Its module of locks: as there, a lock is the handle's, and of the bytes from the position."""
    made = types.ModuleType("msvcrt")

    def locking(descriptor: int, mode: int, size: int) -> None:
        if os.lseek(descriptor, 0, os.SEEK_CUR) < 2**20:
            raise AssertionError("others could not read the bytes that are locked")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise PermissionError(errno.EACCES, "Permission denied") from None

    vars(made).update(locking=locking, LK_NBLCK=2)
    return made


def _memory(status: Any) -> int:
    status._obj.physical = _BYTES
    return 1


def _refuse() -> None:
    """Files that are open stay where they are; a folder is not opened; no name is taken twice."""
    real_open, real_replace, real_unlink, real_rmdir = os.open, os.replace, os.unlink, os.rmdir

    def opened(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, "Permission denied", os.fspath(path))
        return real_open(path, flags, mode, **more)

    def closed(path: Any) -> None:
        place = os.path.realpath(path)
        for held in _held():
            if held == place or held.startswith(place + os.sep):
                raise PermissionError(errno.EACCES, f"{held} is in use", place)

    def replace(source: Any, target: Any, **more: Any) -> None:
        closed(source)
        closed(target)
        if os.path.isdir(target):
            raise PermissionError(errno.EACCES, "Permission denied", os.fspath(target))
        real_replace(source, target, **more)

    def rmdir(path: Any, **more: Any) -> None:
        closed(path)
        real_rmdir(path, **more)

    def rename(source: Any, target: Any, **more: Any) -> None:
        if os.path.exists(target):
            raise FileExistsError(errno.EEXIST, "File exists", os.fspath(target))
        replace(source, target, **more)

    def unlink(path: Any, **more: Any) -> None:
        if "dir_fd" not in more or more["dir_fd"] is None:
            closed(path)
        real_unlink(path, **more)

    vars(os).update(open=opened, replace=replace, rename=rename, unlink=unlink, remove=unlink)
    os.rmdir = rmdir


def _held() -> list[str]:
    """Files that this process has open or mapped into its memory, and the folder that it is in."""
    found = [os.getcwd()]
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one of this list itself
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    maps = Path("/proc/self/maps").read_text("utf-8").splitlines()
    return found + [words[5] for line in maps if len(words := line.split(maxsplit=5)) == 6]


def _names(event: str, details: tuple[Any, ...]) -> None:
    """Refuse to make what Windows cannot name."""
    writes = event in ("os.mkdir", "os.rename") or (event == "open" and _is_write(details))
    target = details[1] if event == "os.rename" else details[0] if details else None
    if writes and isinstance(target, (str, bytes, Path)):
        name = Path(os.fsdecode(target)).name
        if re.search(r'[<>:"|?*\\\x00-\x1f]', name) or RESERVED.fullmatch(name):
            raise OSError(errno.EINVAL, "Invalid argument", os.fsdecode(target))


def _is_write(details: tuple[Any, ...]) -> bool:
    flags = details[2]
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))

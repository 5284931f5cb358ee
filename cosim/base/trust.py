"""Whether a file, a folder or a socket belongs to this user and nobody else can change it.

Everything that is loaded as code, or that a connection's data go through, is asked here before it is trusted:
libraries in the cache, sockets of servers and their folders. The superuser can change everything anyway.
"""

from __future__ import annotations

import grp
import os
import pwd
import socket
import stat
import struct
from pathlib import Path

_PEER = struct.Struct("3i")

_NETLINK_SOCK_DIAG, _BY_FAMILY, _NLM_F_REQUEST = 4, 20, 1
_HEADER = struct.Struct("=IHHII")  # struct nlmsghdr of linux/netlink.h
_ENDS = struct.Struct("!HH4s12x4s12x4x8s")  # struct inet_diag_sockid of linux/inet_diag.h
_ASKED = struct.Struct("=BBBxI")  # struct inet_diag_req_v2 before it
_ANSWERED = struct.Struct("=4x48x12xII")  # struct inet_diag_msg: user, inode


def why_not(path: Path, *, inside: bool = True) -> str | None:
    """Return why a file, folder or socket must not be trusted, None if it may be.

    It must belong to this user or the superuser, and only these may write to it. The same holds for each
    folder above it, except that others may write to one with the sticky bit, like /tmp, in which they cannot
    replace what is there. Symbolic links are followed.

    Parameters
    ----------
    path : an existing path.
    inside : whether a folder is used for names that others could put there, so that the sticky bit is not
        enough.

    Raises
    ------
    OSError
        if the path or a folder above it does not exist.
    """
    given, real = Path(os.path.abspath(path)), Path(os.path.realpath(path))
    for place in (given, *given.parents):
        found = place.lstat()
        if stat.S_ISLNK(found.st_mode) and not is_own(found.st_uid):
            return f"{place} is a symbolic link of {_user(found.st_uid)}"
    for place in (real, *real.parents):
        found = place.stat()
        if not is_own(found.st_uid) and not (place != real and found.st_uid == _unmapped()):
            return f"{place} belongs to {_user(found.st_uid)}"
        sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
        if sticky and not (place == real and inside):
            continue
        if found.st_mode & stat.S_IWOTH:
            return f"every user can write to {place}"
        if found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid, found.st_uid):
            return f"the group {_group(found.st_gid)} can write to {place}"
    return None


def peer(sock: socket.socket) -> tuple[int, int, int]:
    """Return process id, user id and group id of the other end of a connected Unix socket."""
    pid, uid, gid = _PEER.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return pid, uid, gid


def tcp_peer(sock: socket.socket) -> int | None:
    """Return the user id of the other end of a TCP connection within this machine, None if it is not known.

    Sockets that a process has closed belong to user 0. The kernel is asked for this one connection
    (sock_diag(7)), so that the time does not depend on how many there are.

    Parameters
    ----------
    sock : a connected IPv4 socket.
    """
    try:
        theirs, ours = sock.getpeername(), sock.getsockname()
        ends = _ENDS.pack(
            theirs[1], ours[1], socket.inet_aton(theirs[0]), socket.inet_aton(ours[0]), b"\xff" * 8
        )
        request = _ASKED.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + ends
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
            kernel.settimeout(1)
            header = _HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, _NLM_F_REQUEST, 1, 0)
            kernel.sendto(header + request, (0, 0))
            answer = kernel.recv(4096)
        kind = _HEADER.unpack_from(answer)[1]
        return int(_ANSWERED.unpack_from(answer, _HEADER.size)[0]) if kind == _BY_FAMILY else None
    except (OSError, struct.error):
        return None


def is_own(uid: int) -> bool:
    """Return whether a user is the one of this process or the superuser."""
    return uid in (0, os.geteuid())


def why_not_server(sock: socket.socket, path: Path) -> str | None:
    """Return why the server at the other end must not be trusted, None if it may be.

    Parameters
    ----------
    sock : socket connected to it.
    path : the path that was connected to.
    """
    _, uid, _ = peer(sock)
    return None if is_own(uid) else f"the server at {path} is a process of {_user(uid)}"


def _unmapped() -> int | None:
    """Return the id that users outside of this user namespace have, None outside of namespaces.

    In some sandboxes the superuser, to whom the upper folders belong, is one of these.
    """
    try:
        whole = Path("/proc/self/uid_map").read_text(encoding="utf-8").split() == ["0", "0", str(2**32 - 1)]
        return None if whole else int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _is_private(gid: int, uid: int) -> bool:
    """Return whether a group has only its owner, as where each user has a group of the same name."""
    if gid == 0:
        return True  # the superuser's
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(uid)
    except KeyError:
        return False
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _user(uid: int) -> str:
    try:
        return f"the user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)

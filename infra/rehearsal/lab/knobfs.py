"""A FUSE server for a tree of knobs, speaking the kernel's protocol on /dev/fuse itself.

Protocol: include/uapi/linux/fuse.h, minor version 31. The tree never changes its shape, so that
names and attributes may be cached by the kernel; contents never are (direct I/O).
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import traceback
from collections.abc import Callable
from pathlib import Path

from infra.rehearsal.lab import linux
from infra.rehearsal.lab.knobs import Folder, Knob, Link, Node

OnWrite = Callable[[str, str, int, int], None]
"""Told of every write: path in the tree, text, errno (0: taken), user id."""

_LOOKUP, _FORGET, _GETATTR, _SETATTR, _READLINK = 1, 2, 3, 4, 5
_OPEN, _READ, _WRITE, _STATFS, _RELEASE = 14, 15, 16, 17, 18
_FLUSH, _INIT, _OPENDIR, _READDIR, _RELEASEDIR = 25, 26, 27, 28, 29
_INTERRUPT, _BATCH_FORGET = 36, 42
_NEVER_ANSWERED = (_FORGET, _BATCH_FORGET, _INTERRUPT)

_HEADER = struct.Struct("<IIQQIIII")
_REPLY = struct.Struct("<IiQ")
_ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
_ENTRY = struct.Struct("<QQQQII")
_CACHED_S = 3600
_REQUEST_BYTES = 1 << 17
_MAX_WRITE = 65536
_ROOT_NODE = 1
_DIRECT_IO = 1
_ACCESS_MODES = 3


class ProtocolError(OSError):
    """An errno to hand back to the caller on the host."""


class KnobFileSystem:
    """The server: call `serve_one` whenever `descriptor` is readable.

    Args:
        tree: what to show; nodes keep their identity for as long as this runs.
        on_write: told of every write.
        owner: user and group of every file.
    """

    def __init__(self, tree: Folder, on_write: OnWrite, owner: int) -> None:
        self._owner = owner
        self.descriptor = -1
        self._nodes: dict[int, Node] = {_ROOT_NODE: tree}
        self._paths: dict[int, str] = {_ROOT_NODE: ""}
        self._numbers: dict[int, int] = {id(tree): _ROOT_NODE}
        self._on_write = on_write
        self._operations: dict[int, Callable[[int, bytes, int], bytes]] = {
            _LOOKUP: self._lookup,
            _GETATTR: self._get_attributes,
            _SETATTR: self._get_attributes,  # a truncating open changes nothing, as on procfs
            _READLINK: self._read_link,
            _OPEN: self._open,
            _READ: self._read,
            _WRITE: self._write,
            _OPENDIR: self._open_folder,
            _READDIR: self._read_folder,
            _STATFS: _file_system_size,
            _RELEASE: _nothing,
            _RELEASEDIR: _nothing,
            _FLUSH: _nothing,
            _INIT: _negotiate,
        }

    def mount(self, where: Path) -> None:
        """Open /dev/fuse and mount on an existing folder."""
        self.descriptor = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = (
            f"fd={self.descriptor},rootmode=40000,user_id=0,group_id=0,"
            "allow_other,default_permissions"
        )
        flags = linux.MountFlag.NO_SETUID | linux.MountFlag.NO_DEVICES
        linux.mount("knobs", where, "fuse.knobs", flags, options)

    def serve_one(self) -> bool:
        """Answer one request; False when the file system was unmounted."""
        try:
            request = os.read(self.descriptor, _REQUEST_BYTES)
        except OSError as error:
            return error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN)
        length, operation, unique, number, user, *_ = _HEADER.unpack_from(request)
        if operation in _NEVER_ANSWERED:
            return True
        body = request[_HEADER.size : length]
        answer, failure = b"", 0
        try:
            handle = self._operations.get(operation)
            if handle is None:
                failure = errno.ENOSYS
            else:
                answer = handle(number, body, user)
        except ProtocolError as error:
            failure = error.errno or errno.EIO
        except (KeyError, struct.error):  # the host gets an error, the other hosts their answers
            traceback.print_exc()
            failure = errno.EIO
        self._reply(unique, failure, answer)
        return True

    def _reply(self, unique: int, failure: int, answer: bytes) -> None:
        try:
            os.write(
                self.descriptor, _REPLY.pack(_REPLY.size + len(answer), -failure, unique) + answer
            )
        except OSError as error:
            if error.errno != errno.ENOENT:  # the caller was interrupted and is gone
                raise

    def _lookup(self, number: int, body: bytes, _user: int) -> bytes:
        name = body.split(b"\0")[0].decode(errors="replace")
        folder = self._nodes[number]
        if not isinstance(folder, Folder) or name not in folder.entries:
            raise ProtocolError(errno.ENOENT, name)
        child = self._number_of(number, name, folder.entries[name])
        return _ENTRY.pack(child, 0, _CACHED_S, _CACHED_S, 0, 0) + self._attributes(child)

    def _get_attributes(self, number: int, _body: bytes, _user: int) -> bytes:
        return struct.pack("<QII", _CACHED_S, 0, 0) + self._attributes(number)

    def _read_link(self, number: int, _body: bytes, _user: int) -> bytes:
        node = self._nodes[number]
        if not isinstance(node, Link):
            raise ProtocolError(errno.EINVAL, "not a link")
        return node.target.encode()

    def _open(self, number: int, body: bytes, _user: int) -> bytes:
        knob = self._knob(number)
        (flags,) = struct.unpack_from("<I", body)
        if knob.open_error:
            raise ProtocolError(knob.open_error, self._paths[number])
        access = flags & _ACCESS_MODES
        is_refused = (access != os.O_RDONLY and not knob.mode & stat.S_IWUSR) or (
            access != os.O_WRONLY and not knob.mode & stat.S_IRUSR
        )
        if is_refused:
            raise ProtocolError(errno.EACCES, self._paths[number])  # root too
        return struct.pack("<QII", 0, _DIRECT_IO, 0)

    def _open_folder(self, _number: int, _body: bytes, _user: int) -> bytes:
        return struct.pack("<QII", 0, 0, 0)

    def _read(self, number: int, body: bytes, _user: int) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        return self._knob(number).read()[offset : offset + size]

    def _write(self, number: int, body: bytes, user: int) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        data = body[40 : 40 + size]
        failure = self._knob(number).write(data, offset)
        self._on_write(self._paths[number], data.decode(errors="replace").strip(), failure, user)
        if failure:
            raise ProtocolError(failure, self._paths[number])
        return struct.pack("<II", size, 0)

    def _read_folder(self, number: int, body: bytes, _user: int) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        folder = self._nodes[number]
        if not isinstance(folder, Folder):
            raise ProtocolError(errno.ENOTDIR, self._paths[number])
        entries: list[tuple[str, int]] = [(".", number), ("..", _ROOT_NODE)]
        entries += [
            (name, self._number_of(number, name, node)) for name, node in folder.entries.items()
        ]
        answer = b""
        for position, (name, child) in enumerate(entries[offset:], start=offset + 1):
            encoded = name.encode()
            kind = stat.S_IFMT(self._mode(child)) >> 12
            record = struct.pack("<QQII", child, position, len(encoded), kind) + encoded
            record += b"\0" * (-len(record) % 8)
            if len(answer) + len(record) > size:
                break
            answer += record
        return answer

    def _knob(self, number: int) -> Knob:
        node = self._nodes[number]
        if not isinstance(node, Knob):
            raise ProtocolError(errno.EISDIR, self._paths[number])
        return node

    def _number_of(self, parent: int, name: str, node: Node) -> int:
        number = self._numbers.get(id(node))
        if number is None:
            number = len(self._nodes) + 1
            self._numbers[id(node)] = number
            self._nodes[number] = node
            self._paths[number] = f"{self._paths[parent]}/{name}".lstrip("/")
        return number

    def _mode(self, number: int) -> int:
        node = self._nodes[number]
        if isinstance(node, Folder):
            return stat.S_IFDIR | node.mode
        if isinstance(node, Link):
            return stat.S_IFLNK | 0o777
        return stat.S_IFREG | node.mode

    def _attributes(self, number: int) -> bytes:
        mode = self._mode(number)
        size = 0 if stat.S_ISDIR(mode) else 4096
        times = (0,) * 6
        num_links = 2 if stat.S_ISDIR(mode) else 1
        return _ATTRIBUTES.pack(
            number,
            size,
            0,
            *times[:3],
            *times[3:],
            mode,
            num_links,
            self._owner,
            self._owner,
            0,
            4096,
            0,
        )


def _nothing(_number: int, _body: bytes, _user: int) -> bytes:
    return b""


def _file_system_size(_number: int, _body: bytes, _user: int) -> bytes:
    return struct.pack("<QQQQQIIIIIIIIII", 0, 0, 0, 0, 0, 4096, 255, 4096, 0, 0, 0, 0, 0, 0, 0)[:80]


def _negotiate(_number: int, body: bytes, _user: int) -> bytes:
    _major, _minor, read_ahead, _flags = struct.unpack_from("<IIII", body)
    version = (7, 31)
    background = (16, 12)
    answer = struct.pack(
        "<IIIIHHIIHHI", *version, read_ahead, 0, *background, _MAX_WRITE, 1, 0, 0, 0
    )
    return answer + b"\0" * 28

"""Compressed fields of the journal: with the standard library, or the library that journald itself compresses with."""

import ctypes
import struct

from .lines import MAX_FIELD_BYTES, Unreadable

try:
    import lzma
except ImportError:  # a Python that was built without it
    lzma = None  # type: ignore[assignment]

# Flags of a data object (systemd.io/JOURNAL_FILE_FORMAT).
XZ, LZ4, ZSTD = 1, 2, 4
_SIZE = struct.Struct("<Q")


def unpack(flags: int, packed: bytes) -> bytes:
    """The field.

    Raises:
        Unreadable: it is damaged, compressed in another way, or the library is not there.
    """
    try:
        if flags == ZSTD:
            return _zstd(packed)
        if flags == LZ4:
            return _lz4(packed)
        if flags == XZ and lzma is not None:
            return _xz(packed)
    except (OSError, AttributeError, EOFError, struct.error) as error:
        raise Unreadable("a compressed field: {}".format(error)) from error
    except getattr(lzma, "LZMAError", OSError) as error:
        raise Unreadable("a compressed field: {}".format(error)) from error
    raise Unreadable("a field compressed in way {}".format(flags))


def _xz(packed: bytes) -> bytes:
    unpacker = lzma.LZMADecompressor()
    text = unpacker.decompress(packed, MAX_FIELD_BYTES)
    if not unpacker.eof:
        raise Unreadable("a damaged compressed field")
    return text


def _zstd(packed: bytes) -> bytes:
    library = ctypes.CDLL("libzstd.so.1")
    library.ZSTD_getFrameContentSize.restype = ctypes.c_ulonglong
    library.ZSTD_getFrameContentSize.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    library.ZSTD_decompress.restype = ctypes.c_size_t
    library.ZSTD_decompress.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_char_p,
        ctypes.c_size_t,
    ]
    # unknown and damaged sizes are the greatest numbers that there are
    buffer = _buffer(library.ZSTD_getFrameContentSize(packed, len(packed)))
    return _whole(buffer, library.ZSTD_decompress(buffer, len(buffer), packed, len(packed)))


def _lz4(packed: bytes) -> bytes:
    library = ctypes.CDLL("liblz4.so.1")
    buffer = _buffer(_SIZE.unpack_from(packed)[0])
    text = packed[_SIZE.size :]
    return _whole(buffer, library.LZ4_decompress_safe(text, buffer, len(text), len(buffer)))


def _buffer(size: int) -> "ctypes.Array[ctypes.c_char]":
    if not 0 < size <= MAX_FIELD_BYTES:
        raise Unreadable("a compressed field of {} bytes".format(size))
    return ctypes.create_string_buffer(size)


def _whole(buffer: "ctypes.Array[ctypes.c_char]", size: int) -> bytes:
    if size != len(buffer):
        raise Unreadable("a damaged compressed field")
    return buffer.raw

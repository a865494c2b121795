"""Archives that depend on nothing but the names, modes and contents of their files."""
import gzip
import io
import tarfile


def gzipped(data):
    """The data compressed, without the time and the file name that gzip adds by default."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=buffer, mtime=0) as file:
        file.write(data)
    return buffer.getvalue()


def tar(files, epoch):
    """An uncompressed archive. `files` are (name, mode, content); all belong to root."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, mode, content in sorted(files):
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(content), mode, epoch
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def members(path):
    """The files of an archive that another tool has written, without its times and owners."""
    with tarfile.open(path) as archive:
        return [(member.name, 0o644, archive.extractfile(member).read()) for member in archive if member.isfile()]

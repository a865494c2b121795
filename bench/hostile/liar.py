"""HTTP servers that lie: `liar.py LIES ADDRESS…`

LIES is a JSON file with an object {"ADDRESS": {"PATH": LIE, …}, …}. It is read again when it
changes, so that an honest node can become a liar. The answer to a request is the LIE whose PATH its
own path begins with, or 404. A LIE has these fields, all of which may be missing:

- `head`: text that is sent first. A status line has to be in it.
- `piece` and `times`: text that is sent this many times; -1 is without end.
- `tail`: text that is sent last.
- `trickle`: text that is sent a byte every half second.
- `hold`: seconds before the connection is closed.
"""
import asyncio, json, os, pathlib, sys

PORT = 9877
# Bytes written at a time. A server in Python that wrote 25 bytes at a time would be slower than the
# agent that it attacks.
BLOCK = 64 * 1024
REQUEST_SECONDS, TRICKLE_SECONDS = 5, 0.5
NOT_FOUND = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
OK = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"


class Lies:
    """The file, read again when its time or its number changes."""

    def __init__(self, path):
        self.path, self.seen, self.now = pathlib.Path(path), None, {}

    def at(self, address, path):
        stat = self.path.stat()
        if self.seen != (stat.st_mtime_ns, stat.st_ino):
            self.seen, self.now = (stat.st_mtime_ns, stat.st_ino), json.loads(self.path.read_text())
        found = (lie for prefix, lie in self.now.get(address, {}).items() if path.startswith(prefix))
        return next(found, {"head": NOT_FOUND})


def publish(path, lies):
    """Replaces the file at once, so that nothing reads half of it."""
    new = pathlib.Path(f"{path}.new")
    new.write_text(json.dumps(lies))
    os.replace(new, path)


async def write(writer, lie):
    writer.write(lie.get("head", "").encode())
    piece, times = lie.get("piece", "").encode(), lie.get("times", 0)
    if piece and times:
        whole = max(1, BLOCK // len(piece))
        block = piece * whole
        while times < 0 or times >= whole:
            writer.write(block)
            await writer.drain()
            times -= whole if times > 0 else 0
        writer.write(piece * times)
    writer.write(lie.get("tail", "").encode())
    for byte in lie.get("trickle", "").encode():
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(TRICKLE_SECONDS)
    await writer.drain()
    await asyncio.sleep(lie.get("hold", 0))


def server_of(lies, address):
    async def serve(reader, writer):
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), REQUEST_SECONDS)
            await write(writer, lies.at(address, head.split(b" ", 2)[1].decode()))
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.TimeoutError):
            pass  # the client has gone
        finally:
            writer.close()
    return serve


async def main(path, *addresses):
    lies = Lies(path)
    servers = [await asyncio.start_server(server_of(lies, a), a, PORT, limit=16 * 1024) for a in addresses]
    print("ready", flush=True)
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

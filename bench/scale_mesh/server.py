"""The API server of bench/scale: a `plane.Plane` over TLS, in real time, every byte counted.

As kube-apiserver does it: a list with resourceVersion=0 comes whole, its limit not regarded; without it, limit and continue make
pages; a GET with resourceVersion waits for nothing here, for the newest is always at hand; a watch gets what came after its
resourceVersion, a bookmark each minute if it allows them, and ends after timeoutSeconds; one of before the history ends
with a Status of code 410. Bytes are counted inside TLS, head and body, both ways.
"""
import collections, random, socket, ssl, subprocess, threading, time, urllib.parse

import encode

PATH = "/apis/discovery.k8s.io/v1/namespaces/kube-canary/endpointslices"
SELECTOR = "kubernetes.io/service-name=kube-canary"
BOOKMARK_SECONDS = 60
REASONS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 406: "Not Acceptable"}


def credentials(directory):
    """A service account's files, and the server's own key; the token is as long as a real one."""
    key, certificate = f"{directory}/api.key", f"{directory}/ca.crt"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=api", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE",
                    "-keyout", key, "-out", certificate], check=True, stderr=subprocess.DEVNULL)
    for name, text in (("token", "t" * 914), ("namespace", "kube-canary")):
        with open(f"{directory}/{name}", "w") as file:
            file.write(text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def headers(code, content, length):
    """As long as the real ones."""
    return (f"HTTP/1.1 {code} {REASONS[code]}\r\nAudit-Id: 3e1a5f6e-7b61-4d3c-9b0e-6a3f1f0f5d11\r\nCache-Control: no-cache, private\r\n"
            f"Content-Type: {content}\r\nX-Kubernetes-Pf-Flowschema-Uid: 0b9f3a0e-9c68-4b71-b7b3-0f9d6f2a8f10\r\n"
            f"X-Kubernetes-Pf-Prioritylevel-Uid: 5d4b1e52-0f8e-4f0b-8a57-6d0e3c9f7b21\r\nDate: Sat, 21 Nov 2026 16:12:00 GMT\r\n"
            f"{length}\r\n\r\n").encode()


class Counts:
    """Requests and bytes by kind of request: list, get, watch."""

    def __init__(self):
        self.lock, self.of = threading.Lock(), collections.Counter()

    def add(self, kind, **figures):
        with self.lock:
            for name, value in figures.items():
                self.of[kind, name] += value

    def now(self):
        with self.lock:
            return self.of.copy()


class Server:
    def __init__(self, plane, directory, port):
        self.plane, self.changed, self.counts = plane, threading.Condition(), Counts()
        self.begin, self.log = time.monotonic(), []  # (moment, kind, path) of every request
        self.slowest = 0.0  # answer of a GET, seconds: what the stand-in itself may have spoilt
        self.context = credentials(directory)
        self.listener = socket.create_server(("127.0.0.1", port), backlog=512)
        for work in (self.drive, self.listen):
            threading.Thread(target=work, daemon=True).start()

    def drive(self):
        """The plane's time is ours."""
        while True:
            with self.changed:
                self.plane.now = max(self.plane.now, time.monotonic() - self.begin)
                before = len(self.plane.events)
                while (at := self.plane.next_at()) is not None and at <= self.plane.now:
                    self.plane.step()
                if len(self.plane.events) > before:
                    self.changed.notify_all()
                at = self.plane.next_at()
            time.sleep(0.02 if at is None else min(0.02, max(0.001, at - (time.monotonic() - self.begin))))

    def do(self, work, *arguments):
        """Something to the plane, in its time."""
        with self.changed:
            self.plane.now = max(self.plane.now, time.monotonic() - self.begin)
            return work(*arguments)

    def listen(self):
        while True:
            connection = self.listener.accept()[0]
            threading.Thread(target=self.converse, args=(connection,), daemon=True).start()

    def converse(self, raw):
        try:
            with self.context.wrap_socket(raw, server_side=True) as connection, connection.makefile("rb") as lines:
                while request := lines.readline():
                    head, size = {}, len(request)
                    while line := lines.readline():
                        size += len(line)
                        if not line.strip():
                            break
                        name, value = line.decode().split(":", 1)
                        head[name.lower()] = value.strip()
                    self.answer(connection, request.split()[1].decode(), head, size)
        except OSError:
            pass  # The client has ended the conversation.

    def answer(self, connection, target, head, size):
        path, _, query = target.partition("?")
        query = {key: values[0] for key, values in urllib.parse.parse_qs(query).items()}
        kind = "watch" if query.get("watch") in ("1", "true") else "list" if path == PATH else "get"
        self.log.append((time.monotonic() - self.begin, kind, path))
        self.counts.add(kind, requests=1, received=size)
        try:
            form = encode.accepted(head.get("accept", "*/*"))
        except encode.NotAcceptable:
            return self.send(connection, kind, 406, encode.JSON, encode.status(encode.JSON, 406, "NotAcceptable", "not acceptable"))
        if kind == "watch":
            return self.watch(connection, form, query)
        asked = time.monotonic()
        with self.changed:
            code, body = self.page(form, query) if kind == "list" else self.get(form, path)
        self.send(connection, kind, code, form, body)
        if kind == "get":
            self.slowest = max(self.slowest, time.monotonic() - asked)

    def send(self, connection, kind, code, form, body):
        body = encode.answer(form, body)
        head = headers(code, encode.CONTENT_TYPES[form], f"Content-Length: {len(body)}")
        connection.sendall(head + body)
        self.counts.add(kind, sent=len(head) + len(body))

    def page(self, form, query):
        if query.get("labelSelector") != SELECTOR:
            return 400, encode.status(form, 400, "BadRequest", f"this server knows {SELECTOR}")
        items, version = list(self.plane.slices.values()), self.plane.version
        limit = int(query.get("limit", 0))
        if query.get("resourceVersion") == "0" and "continue" not in query or not limit:
            return 200, encode.many(form, items, version)
        first = int(query.get("continue", 0))
        more = str(first + limit) if first + limit < len(items) else ""
        return 200, encode.many(form, items[first:first + limit], version, more)

    def get(self, form, path):
        item = self.plane.slices.get(path.removeprefix(PATH + "/"))
        if item is None:
            return 404, encode.status(form, 404, "NotFound", f"endpointslices.discovery.k8s.io {path!r} not found")
        return 200, encode.one(form, item)

    def watch(self, connection, form, query):
        def chunk(data):
            framed = b"%x\r\n%s\r\n" % (len(data), data)
            connection.sendall(framed)
            self.counts.add("watch", sent=len(framed))

        stream = ";stream=watch" if form in (encode.PROTOBUF, encode.METADATA) else ""
        head = headers(200, encode.CONTENT_TYPES[form] + stream, "Transfer-Encoding: chunked")
        connection.sendall(head)
        self.counts.add("watch", sent=len(head))
        since = query.get("resourceVersion", "0")
        end = time.monotonic() + min(int(query.get("timeoutSeconds", 0)) or random.uniform(1800, 3600), 3600)
        bookmark = time.monotonic() + BOOKMARK_SECONDS * random.uniform(0.9, 1.1)
        version = int(self.plane.version) if since in ("", "0") else int(since)
        if version < int(self.plane.history_from):
            chunk(encode.event(form, "ERROR", {"code": 410, "reason": "Expired", "message": f"too old resource version: {version}"}))
            connection.sendall(b"0\r\n\r\n")
            return
        at = self.position(version)
        while (now := time.monotonic()) < end:
            with self.changed:
                if at == len(self.plane.events):
                    self.changed.wait(min(end, bookmark) - now)
                news, version = self.plane.events[at:], self.plane.version
            at += len(news)
            for event in news:
                # The first reader encodes the event for all.
                if form not in event.forms:
                    event.forms[form] = encode.event(form, event.kind, event.item)
                chunk(event.forms[form])
            if time.monotonic() >= bookmark or time.monotonic() >= end:
                bookmark = time.monotonic() + BOOKMARK_SECONDS
                if query.get("allowWatchBookmarks") in ("1", "true"):
                    item = {"metadata": {"resourceVersion": version}, "addressType": "", "endpoints": None, "ports": []}
                    chunk(encode.event(form, "BOOKMARK", item))
        connection.sendall(b"0\r\n\r\n")

    def position(self, version):
        events = self.plane.events
        return next((i for i in range(len(events), 0, -1) if events[i - 1].version <= version), 0)

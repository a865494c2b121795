"""EndpointSlices as a real API server writes them: JSON, protobuf, and metadata only.

Objects are dictionaries of the JSON form, as `json.load` makes them. The protobuf is byte for byte that of kube-apiserver 1.34
(test_encode.py holds a recorded answer against it): fields of no pointer type are written also where they are empty.
Sources: k8s.io/api/discovery/v1/generated.proto, k8s.io/apimachinery/pkg/{apis/meta/v1,runtime}/generated.proto.
"""
import calendar, functools, json, time

JSON, PROTOBUF, METADATA = "json", "protobuf", "metadata"
CONTENT_TYPES = {JSON: "application/json", PROTOBUF: "application/vnd.kubernetes.protobuf", METADATA: "application/vnd.kubernetes.protobuf"}


class NotAcceptable(Exception):
    """Nothing that the server can write is accepted."""


def accepted(header):
    """The form that an Accept header asks for; the first that is known."""
    for media in (part.strip().replace(" ", "") for part in header.split(",")):
        kind, *parameters = media.split(";")
        wanted = dict(p.split("=", 1) for p in parameters if "=" in p).get("as", "")
        if kind in ("application/json", "*/*"):
            form = {"": JSON}.get(wanted)
        elif kind == "application/vnd.kubernetes.protobuf":
            form = {"": PROTOBUF, "PartialObjectMetadata": METADATA, "PartialObjectMetadataList": METADATA}.get(wanted)
        else:
            form = None
        if form:
            return form
    raise NotAcceptable(header)


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


# ---- protobuf ------------------------------------------------------------------------------------

def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def data(field, value):
    value = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(value)) + value


def number(field, value):
    return varint(field << 3) + varint(int(value))


def stamp(field, text):
    seconds = calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))
    return data(field, number(1, seconds) + number(2, 0))


def string_map(field, values):
    return b"".join(data(field, data(1, key) + data(2, values[key])) for key in sorted(values))


def object_meta(meta):
    out = data(1, meta.get("name", "")) + data(2, meta.get("generateName", "")) + data(3, meta.get("namespace", "")) + data(4, "")
    out += data(5, meta.get("uid", "")) + data(6, meta.get("resourceVersion", "")) + number(7, meta.get("generation", 0))
    out += stamp(8, meta["creationTimestamp"]) if "creationTimestamp" in meta else data(8, b"")
    out += string_map(11, meta.get("labels", {})) + string_map(12, meta.get("annotations", {}))
    for owner in meta.get("ownerReferences", []):
        out += data(13, data(1, owner["kind"]) + data(3, owner["name"]) + data(4, owner["uid"]) + data(5, owner["apiVersion"])
                    + number(6, owner["controller"]) + number(7, owner["blockOwnerDeletion"]))
    for by in meta.get("managedFields", []):
        fields = data(1, compact(by["fieldsV1"]))
        out += data(17, data(1, by["manager"]) + data(2, by["operation"]) + data(3, by["apiVersion"]) + stamp(4, by["time"])
                    + data(6, by["fieldsType"]) + data(7, fields) + data(8, by.get("subresource", "")))
    return out


@functools.lru_cache(maxsize=None)
def endpoint_protobuf(text):
    endpoint = json.loads(text)
    out = b"".join(data(1, address) for address in endpoint["addresses"])
    out += data(2, b"".join(number(1 + i, endpoint["conditions"][name]) for i, name in enumerate(("ready", "serving", "terminating"))))
    target = endpoint["targetRef"]
    out += data(4, data(1, target["kind"]) + data(2, target["namespace"]) + data(3, target["name"]) + data(4, target["uid"]) + data(5, "") + data(6, "") + data(7, ""))
    out += data(6, endpoint["nodeName"])
    return out + (data(7, endpoint["zone"]) if "zone" in endpoint else b"")


def slice_body(item):
    out = data(1, object_meta(item["metadata"])) + b"".join(data(2, endpoint_protobuf(compact(e).decode())) for e in item.get("endpoints") or [])
    out += b"".join(data(3, data(1, port["name"]) + data(2, port["protocol"]) + number(3, port["port"])) for port in item["ports"])
    return out + data(4, item["addressType"])


def enveloped(version, kind, raw):
    return b"k8s\0" + data(1, data(1, version) + data(2, kind)) + data(2, raw) + data(3, "") + data(4, "")


# ---- objects, lists, events ----------------------------------------------------------------------

def is_bookmark(item):
    return "name" not in item["metadata"]


def answer(form, body):
    """The body of an answer: one of JSON ends with a line's end."""
    return body + b"\n" if CONTENT_TYPES[form] == "application/json" else body


def one(form, item):
    """An object, as an answer to a GET or inside an event."""
    if form == JSON:
        return compact({"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", **item})
    if form == PROTOBUF:
        body = data(1, object_meta(item["metadata"])) + data(4, "") if is_bookmark(item) else slice_body(item)
        return enveloped("discovery.k8s.io/v1", "EndpointSlice", body)
    return enveloped("meta.k8s.io/v1", "PartialObjectMetadata", data(1, object_meta(item["metadata"])))


def many(form, items, version, more=""):
    """A list, or a page of one."""
    meta = {"resourceVersion": version, **({"continue": more} if more else {})}
    wire = data(1, data(1, "") + data(2, version) + data(3, more))
    if form == JSON:
        return compact({"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1", "metadata": meta, "items": items})
    if form == PROTOBUF:
        return enveloped("discovery.k8s.io/v1", "EndpointSliceList", wire + b"".join(data(2, slice_body(item)) for item in items))
    wire += b"".join(data(2, data(1, object_meta(item["metadata"]))) for item in items)
    return enveloped("meta.k8s.io/v1", "PartialObjectMetadataList", wire)


def event(form, kind, item):
    """A watch's event, framed: a line of JSON, or a length and a message."""
    body = one(form, item) if kind != "ERROR" else status(form, **item)
    if CONTENT_TYPES[form] == "application/json":
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), body)
    message = data(1, kind) + data(2, data(1, body))
    return len(message).to_bytes(4, "big") + message


def status(form, code, reason, message):
    if CONTENT_TYPES[form] == "application/json":
        return compact({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code})
    wire = data(1, data(1, "") + data(2, "") + data(3, "")) + data(2, "Failure") + data(3, message) + data(4, reason) + number(6, code)
    return enveloped("v1", "Status", wire)

"""Images and their indexes in an OCI image layout.

https://github.com/opencontainers/image-spec has the formats. The facts that an image shares with
`docker build` (user, port, entry point, path of the program) are read from the last stage of the Dockerfile.
"""
import json
import re

from . import fail, sha256
from .archive import gzipped, tar

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
REFERENCE = "org.opencontainers.image.ref.name"


def dockerfile_config(text):
    """The image's configuration of the last stage, and the path of its program."""
    stage = re.split(r"^FROM ", text.replace("\\\n", " "), flags=re.M)[-1]
    config, program = {}, None
    for line in stage.splitlines()[1:]:
        instruction, _, rest = line.partition(" ")
        match instruction:
            case "USER":
                config["User"] = rest
            case "EXPOSE":
                config["ExposedPorts"] = {port if "/" in port else f"{port}/tcp": {} for port in rest.split()}
            case "ENTRYPOINT":
                config["Entrypoint"] = json.loads(rest)
            case "COPY":
                program = rest.split()[-1]
            case "" | "#":
                pass
            case _:
                fail(f"Dockerfile: {instruction} in the last stage is not translated to the released image")
    return config, program


class Layout:
    """A directory in the form of an OCI image layout."""

    def __init__(self, directory):
        self.directory, self.named = directory, []
        (directory / "blobs/sha256").mkdir(parents=True)

    def blob(self, content, media_type, **more):
        """Stores the bytes, or the JSON of an object, and returns the descriptor."""
        if isinstance(content, dict):
            content = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
        (self.directory / "blobs/sha256" / sha256(content)).write_bytes(content)
        return {"mediaType": media_type, "digest": f"sha256:{sha256(content)}", "size": len(content)} | more

    def image(self, architecture, binary, config, program, labels, epoch):
        """Stores an image of one layer, which holds the binary, and returns the descriptor."""
        layer = tar([(program.lstrip("/"), 0o755, binary)], epoch)
        created = labels["org.opencontainers.image.created"]
        configuration = {
            "created": created, "architecture": architecture, "os": "linux",
            "config": config | {"Labels": labels},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer)}"]},
            "history": [{"created": created, "created_by": f"release/build: COPY kube-canary {program}"}],
        }
        manifest = {
            "schemaVersion": 2, "mediaType": MANIFEST, "config": self.blob(configuration, CONFIG),
            "layers": [self.blob(gzipped(layer), LAYER)], "annotations": labels,
        }
        return self.blob(manifest, MANIFEST, platform={"architecture": architecture, "os": "linux"})

    def index(self, name, images, labels):
        """Stores an index of images under a name."""
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": images, "annotations": labels}
        self.named.append(self.blob(index, INDEX, annotations={REFERENCE: name}))

    def write(self):
        """Writes what makes the directory a layout."""
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": self.named}
        (self.directory / "index.json").write_text(json.dumps(index, indent=2) + "\n")
        (self.directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}\n')

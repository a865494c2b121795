"""Software bills of materials of a binary, as CycloneDX and as SPDX.

cargo-cyclonedx lists the crates with licences and checksums. SPDX is the same list in another form.
"""
import json
import re

from . import run, sha256

REGISTRY = "registry+https://github.com/rust-lang/crates.io-index#"


def cyclonedx(source, target, features, settings):
    """The bill of the binary with these features, as the text of a JSON document."""
    run("cargo", "cyclonedx", "--quiet", "--format", "json", "--spec-version", "1.5", "--override-filename", "bom",
        "--target", target, "--features", features, cwd=source, env=settings)
    # The path of the sources is in every reference to our own crate.
    text = (source / "bom.json").read_text().replace(f"path+file://{source}#", "path+file:///source#")
    bill = json.loads(text)
    program = bill["metadata"]["component"]
    # Among them are a library and a program of the tests, which are no parts of the binary.
    del program["components"]
    program["purl"] = f"pkg:cargo/kube-canary@{program['version']}"
    # No crate of the graph: the compiler brings it.
    version = run("rustc", "--version", env=settings).split()[1]
    rust = {
        "type": "library", "bom-ref": f"rust@{version}", "name": "rust-std", "version": version,
        "description": "Rust's standard library, with musl as its C library", "scope": "required",
        "licenses": [{"expression": "MIT OR Apache-2.0"}], "purl": f"pkg:generic/rust-std@{version}",
    }
    bill["components"].append(rust)
    next(link for link in bill["dependencies"] if link["ref"] == program["bom-ref"])["dependsOn"].append(rust["bom-ref"])
    return json.dumps(bill, indent=1, sort_keys=True) + "\n"


def spdx(cyclonedx_text, repository, name):
    """The same bill as an SPDX 2.3 document, as the text of a JSON document."""
    bill = json.loads(cyclonedx_text)
    program = bill["metadata"]["component"]
    identifiers, packages = {}, []
    for part in [program, *bill["components"]]:
        identifier = "SPDXRef-" + re.sub(r"[^A-Za-z0-9.]", "-", f"{part['name']}-{part['version']}")
        identifiers[part["bom-ref"]] = identifier
        is_crate = part["bom-ref"].startswith(REGISTRY)
        packages.append({
            "SPDXID": identifier, "name": part["name"], "versionInfo": part["version"], "filesAnalyzed": False,
            "downloadLocation": f"https://crates.io/api/v1/crates/{part['name']}/{part['version']}/download" if is_crate else "NOASSERTION",
            "licenseConcluded": "NOASSERTION", "licenseDeclared": part["licenses"][0]["expression"], "copyrightText": "NOASSERTION",
            "checksums": [{"algorithm": "SHA256", "checksumValue": it["content"]} for it in part.get("hashes", [])],
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": part["purl"]}],
        })
    links = [("SPDXRef-DOCUMENT", "DESCRIBES", identifiers[program["bom-ref"]])]
    links += [(identifiers[link["ref"]], "DEPENDS_ON", identifiers[other]) for link in bill["dependencies"] for other in link.get("dependsOn", [])]
    document = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": name,
        # Unique, and yet the same in each build.
        "documentNamespace": f"{repository}/spdx/{name}-{sha256(cyclonedx_text.encode())}",
        "creationInfo": {"created": bill["metadata"]["timestamp"][:19] + "Z", "creators": ["Tool: cargo-cyclonedx", "Tool: release-build"]},
        "packages": packages,
        "relationships": [{"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b} for a, kind, b in links],
    }
    return json.dumps(document, indent=1, sort_keys=True) + "\n"

"""Makes JSON schemas for kubeconform.

The sources are Kubernetes' OpenAPI document and the Prometheus operator's CRDs. Both come out of the
Go module proxy, as released: no other copy has to be trusted. A field that a schema does not know is
refused.
"""
import json
import pathlib
import subprocess

# The oldest and the newest version that the manifests are for.
KUBERNETES = ("1.30.14", "1.37.2")
# The oldest version that knows `scrapeNativeHistograms`, and the newest.
OPERATOR = ("0.88.0", "0.92.1")
# What our objects are; a schema of each is written.
KINDS = ("ConfigMap", "DaemonSet", "Namespace", "NetworkPolicy", "Pod", "PriorityClass", "Role", "RoleBinding", "Service", "ServiceAccount")
DEFINITIONS = "#/definitions/"


def module(path, version):
    """The directory of a Go module, which is fetched once and checked against the checksum database."""
    done = subprocess.run(["go", "mod", "download", "-json", f"{path}@v{version}"], capture_output=True, text=True, cwd="/")
    if done.returncode != 0:
        raise AssertionError(f"{path} {version}: {done.stdout}{done.stderr}")
    return pathlib.Path(json.loads(done.stdout)["Dir"])


def strict(schema):
    """The schema without descriptions, with unknown fields refused."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string") is True:
        return {"type": ["integer", "string"]}
    made = {key: strict(part) for key, part in schema.items() if key in ("items", "anyOf", "oneOf", "allOf", "not", "additionalProperties")}
    made |= {key: schema[key] for key in ("$ref", "type", "enum", "pattern", "required", "minimum", "maximum", "minLength", "maxLength") if key in schema}
    if "properties" in schema:
        made["properties"] = {name: strict(part) for name, part in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            made.setdefault("additionalProperties", False)
    return made


def references(schema):
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].removeprefix(DEFINITIONS)
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from references(part)


def with_definitions(name, definitions):
    """A schema of one definition that contains all others that it needs."""
    needed, queue = {}, [name]
    while queue:
        name_of = queue.pop()
        if name_of not in needed:
            needed[name_of] = definitions[name_of]
            queue += references(definitions[name_of])
    return {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": DEFINITIONS + name, "definitions": needed}


def write_kubernetes(directory, version):
    document = json.loads((module("k8s.io/kubernetes", version) / "api/openapi-spec/swagger.json").read_text())
    definitions = {name: strict(it) for name, it in document["definitions"].items()}
    # The document calls it a string, but the API server also takes a number.
    definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"] = {"type": ["string", "number"]}
    directory.mkdir(parents=True, exist_ok=True)
    for name, definition in document["definitions"].items():
        for it in definition.get("x-kubernetes-group-version-kind", []):
            if it["kind"] in KINDS:
                group = it["group"].split(".")[0]
                file = "-".join(part for part in (it["kind"].lower(), group, it["version"]) if part)
                (directory / f"{file}.json").write_text(json.dumps(with_definitions(name, definitions)))


def write_operator(directory, version):
    crds = module("github.com/prometheus-operator/prometheus-operator", version) / "jsonnet/prometheus-operator"
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("podmonitor", "prometheusrule"):
        (served,) = [it for it in json.loads((crds / f"{name}s-crd.json").read_text())["spec"]["versions"] if it["served"]]
        (directory / f"{name}-monitoring-{served['name']}.json").write_text(json.dumps(strict(served["schema"]["openAPIV3Schema"])))

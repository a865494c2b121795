"""Runs commands and reads their YAML, for deploy/check, deploy/helm/check and deploy/conformance."""
import json
import os
import pathlib
import subprocess
import tempfile

DEPLOY = pathlib.Path(__file__).resolve().parent


def run(*command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


def parsed(yaml):
    """The documents of some YAML. kubectl reads it, because Python's own library cannot."""
    # --local asks no API server.
    output = run("kubectl", "annotate", "--local", "-f", "-", "-o", "json", "checked=yes", text=yaml)
    decoder, documents = json.JSONDecoder(), []
    while output := output.lstrip():
        document, end = decoder.raw_decode(output)
        documents.append(document)
        output = output[end:]
    return documents


def kustomized(resource, *components):
    """The YAML of a directory below deploy/ with these components added, from a kustomization elsewhere."""
    with tempfile.TemporaryDirectory() as directory:
        # kustomize accepts no absolute paths, and no links in relative ones.
        root = os.path.relpath(DEPLOY, os.path.realpath(directory))
        kustomization = {"resources": [f"{root}/{resource}"], "components": [f"{root}/components/{it}" for it in components]}
        pathlib.Path(directory, "kustomization.yaml").write_text(json.dumps(kustomization))
        return run("kubectl", "kustomize", directory)

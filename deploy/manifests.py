"""Runs commands and reads their YAML, for deploy/check and deploy/helm/check."""
import json
import subprocess


def run(*command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.stderr}")
    return done.stdout


def parsed(yaml):
    """The documents of some YAML. kubectl reads it, for Python's library cannot; --local asks no API server."""
    output = run("kubectl", "annotate", "--local", "-f", "-", "-o", "json", "checked=yes", text=yaml)
    decoder, documents = json.JSONDecoder(), []
    while output := output.lstrip():
        document, end = decoder.raw_decode(output)
        documents.append(document)
        output = output[end:]
    return documents

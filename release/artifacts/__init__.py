"""What release/build makes a release of, and release/publish reads it with."""
import hashlib
import pathlib
import subprocess
import sys


def fail(message):
    sys.exit(f"release/{pathlib.Path(sys.argv[0]).name}: {message}")


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def run(*command, **more):
    """Runs a command, and returns its standard output. Its other messages go to the terminal."""
    command = [str(part) for part in command]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, **more)
    if done.returncode:
        fail(f"{' '.join(command)}: exit code {done.returncode} {done.stderr or ''}")
    return done.stdout.strip()

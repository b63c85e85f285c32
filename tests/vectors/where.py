"""Where the reference vectors are: README.md beside this file."""
import os
import pathlib

BUILD = pathlib.Path(os.environ.get("HOKKU_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build"))
OWN = pathlib.Path(os.environ.get("HOKKU_VECTORS", BUILD / "tests/vectors"))


def folders():
    """The folder that the build has written, and that of HOKKU_CONFORMANCE, where it is set."""
    found = [OWN] + [pathlib.Path(p) for p in [os.environ.get("HOKKU_CONFORMANCE")] if p]
    for folder in found:
        assert (folder / "models").is_dir(), f"{folder} has no reference vectors: ninja -C build writes those of the build"
    return found

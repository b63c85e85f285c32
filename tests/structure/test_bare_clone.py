"""A clone alone is enough: nothing in it reads a place outside of it, but for those of this list."""
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Absolute paths that may be written down, and why.
ALLOWED = [
    r"/dev/(null|full|zero|tty|stdin|stdout|stderr)$",  # devices
    r"/dev/(fd/.*)?$",  # descriptors of the process, as shells name them
    r"/proc/|/sys/fs/cgroup",  # what the kernel says of the process and its limits
    r"/tmp/hokku-",  # templates of mkdtemp and mkstemp; XDG folders of someone without a home
    r"/(usr/)?bin/(env|sh|bash)$",  # interpreters
    r"/usr/local/cuda/bin/nvcc$",  # the toolkit where NVIDIA puts it, if it is not on the path
    r"/etc/evil\.gguf$",  # a name that a hostile server sends, to be refused
]
# Where absolute paths begin: here usually, and whatever else this machine has there.
ROOTS = {"bin", "data", "dev", "etc", "home", "lib", "media", "mnt", "opt", "proc", "root", "scratch", "srv", "sys", "tmp", "usr",
         "var", *(p.name for p in pathlib.Path("/").iterdir())}


def sources():
    names = subprocess.run(["git", "-C", str(ROOT), "ls-files", "tests", "src", "cuda", "scripts"], capture_output=True,
                           text=True, check=True).stdout.split()
    for name in names:
        if not name.endswith((".md", ".json", ".jinja")) and name != pathlib.Path(__file__).relative_to(ROOT).as_posix():
            yield name, (ROOT / name).read_text(errors="replace")


def absolute_paths(name, text):
    """In shell every word, elsewhere the beginnings of string literals. A command of the chat (/set) or a part of a URL
    (/api/models) is no path."""
    word = r"""(?<![\w})*.$"'/\]-])["']?(/[A-Za-z_][\w./-]*)""" if name.endswith(".sh") else r"""["'](/[A-Za-z_][^"'\s]*)"""
    for path in re.findall(word, text):
        if re.split("[/%{]", path)[1] in ROOTS and not any(re.match(allowed, path) for allowed in ALLOWED):
            yield path


def leaves(text):
    """What climbs out of the checkout."""
    return re.findall(r"\.\./shared|ROOT\.parent|shared.{1,5}conformance|source_root\(\) */ *'\.\.|parents\[[3-9]", text)


def test_nothing_reads_a_place_outside_of_the_checkout():
    wrong = [f"{name}: {path}" for name, text in sources() for path in [*absolute_paths(name, text), *leaves(text)]]
    assert not wrong, "\n".join(wrong)


def test_places_outside_are_seen_when_they_are_named():
    for name, text in [("a.py", 'open("/data/models/m.gguf")'), ("a.c", 'fopen("/home/me/m.gguf", "rb")'),
                       ("a.sh", "ls /opt/models"), ("a.sh", 'MODELS="/srv/models"'), ("a.py", "f'/scratch'"),
                       ("meson.build", "find_program('/opt/cuda/bin/nvcc')")]:
        assert list(absolute_paths(name, text)), text
    for text in ('ROOT.parent / "shared"', "../shared/conformance", "meson.project_source_root() / '..'"):
        assert leaves(text), text
    assert not list(absolute_paths("a.c", 'puts("/set NAME VALUE"); x = a / b; // of /proc/x')) and not leaves("shared memory")


def test_no_test_skips_for_what_test_sh_installs():
    """A missing package, module or vector is an error. What may be missing is a GPU, or the right to make
    the files of somebody else, or what a container forbids."""
    skips = [f"{name}: {reason}" for name, text in sources() if name.endswith(".py")
             for reason in re.findall(r"(?:skip\(|reason=|importorskip)(.*)", text)
             if not re.search(r"GPU|nvidia-smi|ASan|this model|the built-in model|-Dfuzz|not allowed here|only root can", reason)]
    assert not skips, "\n".join(skips)


def test_no_test_runs_a_program_that_a_bare_debian_has_not():
    """Not of procps and its like: /proc says the same (conftest.child_of)."""
    missing = "pgrep|pkill|ps|pidof|killall|lsof|strace|xxd"
    runs = re.compile(rf"""\[["']({missing})["']|(?:\$\(|[|;&] *)({missing}) """)
    assert runs.search('subprocess.run(["pgrep", "-P"])') and runs.search("x=$(ps -o pid=)") and not runs.search("a top of")
    wrong = [f"{name}: {m.group()}" for name, text in sources() if name.startswith("tests/e2e/") for m in runs.finditer(text)]
    assert not wrong, "\n".join(wrong)

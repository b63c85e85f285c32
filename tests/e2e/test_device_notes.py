"""What is said of the device: one line in a chat on a machine without a GPU, nothing in pipes unless somebody asks."""
import pexpect
import pytest
from conftest import HOKKU, ROOT

MODEL = str(ROOT / "builtin/hokku-builtin.gguf")
NOTE = "no NVIDIA GPU: running on the CPU"


@pytest.fixture
def with_cuda(hokku):
    """Whether this hokku holds the CUDA engine; these tests are about machines without a GPU."""
    r = hokku("-m", MODEL, "--device", "cuda", "-n", "1", "hi")
    if r.returncode == 0:
        pytest.skip("there is a GPU here")
    assert r.returncode == 1 and r.stdout == b"" and r.stderr.count(b"\n") == 1 and b"--device cpu runs without" in r.stderr
    return b"built without CUDA" not in r.stderr


def test_one_shots_say_nothing_of_a_gpu_that_nobody_asked_for(hokku, with_cuda):
    assert hokku("-m", MODEL, "-n", "1", "--temp", "0", "hi").stderr == b""
    for tool in (["score", "-m", MODEL, "-"], ["perplexity", "-m", MODEL, "-c", "16", "-f", str(ROOT / "README.md")]):
        assert b"NVIDIA" not in hokku(*tool, input="a few words\n").stderr
    said = hokku("-m", MODEL, "-n", "1", "-v", "hi").stderr.decode()
    assert (NOTE in said) == with_cuda


def test_a_chat_says_in_one_line_that_it_runs_on_the_cpu(home, with_cuda):
    for options, expected in (([], with_cuda), (["-q"], False), (["--device", "cpu"], False)):
        child = pexpect.spawn(HOKKU, ["-m", MODEL, *options], env=home, encoding="utf-8", timeout=30, dimensions=(24, 100))
        child.expect("> ")
        assert (child.before.count(NOTE) == 1) == expected and "driver" not in child.before
        child.sendline("/bye")
        child.expect(pexpect.EOF)

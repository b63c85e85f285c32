"""Pictures that are drawn from numbers show those numbers."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs/picture"))
import plot_batch  # noqa: E402


def test_the_picture_of_many_sequences_is_that_of_the_table():
    lines = plot_batch.table((ROOT / "docs/performance.md").read_text())
    assert len(lines) >= 4 and all(p[0][0] == 1 for _, p in lines)
    assert (ROOT / "docs/picture/batch.svg").read_text() == plot_batch.picture(), "run: python3 docs/picture/plot_batch.py"

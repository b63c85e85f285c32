"""Tab in bash, zsh and fish: everything completes, and no name is ever expanded, split or run. The shells are the real ones."""
import json
import os
import pathlib
import random
import subprocess

import pexpect
import pytest
from conftest import HOKKU, ROOT

MARK = "0123456789"
HOSTILE = ["a b", "'q", '"q', "q'\"q", "$(touch PWNED)", "`touch PWNED`", ";touch PWNED;", "$HOME", "${IFS}", "*", "?[a-z]", "~", "~root", "{a,b}",
           "\\x", "!!", "#c", "&", "|cat", "<in>", "-rf", "--help", "(x)", "=ls", "a:b", "@x", "ä日本😀", "%s%n"]
# Safely quoted, or not offered at all.
CONTROL = ["a\nb", "$(touch PWNED)\nx", "a\tb", "a\x1b]0;t\x07b", "a\x7f", "a\rb", "a\u009b2Jb", "a\u202eb", b"a\x9b2Jb", b"a\xff"]


# ------------------------------------------------------------------------------- what the program says


@pytest.fixture
def offered(hokku):
    """What `hokku --complete bash` makes of a command line -> ("files" or "words", the candidates)."""
    def get(line, replaced=None):
        r = hokku("--complete", "bash", line.split(" ")[-1] if replaced is None else replaced, line)
        assert r.returncode == 0 and r.stdout.endswith(b"\0"), r
        kind, *words = r.stdout.decode().split("\0")[:-1]
        return kind, words
    return get


def test_options_values_tools_and_files_complete(offered):
    assert {"--temp", "--top-k", "--top-p"} <= set(offered("hokku --t")[1])
    assert offered("hokku --overflow ") == ("words", ["error", "drop", "shift"])
    assert offered("hokku --overflow d") == offered("hokku --overflow=d", "d") == ("words", ["drop"])
    assert offered("hokku -ctk q") == ("words", ["q8_0"]) and offered("hokku bench -o ") == ("words", ["md", "json"])
    assert offered("hokku --device cu") == ("words", ["cuda"])
    assert offered("hokku rep") == ("words", ["replay"])
    assert offered("hokku tokenize --n") == ("words", ["--nul"])
    assert "--temp" not in offered("hokku tokenize --t")[1] and "replay" not in offered("hokku tokenize rep")[1]
    assert offered("hokku --chat-template ll") == ("words", ["llama2", "llama3"])
    for line in ("hokku -m mod", "hokku -f ", "hokku --file=x", "hokku inspect m", "hokku -- --t", "hokku nothing", "hokku bench -m "):
        assert offered(line) == ("files", [])
    assert offered("hokku -j @x") == offered("hokku --json-schema=@x", "@x") == ("at-files", []) and offered("hokku -j {") == ("words", [])
    assert offered("hokku --base ./x") == ("files", [])
    for line in ("hokku --temp ", "hokku --prefill x", "hokku --nonsense=x", "hokku -x", "hokku models no"):
        assert offered(line) == ("words", [])
    # a value is a value, whatever it looks like
    assert offered("hokku -p --te") == ("words", []) and offered("hokku -p -m --te")[1] == offered("hokku --te")[1]


def test_fish_gets_whole_words_and_what_they_are_for(hokku):
    def get(line):
        return hokku("--complete", "fish", line.split(" ")[-1], line).stdout.decode().split("\0")[:-1]
    help_text = hokku("--help").stdout.decode()
    words = [word.split("\t") for word in get("hokku --")[1:]]
    assert len(words) > 60 and all(len(w) == 2 and " ".join(w[1].split()) in " ".join(help_text.split()) for w in words)
    assert get("hokku --overflow=d") == ["words", "--overflow=drop"] and get("hokku --overflow d") == ["words", "drop"]
    assert get("hokku -m x") == ["files"] and get("hokku sess") == ["words", "sessions\tlist, remove, rename, export or search saved conversations"]


def test_system_prompts_complete_after_an_at_sign(offered):
    names = {f"@{p.stem}" for p in (ROOT / "prompts").glob("*.txt")}
    assert set(offered("hokku -sys ")[1]) == names and len(names) >= 6
    assert offered("hokku -sys @ha") == ("words", ["@haiku"]) and offered("hokku -sys @ha", "ha") == ("words", ["haiku"])
    assert offered("hokku -sys=x") == ("words", [])


def test_a_line_is_read_as_a_shell_reads_it_and_nothing_is_expanded(offered, tmp_path, monkeypatch):
    for line in ("hokku '--overflow' dr", 'hokku "--overflow" dr', "hokku --over\\flow dr", "HOME=/x A= hokku --overflow 'dr", 'hokku --overflow "dr',
                 "hokku -p 'a b --session' --overflow dr", "hokku -p a\\ b --overflow dr", 'hokku -p "$(touch PWNED)" --overflow dr',
                 "  hokku\t--overflow   dr"):
        assert offered(line, "dr") == ("words", ["drop"]), line
    monkeypatch.chdir(tmp_path)
    for line in ("hokku --session $(touch PWNED)", "hokku `touch PWNED`", "hokku -m ~/x$HOME"):
        assert offered(line)[1] == []
    assert "PWNED" not in os.listdir(tmp_path)


def test_any_line_is_answered(hokku):
    rng = random.Random(3)
    pieces = [b"hokku", b" ", b"--session", b"=", b"'", b'"', b"\\", b"-", b"--", b"@", b":", b"\xff\x9b", "ä".encode(), b"models", b"rm", b"A=1", b"\n"]
    for _ in range(150):
        line = b"".join(rng.choice(pieces) for _ in range(rng.randrange(12)))
        replaced = rng.choice([line[-rng.randrange(1, 6):], b"", b"x" * 50, line])
        r = hokku("--complete", "bash", os.fsdecode(replaced), os.fsdecode(line))
        assert r.returncode == 0 and r.stdout.split(b"\0")[0] in (b"files", b"words"), (line, r)


def test_a_broken_configuration_does_not_stop_the_tab_key(offered, tmp_path):
    (tmp_path / "config" / "hokku").mkdir(parents=True)
    (tmp_path / "config" / "hokku" / "config").write_text("nonsense")
    assert offered("hokku rep") == ("words", ["replay"])


@pytest.mark.parametrize("args", [[], ["bash"], ["bash", "x"], ["bash", "a", "b", "c"], ["fish"], ["sessions", "x"], [""]])
def test_other_questions_are_wrong_usage(hokku, args):
    r = hokku("--complete", *args)
    assert r.returncode == 2 and r.stdout == b"" and b"--complete: found" in r.stderr


@pytest.fixture
def sessions(tmp_path):
    """Sessions with good and hostile names."""
    folder = tmp_path / "state" / "hokku" / "sessions"
    folder.mkdir(parents=True)
    for name in ("work", "wörk-2", "-dash", *HOSTILE, *CONTROL):
        name = os.fsencode(name).replace(b"/", b"")
        pathlib.Path(os.fsdecode(os.fsencode(folder) + b"/" + name + b".session")).write_bytes(b"")
    return folder


def test_only_sessions_that_can_be_opened_are_offered(hokku, offered, sessions):
    want = {"work", "wörk-2", "-dash", "-rf", "--help", "ä日本😀"}
    assert set(offered("hokku --session ")[1]) == want == set(offered("hokku replay ")[1])
    assert offered("hokku --session w")[1] == ["work", "wörk-2"]
    assert set(hokku("--complete", "sessions").stdout.decode().split("\0")[:-1]) == want


def test_what_follows_a_command_of_sessions_is_what_it_takes(offered, sessions):
    assert offered("hokku sessions ") == ("words", ["list", "rm", "mv", "export", "search"])
    assert offered("hokku sessions x") == offered("hokku sessions nothing ") == offered("hokku sessions search w") == ("words", [])
    for line in ("export w", "mv w", "rm w", "rm work w", "rm a b c w"):
        assert offered(f"hokku sessions {line}") == ("words", ["work", "wörk-2"])
    assert offered("hokku sessions mv work w") == offered("hokku sessions export work a.md w") == offered("hokku sessions list w") == ("words", [])
    assert offered("hokku sessions export work w") == ("files", [])


def test_downloaded_models_complete(hokku, offered, tmp_path):
    assert offered("hokku models ") == ("words", ["list", "rm"]) and offered("hokku models rm ") == ("words", [])
    for repo in ("Ann/One-GGUF", "Ann/$(touch PWNED)", "Bob/Two"):
        d = tmp_path / "cache" / "hokku" / "hub" / repo
        d.mkdir(parents=True)
        (d / "m-Q4_K_M.gguf").write_bytes(b"GGUF")
        (d / ".hokku.json").write_text(json.dumps({"files": {"m-Q4_K_M.gguf": {"sha256": "0" * 64, "size": 4}}}))
    listed = [m["name"] for m in json.loads(hokku("models", "--json").stdout)]
    assert len(listed) == 3
    want = [n for n in listed if "$" not in n]
    for line in ("hokku models rm ", "hokku -hf ", "hokku pull "):
        assert offered(line)[1] == want
    repo, tag = want[0].split(":")
    assert offered(f"hokku -hf {repo}:{tag[:2]}", tag[:2])[1] == [tag]  # bash begins a new word after the colon


# ------------------------------------------------------------------------------------ the shells


class Shell:
    """An interactive shell in which `hokku` notes its arguments, and Tab asks the real program."""

    def __init__(self, kind, env, cwd, sourced=False):
        self.args = pathlib.Path(env["HOME"]) / "args"
        bin_dir = pathlib.Path(env["HOME"]) / "bin"
        bin_dir.mkdir(exist_ok=True)
        if not (bin_dir / "hokku").exists():
            (bin_dir / "hokku").symlink_to(HOKKU)
        env = {**env, "PATH": f"{bin_dir}:{os.environ['PATH']}", "PS1": MARK, "PROMPT": MARK, "ARGS": str(self.args), "HISTFILE": "", "TERM": "dumb"}
        script = pathlib.Path(env["HOME"]) / {"bash": "hokku.bash", "zsh": "_hokku", "fish": "hokku.fish"}[kind]
        script.write_bytes(subprocess.run([HOKKU, "--print-completion", kind], env=env, stdout=subprocess.PIPE, check=True).stdout)
        command = {"bash": ["bash", "--noprofile", "--norc", "-i"], "zsh": ["zsh", "-f", "-i"],
                   "fish": ["fish", "--no-config", "--private", "-i", "-C", f"function fish_prompt; echo -n {MARK}; end; set fish_autosuggestion_enabled 0; set fish_greeting"]}[kind]
        self.p = pexpect.spawn(command[0], command[1:], env=env, cwd=str(cwd), dimensions=(60, 200), timeout=20)
        self.p.delaybeforesend = None
        self.p.expect(MARK.encode())
        if kind == "fish":
            self.run(f"source {script}")
            self.run("function hokku; printf '%s\\0' $argv > $ARGS; end")
            return
        self.run("bind 'set enable-bracketed-paste off'; bind 'set bell-style none'; bind 'set page-completions off'; set +H" if kind == "bash" else
                 "unsetopt beep prompt_cr prompt_sp banghist; setopt interactivecomments; unset zle_bracketed_paste; zstyle ':completion:*' list-prompt ''")
        if kind == "zsh":
            self.run("autoload -U compinit; compinit -u -D" if sourced else f"fpath=({script.parent} $fpath); autoload -U compinit; compinit -u -D")
        if kind == "bash" or sourced:
            said = self.run(f"source {script}")
            assert b"only be called" not in said, said
        self.run("""function hokku { printf '%s\\0' "$@" > "$ARGS"; }""")

    def run(self, line):
        self.p.send(line + "\r")
        self.p.expect(MARK.encode())
        return self.p.before

    def sync(self):
        """Waits until all that was typed has been done: the prompt alone may be an old one, shown again below a list."""
        self.p.send("echo E''ND\r")
        self.p.expect(b"[\r\n]END\r?\n")
        shown = self.p.before
        self.p.expect(MARK.encode())
        return shown

    def tab(self, line):
        """Types the line, Tab, Enter -> the arguments that hokku would have got."""
        self.args.unlink(missing_ok=True)
        self.p.send(line + "\t\r")
        self.sync()
        return self.args.read_bytes().split(b"\0")[:-1] if self.args.exists() else None

    def list(self, line):
        """Types the line and Tab twice, takes the line back -> what was shown."""
        self.p.send(line + "\t\t\x15")
        return self.sync()

    def close(self):
        self.p.close(force=True)


@pytest.fixture(params=["bash", "zsh", "fish"])
def shell(request, home, tmp_path):
    work = tmp_path / "cwd"
    work.mkdir()
    s = Shell(request.param, home, work)
    s.cwd, s.kind = work, request.param
    yield s
    s.close()
    assert not [p for d in (work, tmp_path) for p in d.rglob("PWNED")]


def test_the_shells_complete(shell, sessions):
    assert shell.tab("hokku --overf") == [b"--overflow"]
    assert shell.tab("hokku --overflow dr") == [b"--overflow", b"drop"]
    assert shell.tab("hokku --overflow=dr") == [b"--overflow=drop"]
    assert shell.tab("hokku rep") == [b"replay"]
    assert shell.tab("hokku tokenize --nu") == [b"tokenize", b"--nul"]
    assert shell.tab("hokku -sys @hai") == [b"-sys", b"@haiku"]
    assert shell.tab("hokku --chat-template vic") == [b"--chat-template", b"vicuna"]
    assert shell.tab("hokku --session wor") == [b"--session", b"work"]
    assert shell.tab("hokku --session=wor") == [b"--session=work"]
    assert shell.tab("hokku --session 'wor") == shell.tab('A=1 hokku --session "wor') == [b"--session", b"work"]
    assert shell.tab("true; hokku -p x --session wor") == [b"-p", b"x", b"--session", b"work"]
    assert shell.tab("hokku replay wor") == [b"replay", b"work"]
    (shell.cwd / "model.gguf").write_text("")
    assert shell.tab("hokku -m mod") == [b"-m", b"model.gguf"]
    assert shell.tab("hokku inspect mod") == [b"inspect", b"model.gguf"]
    (shell.cwd / "per son.json").write_text("")
    assert shell.tab("hokku -j @per") == [b"-j", b"@per son.json"]
    assert shell.tab("hokku --json-schema=@per") == [b"--json-schema=@per son.json"]
    (shell.cwd / "schemas").mkdir()
    (shell.cwd / "schemas/a.json").write_text("")
    assert shell.tab("hokku -j @schemas/a") == [b"-j", b"@schemas/a.json"]
    (shell.cwd / "old.session").write_text("")
    assert shell.tab("hokku --base old") == [b"--base", b"old.session"] and shell.tab("hokku --base wor") == [b"--base", b"work"]
    (shell.cwd / "worked.md").write_text("")
    assert shell.tab("hokku sessions ex") == [b"sessions", b"export"]
    assert shell.tab("hokku sessions export wor") == [b"sessions", b"export", b"work"]
    assert shell.tab("hokku sessions export work wor") == [b"sessions", b"export", b"work", b"worked.md"]
    assert shell.tab("hokku sessions rm work wor") == [b"sessions", b"rm", b"work", b"work"]


def test_zsh_completes_also_where_its_completion_is_sourced(home, tmp_path, sessions):
    """As the others' are: eval "$(hokku --print-completion zsh)", of a program that is not installed."""
    s = Shell("zsh", home, tmp_path, sourced=True)
    for _ in range(2):
        assert s.tab("hokku --overf") == [b"--overflow"]
        assert s.tab("hokku replay wor") == [b"replay", b"work"]
    s.close()


def test_hostile_sessions_are_not_run_and_not_shown(shell, sessions):
    for line in ("hokku --session ", "hokku --session '", "hokku --session $", "hokku replay a", "hokku --session \\`"):
        shown = shell.list(line)
        for attack in (b"touch PWNED", b"\x1b]0;t\x07", b"\x9b", b"\xe2\x80\xae"):
            assert attack not in shown.replace(line.encode(), b""), shown
    assert b"work" in shell.list("hokku --session ")
    assert shell.tab("hokku --session ä")[1] == "ä日本😀".encode()
    assert shell.tab("hokku --session -d")[1] == b"-dash"


def test_hostile_files_are_completed_to_themselves_or_not_at_all(shell):
    names = [b"p%02d-" % i + os.fsencode(name).replace(b"/", b"") for i, name in enumerate(HOSTILE + CONTROL)]
    for name in names:
        pathlib.Path(os.fsdecode(os.fsencode(shell.cwd) + b"/" + name)).write_bytes(b"")
    for i, name in enumerate(names):
        typed = name[:4].decode()
        got = shell.tab(f"hokku -m {typed}")
        behind = shell.tab(f"hokku -j @{typed}")
        assert behind is None or behind[0] == b"-j" and behind[1] in (b"@" + name, b"@" + typed.encode(), b"@" + name.split(b"\t")[0]), (behind, name)
        if i < len(HOSTILE):
            assert got == [b"-m", name]
        else:
            cut = name.split(b"\t")[0] if shell.kind == "fish" else name  # as fish completes any command's files
            assert got is None or got in ([b"-m", name], [b"-m", typed.encode()], [b"-m", cut]), (got, name)


def test_zsh_accepts_its_completion(hokku):
    script = hokku("--print-completion", "zsh").stdout
    subprocess.run(["zsh", "-n", "/dev/stdin"], input=script, check=True)


def test_fish_accepts_its_completion_and_shows_what_words_are_for(hokku, home, tmp_path):
    script = tmp_path / "hokku.fish"
    script.write_bytes(hokku("--print-completion", "fish").stdout)
    subprocess.run(["fish", "--no-config", "-n", script], check=True)
    (tmp_path / "hokku").symlink_to(HOKKU)
    env = {**home, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    shown = subprocess.run(["fish", "--no-config", "-c", f"source {script}; complete -C 'hokku --overf'; complete -C 'hokku --overflow=dr'; complete -C 'hokku sess'"],
                           env=env, capture_output=True, text=True, check=True).stdout
    assert shown.splitlines() == ["--overflow\twhen the context is full (error)", "--overflow=drop", "sessions\tlist, remove, rename, export or search saved conversations"]


def test_bash_accepts_its_completion(hokku):
    subprocess.run(["bash", "-n"], input=hokku("--print-completion", "bash").stdout, check=True)

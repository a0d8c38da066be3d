"""Write what the commands and programs of a guide print to results/printed/NAME.txt.

    python docs/generate/printed_output.py tuning                       in a temporary folder
    python docs/generate/printed_output.py tuning --folder runs/tuning  the runs stay there

The files of the guide (code blocks whose first line is `# name.py` or `# name.toml`) are written to the folder first.
tests/docs/test_every_number.py compares the guide with what is written here.
"""

import argparse
import os
import re
import resource
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRINTED = ROOT / "results" / "printed"
BLOCK = re.compile(r"^```(python|toml)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# by name of the guide: the beginnings of its commands; "blocks" runs each of its Python blocks
COMMANDS = {
    "evaluation": ["fedcm run demo --set rounds=200"],
    "fine-tuning": ["python docs/examples/lora_shakespeare.py"],
    "local-training": ["blocks"],
    "own-loss": ["python same.py", "fedcm run traits.toml", "python diabetes.py"],
    "tuning": ["fedcm tune demo --set rounds=100"],
}


def find_commands(name: str) -> list[str]:
    """Return the complete commands, as the guide shows them or as its files are called."""
    page = read_guide(name)
    blocks = [text for language, text in BLOCK.findall(page) if language == "python"]
    found: list[str] = []
    for start in COMMANDS[name]:
        shown = re.search(rf"^    ({re.escape(start)}.*)$", page, re.MULTILINE)
        if start == "blocks":
            found += [f"python block{k}.py" for k in range(len(blocks))]
        else:
            found.append(shown[1] if shown else start)
    return found


def read_guide(name: str) -> str:
    """Return the text of a guide."""
    return (ROOT / "docs" / "guides" / f"{name}.md").read_text(encoding="utf-8")


def write_files(name: str, folder: Path) -> None:
    """Write the files of the guide, and its Python blocks by number; `docs` is the folder of the pages."""
    (folder / "docs").symlink_to(ROOT / "docs")
    blocks = BLOCK.findall(read_guide(name))
    for _, text in blocks:
        if named := re.match(r"# ([\w-]+\.\w+)\n", text):
            (folder / named[1]).write_text(text, encoding="utf-8")
    for number, text in enumerate(text for language, text in blocks if language == "python"):
        (folder / f"block{number}.py").write_text(text, encoding="utf-8")


def run_commands(name: str, folder: Path) -> str:
    """Return the commands, what they print and the CPU time that they take."""
    write_files(name, folder)
    parts = []
    for command in find_commands(name):
        words = shlex.split(command)
        program = {"fedcm": [sys.executable, "-m", "fedcm"], "python": [sys.executable]}.get(words[0], words[:1])
        before = measure_cpu_time()
        done = subprocess.run(
            [*program, *words[1:]],
            cwd=folder,
            env=os.environ | {"PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore"},  # a warning shows a path
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
        )
        seconds = measure_cpu_time() - before
        parts.append(f"$ {command}\n{done.stdout.rstrip()}\n({seconds:.0f} s of CPU time)\n")
    return "\n".join(parts)


def measure_cpu_time() -> float:
    """Return the seconds of CPU time of all processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Run the commands of a guide and write what they print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=COMMANDS)
    parser.add_argument("--folder", type=Path, help="an empty folder for the runs, which stay there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        text = run_commands(options.name, folder)
    PRINTED.mkdir(parents=True, exist_ok=True)
    (PRINTED / f"{options.name}.txt").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()

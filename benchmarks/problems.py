"""Judge and time all submissions of each problem, a results file each: `python benchmarks/problems.py results/h200`.

    python benchmarks/problems.py FOLDER [PROBLEM…] [-- OPTIONS OF eval.py]

Without a PROBLEM all that have submissions are run. The tables of the documents are made from these files.
"""

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
AGAINST = "eager,compile,unfused,liger,cudnn,quack"


def main():
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    ours, options = words[:split], words[split + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("problems", nargs="*")
    arguments = parser.parse_args(ours)
    known = sorted(f.name for f in (ROOT / "submissions").iterdir() if (ROOT / "problems" / f"{f.name}.py").exists())
    arguments.folder.mkdir(parents=True, exist_ok=True)
    failed = []
    for problem in arguments.problems or known:
        out = (arguments.folder / f"{problem}.json").resolve()
        command = [sys.executable, "eval.py", f"submissions/{problem}", "--json", str(out), "--against", AGAINST]
        if subprocess.run([*command, *options], cwd=ROOT).returncode:
            failed.append(problem)
    print(f"not all accepted: {', '.join(failed)}" if failed else "all accepted")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())

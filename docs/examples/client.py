"""A client of `eval.py serve`, in Python for once: it needs nothing but a process and lines of JSON.

    python docs/examples/client.py PROBLEM FILE… [-- OPTIONS OF eval.py serve]
"""

import json
import subprocess
import sys
from pathlib import Path

EVAL = Path(__file__).resolve().parents[2] / "eval.py"


def main() -> None:
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    if cut < 2:
        sys.exit(__doc__)
    (problem, *files), options = words[:cut], words[cut + 1 :]
    command = [sys.executable, str(EVAL), "serve", "--problem", problem, *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        for file in files:
            print(json.dumps({"id": file, "path": file, "stages": True}), file=server.stdin, flush=True)
        server.stdin.close()  # nothing else is asked for: it ends when all is answered
        for line in server.stdout:
            answer = json.loads(line)
            if answer["type"] == "stage":
                print(f"{answer['id']}: {answer['stage']} …")
            elif answer["type"] == "answer":
                where = f", line {answer['line']['line']}" if "line" in answer else ""
                why = f"{answer.get('reason', '')}{where} {answer.get('message', '')}"
                print(f"{answer['id']}: {answer['status']} {why}")
            else:
                print(f"not understood: {answer['message']}")


if __name__ == "__main__":
    main()

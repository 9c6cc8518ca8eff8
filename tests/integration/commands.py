"""A program that runs command lines, one JSON list a line, and answers each with its exit code and what it printed.

One process for many: each costs only what it does, and an exception that escapes ends them all.
"""

import contextlib
import io
import json
import sys

from mlmodelscope.cli.main import _run

for line in sys.stdin:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = _run(json.loads(line))
    sys.stdout.write(json.dumps([code, out.getvalue(), err.getvalue()]) + "\n")
    sys.stdout.flush()

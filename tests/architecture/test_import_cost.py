"""What `import mlmodelscope` and the start of the command line may load."""

import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import mlmodelscope
import mlmodelscope.core

SOURCE = Path(mlmodelscope.__file__).parents[1]
HEAVY = (
    "PIL",
    "ai_edge_litert",
    "alembic",
    "cv2",
    "docker",
    "google",
    "grpc",
    "numpy",
    "onnx",
    "onnxruntime",
    "requests",
    "rich",
    "sqlalchemy",
    "tensorflow",
    "torch",
)


def heavy_modules_after(program: str) -> set[str]:
    """The heavy packages that are loaded in a new interpreter once `program` has run."""
    report = "\nimport json, sys\nprint(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    finished = subprocess.run(
        [sys.executable, "-c", program + report],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(finished.stdout.splitlines()[-1])).intersection(HEAVY)


def test_the_package_loads_nothing_heavy():
    assert heavy_modules_after("import mlmodelscope") == set()


def test_the_shared_types_load_nothing_heavy():
    names = [f"mlmodelscope.core.{module.name}" for module in pkgutil.iter_modules(mlmodelscope.core.__path__)]
    assert "mlmodelscope.core.record" in names
    assert heavy_modules_after(f"import {', '.join(names)}") == set()


def test_the_help_of_the_command_line_loads_nothing_heavy():
    program = "import sys\nfrom mlmodelscope.cli.main import main\nsys.argv = ['mlmodelscope', '--help']\n"
    assert heavy_modules_after(program + "try:\n    main()\nexcept SystemExit:\n    pass\n") == set()


def test_a_heavy_module_would_be_seen():
    assert heavy_modules_after("import numpy") == {"numpy"}

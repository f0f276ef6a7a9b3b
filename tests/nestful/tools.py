"""The activities behind NESTFUL's tools, for `--activities tests/nestful/tools.py`.

The schemas come with the submission, so every function takes `(call, context)` and admits any parameters
(SPEC R4.1a).
"""

import sys
from importlib import import_module
from pathlib import Path

from acts_celery import activity

# Loaded from a file, perhaps by a console script: nothing may have put the repository on the path, and the
# file has no package to import relatively from.
ROOT = str(Path(__file__).resolve().parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

for name, implementation in import_module("tests.nestful.implementations").implementations().items():
    activity(name)(implementation)

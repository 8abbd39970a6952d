"""Let the tests of this folder import its strategies, and let a slow machine take its time."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))
settings.register_profile("core", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("core")

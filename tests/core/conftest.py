"""Let a slow machine take its time over generated examples."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("core", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("core")

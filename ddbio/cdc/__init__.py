"""Change data capture: streams into logs; logs healed, verified, archived, replayed."""

"""Change data capture: streams are captured into logs, which are healed, verified, archived and replayed."""

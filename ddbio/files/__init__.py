"""Files: formats, object stores, and the commit that publishes files whole or not at all."""

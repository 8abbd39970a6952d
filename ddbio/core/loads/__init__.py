"""Plan writes, and turn rows into the requests that carry them."""

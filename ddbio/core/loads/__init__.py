"""Plan writes, and encode rows as the requests that carry them."""

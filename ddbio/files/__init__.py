"""Write files and commit them; reach no service: an object store is handed in."""

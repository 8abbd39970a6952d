"""Hold what is known of native exports: jobs, manifests, and how changes fold into a state."""

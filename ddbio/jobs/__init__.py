"""What all jobs share: engines, plans and their estimates, prices, staging, reports."""

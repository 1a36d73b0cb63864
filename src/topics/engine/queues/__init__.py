"""Queues: jobs as the API shows them, facts about leases, and which dead letters move back."""

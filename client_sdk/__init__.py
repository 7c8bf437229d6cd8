"""What a consumer installs: clients, batches and typed rows."""

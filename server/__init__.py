"""The running process: get/ack/rollback semantics, the HTTP API, the command line."""

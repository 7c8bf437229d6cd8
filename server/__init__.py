"""The running process: get/ack/rollback semantics, the HTTP API, Canal's protocol, the command line."""

"""The running process: Canal's calls, HTTP, Canal's protocol, outputs, several servers, the command line."""

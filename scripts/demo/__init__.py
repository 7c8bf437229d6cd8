"""`make demo`: a private MariaDB, the server, live changes, and a proof that what was written was delivered."""

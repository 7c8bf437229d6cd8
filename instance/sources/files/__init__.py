"""The files of a binlog in a folder as a source, without the server that wrote them."""

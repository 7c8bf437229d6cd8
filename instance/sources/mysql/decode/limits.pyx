"""From which place of the stream on entries are wanted, and up to which."""

from libc.stdint cimport int64_t

from .....protocol.errors import SourceChangedError
from .....protocol.position import file_number


cdef class Limits:
    """From which place of the stream on entries are wanted, and up to which."""

    cdef int start(self, position, stop) except -1:
        """A new stream: entries before `position` are not wanted, nor those from `stop` on."""
        self.skipping = position is not None
        if position is not None:
            self.skip_file = position.file
            self.skip_created = position.created
            self.skip_begin = position.begin
            self.skip_n = position.n
        self.stop = stop
        self.stopping = self.stopped = False
        if stop is not None:
            self.stop_begin = stop.begin
            self.stop_n = stop.n
        return 0

    cdef int start_file(self, str name, int64_t created, str before) except -1:
        """Raises SourceChangedError."""
        if self.skipping and name != self.skip_file and before == self.skip_file:
            self.skipping = False
        if self.skipping and name == self.skip_file and created != self.skip_created:
            raise SourceChangedError(
                f"the source's {name} was created at {created}, the one of the position at {self.skip_created}:"
                " it was reset, restored, or is another server"
            )
        if self.stop is not None:
            number = file_number(name)
            self.stopping = number == self.stop.file_number
            self.stopped = number > self.stop.file_number
        return 0

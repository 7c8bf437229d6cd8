# Used by compiled code only.

class Inflater: ...

class PayloadReader:
    active: bool

# Used by compiled code only.
